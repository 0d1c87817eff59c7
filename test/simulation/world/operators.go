package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/test/simulation/simnet"
)

// Operators change the members of the cluster, one change at a time. They follow docs/operating.md:
// before a disk is lost for good, all extents and logs have all replicas and all voters are alive,
// and no other fault begins while the operator waits for that. A host whose node cannot start any more because its disk
// is corrupt is replaced at once: only one disk of a world is.

// operators are the operators of a world.
type operators struct{ *World }

func (w *World) operators() operators { return operators{w} }

// hostsMax bounds the hosts of the cluster, hostsMin those that a removal leaves.
const (
	hostsMax = 11
	hostsMin = 5
)

// operate makes one change of the members, unless another one is under way.
func (w operators) operate(f fault, h *host, limit time.Duration) {
	if w.operating {
		w.count("operators were busy")
		return
	}
	w.operating = true
	defer func() { w.operating, w.quiet = false, false }()
	end := time.Now().Add(limit)
	switch f {
	case addNode:
		w.addNode(end)
	case drainNode:
		w.drain(h, end)
	case retireNode:
		w.retire(h, end)
	case loseNode:
		w.lose(h, end)
	case loseDisk:
		w.loseDisk(h, end)
	}
}

// operatorDone is how long an operator may take to finish what was begun, once all faults have
// ended.
const operatorDone = 2 * time.Minute

// awaitOperators waits until no change is under way.
func (w operators) awaitOperators() {
	for end := time.Now().Add(operatorDone); w.operating; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			w.fail("SW1 service: an operator's change is not done %v after all faults have ended", operatorDone)
			return
		}
	}
}

// addNode adds a host with an empty disk and a new address.
func (w operators) addNode(end time.Time) {
	if len(w.hosts) >= hostsMax {
		return
	}
	h := w.newHost()
	w.join(h, end)
}

// join starts a host with an empty disk as a new node.
func (w operators) join(h *host, end time.Time) {
	h.cfg.Expect, h.cfg.Join, h.cfg.TokenFile = 0, nil, ""
	for _, o := range w.hosts {
		if o != h {
			h.cfg.Join = append(h.cfg.Join, o.address())
		}
	}
	if err := w.enrol(h, end.Add(operatorDone)); err != nil {
		w.trace.addf(h.name, "does not join: %v", err)
		if !slices.Contains(w.hosts, h) {
			return // no token was created
		}
		w.fail("SW1 service: an operator gets no join token for %s: %v", h.name, err)
		return
	}
	w.count("nodes added")
	if slices.Contains(w.hosts, h) {
		h.gone = false
		h.up()
		return
	}
	w.hosts = append(slices.Clip(w.hosts), h)
	w.begin(h, w.done)
}

// drain drains a node, restarts it, and ends the drain.
func (w operators) drain(h *host, end time.Time) {
	id := h.id
	if id == "" || w.ask(end, func(ctx context.Context, c *client.Client) error { return c.Nodes().Drain(ctx, id) }) != nil {
		return
	}
	w.await(end, func(ctx context.Context, c *client.Client) error { return safe(ctx, c, id) })
	if time.Now().Before(end) {
		h.stop()
		w.hold(time.Until(end), 0, 10*time.Second)
		h.up()
	}
	err := w.ask(end.Add(operatorDone), func(ctx context.Context, c *client.Client) error { return c.Nodes().Undrain(ctx, id) })
	if err != nil {
		w.fail("SW1 service: the drain of %s cannot be ended: %v", h.name, err)
	}
	w.count("drains by operators")
}

// safe returns an error unless a node is drained.
func safe(ctx context.Context, c *client.Client, id string) error {
	s, err := c.BlockStore().Status(ctx)
	if err != nil {
		return err
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Node == id && n.Safe {
			return nil
		}
	}
	return errors.New("not safe yet")
}

// retire drains a node, stops it, and removes it for good. Another host may join in its place.
func (w operators) retire(h *host, end time.Time) {
	id := h.id
	if id == "" || len(w.hosts) <= hostsMin || w.bad == h {
		return
	}
	if w.ask(end, func(ctx context.Context, c *client.Client) error { return c.Nodes().Drain(ctx, id) }) != nil {
		return
	}
	if !w.await(end, func(ctx context.Context, c *client.Client) error { return safe(ctx, c, id) }) {
		_ = w.ask(end.Add(operatorDone), func(ctx context.Context, c *client.Client) error { return c.Nodes().Undrain(ctx, id) }) // its node may stay drained
		return
	}
	h.gone = true
	var links [][2]*simnet.Host
	switch w.r.IntN(3) {
	case 0:
		h.stop()
		h.kill(false)
	case 1: // it is unreachable while it is removed, and comes back then
		links = w.cutOff(h)
	}
	w.leave(h)
	w.remove(id, end)
	w.reconnect(links)
	w.await(end, func(context.Context, *client.Client) error { // it learns that it was removed, and ends
		if h.state == serving && h.node.Err() == nil {
			return errors.New("still runs")
		}
		return nil
	})
	h.kill(false)
	w.count("nodes retired")
	if w.r.IntN(2) == 0 {
		w.addNode(end)
	}
}

// lose destroys a host and removes its node. Another host with a new address takes its place.
func (w operators) lose(h *host, end time.Time) {
	id := h.id
	if id == "" || len(w.hosts) <= hostsMin || !w.awaitRedundancy(end) || h.state == down {
		return
	}
	h.gone = true
	h.kill(true)
	w.leave(h)
	w.count("hosts lost")
	w.quiet = false
	if w.r.IntN(2) == 0 {
		w.addNode(end)
	}
	w.remove(id, end)
	w.awaitRedundancy(end)
}

// loseDisk replaces the disk of a host by an empty one. The host joins as a new node, and the old
// one is removed.
func (w operators) loseDisk(h *host, end time.Time) {
	id := h.id
	if id == "" || !w.awaitRedundancy(end) || h.state == down || h.gone {
		return
	}
	h.kill(true)
	h.replaced++
	h.gone = true // nothing starts it meanwhile
	h.disk = h.newDisk(uint64(h.replaced)<<32 | uint64(h.net.Number()))
	h.id = ""
	w.count("disks lost")
	w.quiet = false
	w.join(h, end)
	w.remove(id, end)
	w.awaitRedundancy(end)
}

// replace takes a host out of the cluster whose node cannot start any more because its disk is corrupt, and adds another one.
func (w operators) replace(h *host) {
	h.gone = true
	for w.operating {
		time.Sleep(time.Second)
	}
	w.operating = true
	defer func() { w.operating = false }()
	w.leave(h)
	w.count("hosts replaced for a corrupt disk")
	end := time.Now().Add(operatorDone)
	w.addNode(end)
	w.remove(h.id, end)
}

// leave takes a host out of the cluster.
func (w operators) leave(h *host) {
	w.hosts = slices.DeleteFunc(slices.Clone(w.hosts), func(o *host) bool { return o == h })
}

// remove removes a node from the cluster, by force if it still counts as alive. Sometimes another host is cut off meanwhile, and learns of it
// later from nodes that know.
func (w operators) remove(id string, end time.Time) {
	if o := w.hosts[w.r.IntN(len(w.hosts))]; w.r.IntN(2) == 0 && o != w.leader && o.id != id {
		w.trace.addf("nemesis", "%s is cut off while %s is removed", o.name, id)
		links := w.cutOff(o)
		defer func() {
			time.Sleep(removedUnknown)
			w.reconnect(links)
		}()
	}
	err := w.ask(end.Add(operatorDone), func(ctx context.Context, c *client.Client) error {
		err := c.Nodes().Remove(ctx, id, true)
		if errors.Is(err, client.ErrNodeNotFound) {
			return nil // by an attempt whose answer was lost
		}
		return err
	})
	if err != nil {
		w.fail("SW1 service: node %s cannot be removed: %v", id, err)
	}
	w.removed = append(w.removed, id)
}

// removedUnknown is how long a host that was cut off does not learn of the removal of a node.
const removedUnknown = 3 * time.Second

// cutOff cuts a host from all others, and returns the links.
func (w operators) cutOff(h *host) (links [][2]*simnet.Host) {
	for _, o := range w.hosts {
		if o != h {
			links = append(links, [2]*simnet.Host{h.net, o.net}, [2]*simnet.Host{o.net, h.net})
		}
	}
	for _, c := range links {
		w.net.Cut(c[0], c[1])
	}
	return links
}

// reconnect ends cutOff.
func (w operators) reconnect(links [][2]*simnet.Host) {
	for _, c := range links {
		w.net.Heal(c[0], c[1])
	}
}

// await polls a condition until it holds or the time ends.
func (w operators) await(end time.Time, condition func(ctx context.Context, c *client.Client) error) bool {
	for time.Now().Before(end) {
		if w.askOnce(w.r.IntN(1<<16), condition) == nil {
			return true
		}
		time.Sleep(time.Second)
	}
	return false
}

// awaitRedundancy waits until everything has all replicas, several times in a row, so that all nodes
// have noticed the last change of the members. No fault begins meanwhile.
func (w operators) awaitRedundancy(end time.Time) bool {
	w.quiet = true
	for range 3 {
		if !w.await(end, w.redundant) {
			w.count("waits for redundancy in vain")
			return false
		}
		time.Sleep(3 * time.Second)
	}
	// The status counts only what the nodes know. The check asks for each replica.
	return w.await(end, func(ctx context.Context, c *client.Client) error {
		bad, err := fsck(ctx, c, false)
		if err == nil && len(bad) > 0 {
			err = fmt.Errorf("%+v", bad[0])
		}
		return errors.Join(err, w.redundant(ctx, c))
	})
}

// redundant returns an error unless all extents and logs have all replicas, and all voters are alive: those of the host that is absent
// do not count.
func (w operators) redundant(ctx context.Context, c *client.Client) error {
	s, err := c.BlockStore().Status(ctx)
	if err != nil {
		return err
	}
	if len(s.Nodes) != len(w.hosts) {
		return fmt.Errorf("%d nodes in the block store, want %d", len(s.Nodes), len(w.hosts))
	}
	for i := range s.Nodes {
		switch n := &s.Nodes[i]; {
		case w.absent != nil && n.Node == w.absent.id:
		case n.Error != "":
			return fmt.Errorf("%s: %s", n.Name, n.Error)
		case !n.Known || n.Under > 0 || n.OneLeft > 0:
			return fmt.Errorf("%s: known %t, %d extents under-replicated", n.Name, n.Known, n.Under)
		case n.Logs > 0 && n.LogReplicas < s.ReplicationFactor:
			return fmt.Errorf("%s: a commit log has %d replicas", n.Name, n.LogReplicas)
		case n.LogUnder > 0:
			return fmt.Errorf("%s: %d commit log extents under-replicated", n.Name, n.LogUnder)
		}
	}
	r, err := c.Nodes().RaftStatus(ctx)
	if err != nil {
		return err
	}
	voters := 0
	for i := range r.Servers {
		v := &r.Servers[i]
		if !v.Alive && !v.Leader && w.absent == nil {
			return fmt.Errorf("voter %s is not alive", v.Name)
		}
		if v.Voter {
			voters++
		}
	}
	if voters < min(5, len(w.hosts)) {
		return fmt.Errorf("%d voters", voters)
	}
	return nil
}
