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

// SetMembers replaces the members known to gossip, dead or alive, without this node. They are
// listed in hellos and stored in the file of peers. The error is the file's.
func (f *Service) SetMembers(members []Peer, raftEpoch uint64) error {
	f.mu.Lock()
	f.mu.members.list(members)
	f.mu.raftEpoch = max(f.mu.raftEpoch, raftEpoch)
	f.mu.Unlock()
	return f.remember()
}

// remember writes the known members to the file of peers.
func (f *Service) remember() error {
	f.mu.Lock()
	cluster, all := f.mu.cluster, f.mu.members.known()
	f.mu.Unlock()
	if cluster == "" {
		return nil
	}
	return f.file.write(cluster, all)
}

// ForgetRemoved drops the members that Config.Removed now reports, from the file of peers, too. The
// error is the file's.
func (f *Service) ForgetRemoved() error {
	f.mu.Lock()
	f.mu.members.forgetRemoved()
	f.mu.Unlock()
	return f.remember()
}

// SetGossip sets the address of this node's gossip, which Config.Self lacks, and join, which has
// gossip contact a member. Join is called for each member that calls from an address that
// SetMembers did not name. It may block.
func (f *Service) SetGossip(addr string, join func(context.Context, Peer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.members.self.Gossip, f.mu.join = addr, join
}

// Seeds returns the gossip addresses of known and remembered members, for gossip to try.
func (f *Service) Seeds() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.members.gossip()
}

// sample returns at most limit of the peers, at random.
func sample(all []Peer, limit int) []Peer {
	if len(all) <= limit {
		return all
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:limit]
}

const (
	// findEvery is the maximum pause between hellos to members that gossip does not know, and
	// findFirst the first one. The pause doubles in between: nodes of a cluster that restarts at
	// new addresses come up one after the other.
	findEvery = 15 * time.Second
	findFirst = 500 * time.Millisecond
	// findMax bounds the hellos of one round.
	findMax = 16
)

// findMembers looks for members that gossip does not know, until Close.
func (f *Service) findMembers() {
	for every := findFirst; ; every = min(2*every, findEvery) {
		seeds := resolve(f.ctx, f.join)
		f.mu.Lock()
		addrs := f.mu.members.targets(seeds)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		for _, addr := range addrs[:min(len(addrs), findMax)] {
			f.sendHelloLocked(addr)
		}
		lost := every == findEvery && len(addrs) > 0 && len(f.mu.members.listed) == 0 && len(f.mu.members.discovered) == 0
		f.mu.Unlock()
		if lost && f.rejections.first("", errNoMembers) {
			f.log.Warn("no other member answers at its last address; if members have new addresses, restart this node with --join and one of them",
				"addresses", strings.Join(addrs[:min(len(addrs), findMax)], ", "))
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

// errNoMembers is the log limiter's key for the warning that no member answers.
var errNoMembers = errors.New("no member answers")

// targets returns the addresses at which a restarted member looks for others.
func (f *Service) targets() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.members.targets(f.join)
}

// seedLocked reports whether the address is one to join.
func (f *Service) seedLocked(addr string) bool {
	return slices.Contains(f.join, addr) || slices.Contains(f.mu.machine.seeds, addr)
}

// Waiting describes what the node waits for before it belongs to a cluster.
func (f *Service) Waiting() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, at := f.mu.machine, strings.Join(f.join, ", ")
	switch {
	case f.mu.cluster != "" && f.cfg.Cluster != "":
		return fmt.Sprintf("another node of cluster %s to answer at the addresses of %d remembered peers or at %q", f.mu.cluster, len(f.mu.members.remembered), at)
	case f.mu.cluster != "":
		return "nothing"
	case m.seen != "":
		if f.mu.notAdmitted != nil {
			return fmt.Sprintf("cluster %s to admit it; last error: %v", m.seen, f.mu.notAdmitted)
		}
		return fmt.Sprintf("cluster %s to admit it", m.seen)
	case m.state.Promise != nil:
		return fmt.Sprintf("node %s, last at %s, which it has promised to let found the cluster: start that node. "+
			"If its data is lost, restart all nodes that have no cluster yet with empty data folders", m.state.Promise.Founder, m.state.Promise.RPC)
	case m.expect == 0:
		return fmt.Sprintf("a cluster to answer at %s", at)
	}
	return m.waiting(at)
}

// waiting describes what a node waits for that is to form a cluster with others.
func (m *machine) waiting(at string) string {
	var with, without, pending []string
	for _, p := range slices.SortedFunc(maps.Values(m.known), func(a, b *fresh) int { return cmp.Compare(a.ID, b.ID) }) {
		text := nodeText(p.Peer) + " at " + p.RPC
		if m.alive(p) {
			with = append(with, text)
		} else {
			without = append(without, text)
		}
		if !m.granted[p.ID] {
			pending = append(pending, text)
		}
	}
	with = append([]string{"this one"}, with...)
	text := fmt.Sprintf("%d nodes to form a cluster; %d are known: %s", m.expect, len(with), strings.Join(with, ", "))
	if m.state.Active {
		text = fmt.Sprintf("promises to let it found a cluster of %d nodes, from %s", m.expect, strings.Join(pending, ", "))
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
		text += fmt.Sprintf("; only %d of the %d addresses to join answer, a majority must: %s", answered, len(m.seeds), at)
	}
	for id, expect := range m.mismatched {
		text += fmt.Sprintf("; node %s expects %d nodes: start all with the same --expect", id, expect)
		break
	}
	return text
}

// Knows reports whether another member with that id is known.
func (f *Service) Knows(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.mu.members.known(), func(p Peer) bool { return p.ID == id })
}
