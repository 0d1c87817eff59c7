package formation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// SetMembers tells who is a member now, dead or alive, without this node. It is
// what hello answers, and what is remembered on disk. An error is one of the disk.
func (f *Former) SetMembers(members []Peer, raftEpoch uint64) error {
	f.mu.Lock()
	f.mu.members = slices.DeleteFunc(slices.Clone(members), func(p Peer) bool { return p.ID == f.mu.self.ID || f.cfg.Removed(p.ID) })
	f.mu.raftEpoch = max(f.mu.raftEpoch, raftEpoch)
	is := func(p Peer) bool {
		return slices.ContainsFunc(members, func(m Peer) bool { return m.ID == p.ID })
	}
	f.mu.kept = slices.DeleteFunc(f.mu.kept, is)
	maps.DeleteFunc(f.mu.heard, func(_ string, p Peer) bool { return is(p) })
	f.mu.Unlock()
	return f.remember()
}

// remember writes the members that are known to the disk.
func (f *Former) remember() error {
	f.mu.Lock()
	cluster, all := f.mu.cluster, f.knownLocked()
	f.mu.Unlock()
	if cluster == "" {
		return nil
	}
	return f.file.write(cluster, all)
}

// ForgetRemoved drops the members that Config.Removed has begun to report, also on the disk, of which the error is.
func (f *Former) ForgetRemoved() error {
	gone := func(p Peer) bool { return f.cfg.Removed(p.ID) }
	f.mu.Lock()
	f.mu.members = slices.DeleteFunc(f.mu.members, gone)
	f.mu.kept = slices.DeleteFunc(f.mu.kept, gone)
	maps.DeleteFunc(f.mu.heard, func(_ string, p Peer) bool { return gone(p) })
	f.mu.Unlock()
	return f.remember()
}

// SetGossip tells the address of this node's gossip, which Config.Self could not, and
// how it takes in a member: join is called for each that speaks from an address that
// SetMembers did not name, and may take its time.
func (f *Former) SetGossip(addr string, join func(context.Context, Peer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.self.Gossip, f.mu.join = addr, join
}

// Seeds returns gossip addresses of members that were heard of, or are remembered:
// for gossip to try when it does not know them.
func (f *Former) Seeds() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var addrs []string
	for _, p := range f.knownLocked() {
		if p.Gossip != "" && p.Gossip != f.mu.self.Gossip && !slices.Contains(addrs, p.Gossip) {
			addrs = append(addrs, p.Gossip)
		}
	}
	return addrs
}

// knownLocked returns the members that are known: what gossip says goes before what
// was heard, and that before what is remembered.
func (f *Former) knownLocked() []Peer {
	all := slices.Clone(f.mu.members)
	add := func(p Peer) {
		if p.ID != f.mu.self.ID && !slices.ContainsFunc(all, func(o Peer) bool { return o.ID == p.ID }) {
			all = append(all, p)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.mu.heard)) {
		add(f.mu.heard[id])
	}
	for _, p := range f.mu.kept {
		add(p)
	}
	return all
}

// some returns at most limit of the peers, any.
func some(all []Peer, limit int) []Peer {
	if len(all) <= limit {
		return all
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:limit]
}

const (
	// greetEvery is how often a member greets those that gossip does not know, once it
	// has done so a few times since its start, the first greetFirst after it: the nodes
	// of a fleet that comes back with other addresses come one after the other.
	greetEvery = 15 * time.Second
	greetFirst = 500 * time.Millisecond
	// greetMax bounds the greetings of one time.
	greetMax = 16
)

// keepGreeting looks for members that gossip does not know.
func (f *Former) keepGreeting() {
	for every := greetFirst; ; every = min(2*every, greetEvery) {
		seeds := resolve(f.ctx, f.join)
		f.mu.Lock()
		addrs := f.targetsLocked(seeds)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		for _, addr := range addrs[:min(len(addrs), greetMax)] {
			f.greetLocked(addr)
		}
		lost := every == greetEvery && len(addrs) > 0 && len(f.mu.members) == 0 && len(f.mu.heard) == 0
		f.mu.Unlock()
		if lost && f.refusals.first("", errNobody) {
			f.log.Warn("no other node of the cluster answers where it was last; if they have new addresses, start this node with --join and one of them",
				"addresses", strings.Join(addrs[:min(len(addrs), greetMax)], ", "))
		}
		wait := time.NewTimer(every*3/4 + rand.N(every/2))
		select {
		case <-wait.C:
		case <-f.ctx.Done():
			wait.Stop()
			return
		}
	}
}

// errNobody stands for the line that says that no member was heard of.
var errNobody = errors.New("nobody answers")

// targets returns the addresses that a restarted member looks for others at.
func (f *Former) targets() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.targetsLocked(f.join)
}

// targetsLocked returns the addresses to join and those of members that only
// earlier runs or others know.
func (f *Former) targetsLocked(seeds []string) []string {
	addrs := slices.Clone(seeds)
	for _, p := range slices.Concat(f.mu.kept, slices.Collect(maps.Values(f.mu.heard))) {
		if p.RPC != "" && p.RPC != f.mu.self.RPC && !slices.Contains(addrs, p.RPC) {
			addrs = append(addrs, p.RPC)
		}
	}
	return addrs
}

// seedLocked tells whether the operator gave the address.
func (f *Former) seedLocked(addr string) bool {
	return slices.Contains(f.join, addr) || slices.Contains(f.mu.machine.seeds, addr)
}

// Waiting says what the node waits for before it belongs to a cluster.
func (f *Former) Waiting() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, at := f.mu.machine, strings.Join(f.join, ", ")
	switch {
	case f.mu.cluster != "" && f.cfg.Cluster != "":
		return fmt.Sprintf("another node of cluster %s to answer, at the addresses of %d remembered peers or at %q", f.mu.cluster, len(f.mu.kept), at)
	case f.mu.cluster != "":
		return "nothing"
	case m.seen != "":
		return fmt.Sprintf("cluster %s to admit it", m.seen)
	case m.state.Promise != nil:
		return fmt.Sprintf("node %s, last at %s, which it has promised that it may found the cluster: start that node. "+
			"If its data is lost, start all nodes that have no cluster yet anew, with empty data folders", m.state.Promise.Founder, m.state.Promise.RPC)
	case m.expect == 0:
		return fmt.Sprintf("a cluster to answer at %s", at)
	}
	return m.waiting(at)
}

// waiting says what a node waits for that is to form a cluster with others.
func (m *machine) waiting(at string) string {
	var with, without, asked []string
	for _, p := range slices.SortedFunc(maps.Values(m.known), func(a, b *fresh) int { return cmp.Compare(a.ID, b.ID) }) {
		text := nodeText(p.Peer) + " at " + p.RPC
		if m.alive(p) {
			with = append(with, text)
		} else {
			without = append(without, text)
		}
		if !m.granted[p.ID] {
			asked = append(asked, text)
		}
	}
	with = append([]string{"this one"}, with...)
	text := fmt.Sprintf("%d nodes to form a cluster; there are %d: %s", m.expect, len(with), strings.Join(with, ", "))
	if m.state.Active {
		text = fmt.Sprintf("promises to let it found a cluster of %d nodes, from %s", m.expect, strings.Join(asked, ", "))
	}
	if len(without) > 0 {
		text += fmt.Sprintf("; %s do not answer", strings.Join(without, ", "))
	}
	answered := 0
	for _, addr := range m.seeds {
		if m.answered[addr] != "" {
			answered++
		}
	}
	if len(m.seeds) > 0 && 2*answered <= len(m.seeds) {
		text += fmt.Sprintf("; only %d of the %d addresses to join answer, most must: %s", answered, len(m.seeds), at)
	}
	for id, expect := range m.strange {
		text += fmt.Sprintf("; node %s expects %d nodes: give all the same number", id, expect)
		break
	}
	return text
}

// Knows reports whether a member of that id is known, this node not counted.
func (f *Former) Knows(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.knownLocked(), func(p Peer) bool { return p.ID == id })
}
