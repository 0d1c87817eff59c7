package voter

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/steledb/stele/master"
	"github.com/steledb/stele/raftmeta"
)

// ForMaster returns the group for the master.
func (v *Voter) ForMaster() master.Group { return masterGroup{v} }

// masterGroup adapts the Raft group for the master. It implements master.Group.
type masterGroup struct{ v *Voter }

var errNoVoter = errors.New("this node is not a voter of the lock service")

// Leads implements master.Group.
func (m masterGroup) Leads() (bool, <-chan struct{}) {
	group, changed := m.v.Group()
	if group == nil {
		return false, changed
	}
	return group.Leads()
}

// silence returns how long a server of the group has not answered this leader.
func (v *Voter) silence(m raftmeta.Member) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.Contact >= 0 {
		delete(v.mu.unheard, m.ID)
		return m.Contact
	}
	since, ok := v.mu.unheard[m.ID]
	if !ok {
		since = time.Now()
		v.mu.unheard[m.ID] = since
	}
	return time.Since(since)
}

// Voters implements master.Group.
func (m masterGroup) Voters() []master.Voter {
	group, _ := m.v.Group()
	if group == nil {
		return nil
	}
	var all []master.Voter
	for _, x := range group.Members() {
		all = append(all, master.Voter{ID: x.ID, Staged: !x.Voter, CaughtUp: caughtUp(x), Leader: x.Leader, Silent: m.v.silence(x)})
	}
	m.v.forget(all)
	return all
}

// forget removes the record of servers that are not in the group. They may join again.
func (v *Voter) forget(all []master.Voter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.mu.unheard, func(id string, _ time.Time) bool {
		return !slices.ContainsFunc(all, func(x master.Voter) bool { return x.ID == id })
	})
}

// caughtUpLag is the most entries that a server may lack to be promoted: Promote waits for the rest.
const caughtUpLag = 1000

func caughtUp(m raftmeta.Member) bool { return m.Match > 0 && m.Lag < caughtUpLag }

func (m masterGroup) do(f func(*raftmeta.Group) error) error {
	group, _ := m.v.Group()
	if group == nil {
		return errNoVoter
	}
	return f(group)
}

// Invite implements master.Group.
func (m masterGroup) Invite(ctx context.Context, id string) (i master.Invitation, err error) {
	err = m.do(func(g *raftmeta.Group) error {
		made, err := g.Invite(ctx, id)
		i = master.Invitation(made)
		return err
	})
	return i, err
}

// Stage implements master.Group.
func (m masterGroup) Stage(ctx context.Context, id string) error {
	return m.do(func(g *raftmeta.Group) error { return g.AddNonvoter(ctx, id) })
}

// Promote implements master.Group.
func (m masterGroup) Promote(ctx context.Context, id string) error {
	return m.do(func(g *raftmeta.Group) error { return g.Promote(ctx, id) })
}

// Remove implements master.Group.
func (m masterGroup) Remove(ctx context.Context, id string) error {
	return m.do(func(g *raftmeta.Group) error { return g.Remove(ctx, id) })
}

// StepDown implements master.Group.
func (m masterGroup) StepDown(ctx context.Context, to string) error {
	return m.do(func(g *raftmeta.Group) error { return g.TransferLeadership(ctx, to) })
}
