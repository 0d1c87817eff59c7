package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
)

func (a *app) nodeDrainCommand() *cobra.Command {
	noWait := false
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Have a node hold nothing that is needed, so that it can be stopped",
		Long: `Have a node hold nothing that the cluster needs, and wait until that is so: the
tablets on it are moved to other nodes, its vote in the lock service goes to another
node, if there is one that can take it, and what it holds of the block store is copied
to others. Then it is safe to stop it. Tablets are served all the while; each is away
for the moment that its move takes.

Parts of commit logs stay until the tablets that need them have written out what they
have in memory. When none is left the node can be unplugged for good: the command says
which it is, and "stele blob status" tells later.

The wish outlives restarts of the node; "stele node undrain" takes it back. It may
be interrupted: the drain goes on, and the same command waits again.

It waits for as long as --timeout says, and without that until nothing has changed for
five minutes. Then it says what the node still holds. So it does when for half a minute
no other node is there that could take it.

Exit codes: 0 the node is drained, 1 no other node can do its work, 7 it is not drained
in time.`,
		Example: `  stele node drain n3
  stele node drain n3 --timeout 5m
  stele node drain n3 --no-wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, patient, func(ctx context.Context, c *client.Client) error {
				n, err := a.drain(ctx, c, args[0])
				if err != nil {
					return err
				}
				if noWait {
					return a.drained(n, false, fmt.Sprintf(`node %s drains; "stele status" tells what it still serves, "stele node show %s" whether it still votes`, nodeName(n), args[0]))
				}
				return a.awaitDrain(ctx, n, func() (*drainSight, error) { return lookAtDrain(ctx, c, n.ID) })
			})
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "only ask for it, and do not wait until it is so")
	return cmd
}

// drain asks for a node to be drained. The last one that is left cannot be: it would
// wait for ever.
func (a *app) drain(ctx context.Context, c *client.Client, name string) (*client.NodeInfo, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	n, err := api.FindNode(nodes, name)
	if err != nil {
		return nil, err
	}
	if othersThan(n, nodes) == 0 {
		return nil, &fault{code: exitError, hint: "start another node first; to stop the whole cluster just stop its nodes, which loses nothing",
			err: fmt.Errorf("there is no other node that could do the work of node %s", nodeName(n))}
	}
	return n, c.DrainNode(ctx, n.ID)
}

// othersThan counts the nodes that can take what a node has.
func othersThan(n *client.NodeInfo, nodes []client.NodeInfo) (others int) {
	for _, o := range nodes {
		if o.ID != n.ID && o.State == api.NodeAlive && !o.Draining {
			others++
		}
	}
	return others
}

// A drain is looked at every drainPoll, or less often if that takes long: a look reads METADATA. drainStall is how long nothing may
// change for who gave it no time, drainAlone how long there may be no other node: one that restarts is back by then.
const (
	drainPoll  = 500 * time.Millisecond
	drainStall = 5 * time.Minute
	drainAlone = 30 * time.Second
)

// drainSight is how a drain is at one moment.
type drainSight struct {
	node    *client.NodeInfo
	store   *client.NodeStore // none if the node does not run or has yet to tell
	tablets int64             // that it serves; -1 if that is not known
	others  int               // nodes that can take them
	needed  string            // what the node is still needed for; empty for nothing
}

// awaitDrain waits until the node has no vote, is not master, and has no tablets and no extents of blobs, and tells
// what may be done with it then.
func (a *app) awaitDrain(ctx context.Context, n *client.NodeInfo, look func() (*drainSight, error)) error {
	start := time.Now()
	_, bounded := ctx.Deadline()
	last := &drainSight{node: n, tablets: -1, others: 1, needed: "nothing was seen of it yet"}
	var told atomic.Pointer[string]
	told.Store(&last.needed)
	stop := a.startTicker(func() string {
		return fmt.Sprintf("draining %s, %v: %s", nodeName(n), time.Since(start).Round(time.Second), *told.Load())
	})
	defer stop()
	changed, accompanied, said := start, start, time.Time{}
	for {
		began := time.Now()
		now, err := look()
		switch {
		case ctx.Err() != nil:
			return a.undrained(ctx.Err(), last, start)
		case err != nil:
			return withHint(err, drainGoesOn(n))
		case now.needed == "":
			stop()
			return a.reportDrain(now)
		}
		if now.needed != last.needed {
			changed = time.Now()
		}
		if now.others > 0 {
			accompanied = time.Now()
		}
		last = now
		told.Store(&now.needed)
		if !a.errTTY && changed.After(said) && time.Since(said) >= progressLines {
			said = time.Now()
			a.talk("draining %s: %s", nodeName(n), now.needed)
		}
		switch {
		case time.Since(accompanied) >= drainAlone:
			return a.undrained(errDrainAlone, last, start)
		case !bounded && time.Since(changed) >= drainStall:
			return a.undrained(errDrainStalls, last, start)
		}
		if wait(ctx, max(drainPoll, 4*time.Since(began))) != nil {
			return a.undrained(ctx.Err(), last, start)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Why nobody waits for a drain any more, besides that the time is up.
var (
	errDrainAlone  = errors.New("no other node is there that could take it")
	errDrainStalls = fmt.Errorf("nothing has changed for %v", drainStall)
)

// undrained tells what a node still has whose drain is not waited for any more.
func (a *app) undrained(why error, last *drainSight, start time.Time) error {
	n := last.node
	if errors.Is(why, context.Canceled) {
		return withHint(why, drainGoesOn(n))
	}
	if a.json {
		note := drainNote(last)
		note.Done = false
		if err := a.printJSON(note); err != nil {
			return err
		}
	}
	f := &fault{code: exitTimeout, hint: drainGoesOn(n)}
	if last.tablets != 0 {
		f.hint = `"stele status" says what keeps tablets from being moved; ` + f.hint
	}
	after := time.Since(start).Round(time.Second)
	f.err = fmt.Errorf("node %s is not drained after %v: %s", nodeName(n), after, last.needed)
	switch {
	case errors.Is(why, errDrainAlone):
		f.code, f.hint = exitError, "start another node, or undrain one; "+drainGoesOn(n)
		f.err = fmt.Errorf("%w, and %w", f.err, why)
	case errors.Is(why, errDrainStalls):
		f.err = fmt.Errorf("%w, and %w", f.err, why)
	}
	return f
}

// drainGoesOn is the hint for who waits no longer.
func drainGoesOn(n *client.NodeInfo) string {
	return fmt.Sprintf(`the drain goes on: "stele node drain %[1]s" waits again, "stele node undrain %[1]s" takes it back`, nodeName(n))
}

// lookAtDrain finds out what a node is still needed for.
func lookAtDrain(ctx context.Context, c *client.Client, id string) (*drainSight, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	n, err := api.FindNode(nodes, id)
	if err != nil {
		return nil, err
	}
	x := &drainSight{node: n, others: othersThan(n, nodes)}
	var unknown error
	if x.tablets, unknown = tabletsOn(ctx, c, n, nodes); unknown != nil {
		x.tablets = -1
	}
	yet := "" // of a node that is needed for nothing else
	switch {
	case !n.Draining: // the wish has not come round yet, or was taken back
		yet = "it is not seen as draining"
	case n.State == api.NodeAlive:
		s, err := c.StoreStatus(ctx)
		if err != nil {
			return nil, err
		}
		x.store, yet = drainStore(s, id)
	}
	x.needed = orElse(neededFor(x, unknown), yet)
	return x, nil
}

// neededFor says what a node is still needed for, empty for nothing; unknown is why its tablets are not known.
func neededFor(x *drainSight, unknown error) string {
	var still []string
	if x.node.Master {
		still = append(still, "is the master")
	}
	switch {
	case x.node.Leader:
		still = append(still, "leads the lock service")
	case x.node.Voter:
		still = append(still, "votes in the lock service")
	}
	switch {
	case unknown != nil:
		still = append(still, fmt.Sprintf("may serve tablets (where they are is not known: %v)", unknown))
	case x.tablets > 0:
		still = append(still, "serves "+plural(x.tablets, "tablet"))
	}
	if x.store != nil && x.store.DrainExtents > 0 {
		still = append(still, "has "+plural(x.store.DrainExtents, "extent"))
	}
	if len(still) == 0 {
		return ""
	}
	last := len(still) - 1
	if last > 0 {
		still = []string{strings.Join(still[:last], ", "), still[last]}
	}
	return "it still " + strings.Join(still, " and ")
}

// drainStore returns a node's part of the block store, or why it does not tell of that yet.
func drainStore(s *client.StoreStatus, id string) (*client.NodeStore, string) {
	i := slices.IndexFunc(s.Nodes, func(x client.NodeStore) bool { return x.Node == id })
	switch {
	case i < 0:
		return nil, ""
	case s.Nodes[i].Error != "":
		return nil, "it does not tell what it still has: " + s.Nodes[i].Error
	case !s.Nodes[i].Leaving:
		return nil, "it has yet to look at what it has"
	}
	return &s.Nodes[i], ""
}

// tabletsOn counts the tablets of a node: those that METADATA has there, and METADATA's first, which it does not name.
func tabletsOn(ctx context.Context, c *client.Client, n *client.NodeInfo, nodes []client.NodeInfo) (int64, error) {
	held := map[string]int64{}
	if err := (&clusterJSON{}).countTablets(ctx, c, held); err != nil {
		return 0, err
	}
	info, err := c.Describe(ctx, metadata.Name)
	if err != nil {
		return 0, err
	}
	// Nodes tell their names: of two with the same one it cannot be said which has it.
	alike := slices.ContainsFunc(nodes, func(o client.NodeInfo) bool { return o.ID != n.ID && o.Name == n.Name })
	for _, t := range info.Tablets {
		if len(t.Start) == 0 && t.Node == n.Name && !alike {
			held[n.ID]++
		}
	}
	return held[n.ID], nil
}

// drainNote is what --json tells of a drain.
func drainNote(x *drainSight) nodeNote {
	note := nodeNote{ID: x.node.ID, Name: x.node.Name, Done: true, Voter: x.node.Voter}
	if x.tablets >= 0 {
		note.Tablets = &x.tablets
	}
	if x.store != nil {
		note.Extents, note.LogExtents, note.Safe = x.store.DrainExtents, x.store.DrainLogs, &x.store.Safe
	}
	return note
}

// reportDrain says what may be done with a node that has drained.
func (a *app) reportDrain(x *drainSight) error {
	if a.json {
		return a.printJSON(drainNote(x))
	}
	name := nodeName(x.node)
	switch {
	case x.store == nil:
		a.talk(`node %s has no vote and no tablets, and does not run; "stele blob fsck" tells whether all that is needed is on other nodes`, name)
	case x.store.Safe:
		a.talk("node %s has no vote and no tablets, and holds nothing that is needed: it is safe to unplug it for good", name)
	default:
		a.talk("node %s has no vote, no tablets and no extents: it is safe to stop it", name)
		a.talk(`keep its disks: %s on it may still be needed, until "stele blob status" calls it safe to unplug`, plural(x.store.DrainLogs, "commit log extent"))
	}
	return nil
}
