package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/storage"
)

// Invitation is a committed log entry of the leader that invites a server to its group, made when the
// server was not a member. The server may have been a member before, with another log: it may have
// voted and acknowledged entries that it no longer knows, and older configurations may name it as a
// voter, even as the only one. All of that was before the entry. So until the server's log has the
// entry, the server gives no vote, calls no election, and follows no leader of an earlier term.
type Invitation struct{ Index, Term uint64 }

// later reports whether i was made after o.
func (i Invitation) later(o Invitation) bool {
	return i.Term > o.Term || i.Term == o.Term && i.Index > o.Index
}

// invited is this server's invitation.
type invited struct {
	// pending is the invitation whose entry this server does not have yet; nil if there is none.
	pending atomic.Pointer[Invitation]
	// mu guards the field in it. Held across I/O.
	mu struct {
		sync.Mutex
		stored Invitation // zero if there is none
	}
}

// oldest returns the earliest term whose leader may send entries and snapshots.
func (i *invited) oldest() uint64 {
	if p := i.pending.Load(); p != nil {
		return p.Term
	}
	return 0
}

// check returns an error for entries and snapshots of a leader that this server must not follow.
func (i *invited) check(request any) error {
	oldest := i.oldest()
	term := oldest
	switch r := request.(type) {
	case *raft.AppendEntriesRequest:
		term = r.Term
	case *raft.InstallSnapshotRequest:
		term = r.Term
	}
	if term < oldest {
		return fmt.Errorf("the leader of term %d was superseded before this server was invited in term %d", term, oldest)
	}
	return nil
}

// errInvited is the answer of a server that must not vote yet.
var errInvited = errors.New("this server does not have the log yet as of its invitation")

// mayVote returns an error if request concerns an election in which this server must not take part.
func (i *invited) mayVote(request any) error {
	switch request.(type) {
	case *raft.RequestVoteRequest, *raft.RequestPreVoteRequest, *raft.TimeoutNowRequest:
		if i.pending.Load() != nil {
			return errInvited
		}
	}
	return nil
}

// Invite returns an invitation for a server that is not a member. It waits, as long as ctx allows, for
// an earlier membership change to be committed. The server must have the invitation, by
// Config.Invitation or Invited, before AddNonvoter adds it. The error is one of AddNonvoter's, or
// ErrMember.
func (g *Group) Invite(ctx context.Context, id string) (Invitation, error) {
	return g.changer.invite(ctx, id)
}

// invite implements Group.Invite.
//
// The index is read before the verification, in the same term, so the entry at that index is
// committed, and it is one of this term because this server has caught up.
func (mc *memberChanger) invite(ctx context.Context, id string) (Invitation, error) {
	for {
		_, _, before, _ := mc.lead.state()
		configured, member := mc.members.find(id)
		index := mc.raft.AppliedIndex()
		term, err := mc.verifier.verify(ctx)
		switch {
		case err != nil:
			return Invitation{}, fmt.Errorf("invite %s: %w", id, err)
		case member:
			return Invitation{}, fmt.Errorf("invite %s: %w", id, ErrMember)
		case term == before && configured <= index:
			return Invitation{Term: term, Index: index}, nil
		}
		select {
		case <-time.After(promotePoll):
		case <-ctx.Done():
			return Invitation{}, fmt.Errorf("invite %s: %w: %w", id, ErrChanging, ctx.Err())
		case <-mc.closing:
			return Invitation{}, fmt.Errorf("invite %s: %w", id, ErrClosed)
		}
	}
}

// Invited records an invitation of this server, durably, unless it has a later one. It does not
// change a server whose log has the entry. The error is a *DiskError.
func (g *Group) Invited(i Invitation) error { return g.admission.invite(i) }

// admission keeps a server out of elections while its invitation is pending.
type admission struct {
	*core
	dir *dataDir
}

// invite implements Group.Invited.
func (a *admission) invite(i Invitation) error {
	a.invited.mu.Lock()
	defer a.invited.mu.Unlock()
	if !i.later(a.invited.mu.stored) {
		return nil
	}
	if err := a.dir.storeInvitation(i); err != nil {
		return fmt.Errorf("store invitation: %w", err)
	}
	a.invited.mu.stored = i
	if a.dir.has(i) {
		return nil
	}
	if earlier := a.invited.pending.Swap(&i); earlier != nil {
		return nil // loop runs
	}
	if err := a.raft.ReloadConfig(a.timeouts(true)); err != nil {
		return fmt.Errorf("stop elections: %w", err)
	}
	a.start(a.loop)
	return nil
}

// never is a heartbeat timeout that does not end. Raft adds up to as much again.
const never = time.Duration(math.MaxInt64 / 4)

// timeouts returns raft's configuration for a server that may call elections, or must not.
func (a *admission) timeouts(pending bool) raft.ReloadableConfig {
	c := a.raft.ReloadableConfig()
	c.HeartbeatTimeout, c.ElectionTimeout = a.cfg.HeartbeatTimeout, a.cfg.ElectionTimeout
	if pending {
		c.HeartbeatTimeout, c.ElectionTimeout = never, never
	}
	return c
}

// loop ends when the log has the entry of the pending invitation. From then on this server
// votes and calls elections.
func (a *admission) loop() {
	tick := time.NewTicker(a.cfg.HeartbeatTimeout / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-a.closing:
			return
		}
		if a.admit() {
			return
		}
	}
}

// admit reports whether no invitation is pending, after it has looked for the entry.
func (a *admission) admit() bool {
	a.invited.mu.Lock()
	defer a.invited.mu.Unlock()
	p := a.invited.pending.Load()
	if p == nil || !a.dir.has(*p) {
		return p == nil
	}
	a.invited.pending.Store(nil)
	if err := a.raft.ReloadConfig(a.timeouts(false)); err != nil {
		a.fail(fmt.Errorf("start elections: %w", err))
	}
	a.log.Info("raftmeta has the log of the group that invited it", "entry", p.Index, "term", p.Term)
	return true
}

// storeInvitation makes an invitation durable. After a crash in between, the server waits for an entry
// that does not exist. No member is affected: the server is not added before it has a later invitation.
func (d *dataDir) storeInvitation(i Invitation) error {
	if err := d.store.SetUint64([]byte(storage.StableInvitationTerm), i.Term); err != nil {
		return err
	}
	return d.store.SetUint64([]byte(storage.StableInvitationIndex), i.Index)
}

// loadInvitation reports whether the directory has an invitation whose entry is not in it.
func (d *dataDir) loadInvitation() (pending bool) {
	i := d.invited.mu.stored
	if i == (Invitation{}) || d.has(i) {
		return false
	}
	d.invited.pending.Store(&i)
	return true
}

// has reports whether the log has the entry of an invitation, or a snapshot covers it. A snapshot
// covers only committed entries, as the invitation's is.
func (d *dataDir) has(i Invitation) bool {
	if end := d.store.SnapshotEnd(); max(d.snapshotIndex, indexOf(end)) >= i.Index {
		return true
	}
	return d.store.Holds(storage.EntryID(i))
}

func indexOf(e *storage.EntryID) uint64 {
	if e == nil {
		return 0
	}
	return e.Index
}
