package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// memberChanger changes the members of the group, one at a time.
type memberChanger struct {
	*core
	verifier *verifier
	// changing is held by the change in progress.
	changing sync.Mutex
}

// list returns the servers of the group's latest configuration, which may not be committed yet.
// Only the leader knows Match and Lag of the other servers. list does not block.
func (mc *memberChanger) list() []Member {
	_, leads, term, _ := mc.lead.state()
	leader := mc.leaderID()
	last := mc.raft.LastIndex()
	var members []Member
	for _, s := range mc.raft.GetConfiguration().Configuration().Servers {
		m := Member{ID: string(s.ID), Voter: s.Suffrage == raft.Voter, Leader: string(s.ID) == leader}
		if m.ID == mc.cfg.ID {
			m.Match = last
			members = append(members, m)
			continue
		}
		c := mc.contacts.get(m.ID)
		if m.Contact = -1; !c.at.IsZero() {
			m.Contact = time.Since(c.at)
		}
		if leads && term != 0 && c.matchTerm == term {
			m.Match = c.match
			m.Lag = last - min(last, c.match)
		}
		members = append(members, m)
	}
	return members
}

// live reports whether a member answered recently.
func (mc *memberChanger) live(m Member) bool {
	return m.ID == mc.cfg.ID || m.Contact >= 0 && m.Contact < 2*mc.cfg.HeartbeatTimeout
}

// checkQuorum returns a *QuorumError if the change would leave fewer live voters than a quorum. The
// new voters are those of members without removed and with added, which is live; either may be
// empty.
func (mc *memberChanger) checkQuorum(members []Member, removed, added string) error {
	var e QuorumError
	for _, m := range members {
		if m.ID == removed || !m.Voter && m.ID != added {
			continue
		}
		e.Voters++
		if mc.live(m) {
			e.Live++
		}
	}
	if e.Quorum = e.Voters/2 + 1; e.Live < e.Quorum {
		return &e
	}
	return nil
}

// changeTimeout bounds the wait until raft accepts a membership change. An earlier one must be
// committed first, which may be another leader's.
const changeTimeout = 5 * time.Second

// change makes one membership change, which begin starts if the current members permit it.
// Leadership is verified first.
func (mc *memberChanger) change(ctx context.Context, what, id string, begin func(members []Member, m *Member) (raft.Future, error)) error {
	err := mc.tryChange(ctx, id, begin)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	mc.log.Info("raftmeta membership changed", "change", what, "server", id)
	return nil
}

func (mc *memberChanger) tryChange(ctx context.Context, id string, begin func(members []Member, m *Member) (raft.Future, error)) error {
	if id == "" || len(id) > idBytesMax {
		return fmt.Errorf("server id has %d bytes, not 1 to %d", len(id), idBytesMax)
	}
	if !mc.changing.TryLock() {
		return ErrChanging
	}
	if _, err := mc.verifier.verify(ctx); err != nil {
		mc.changing.Unlock()
		return err
	}
	members := mc.list()
	var m *Member
	for i := range members {
		if members[i].ID == id {
			m = &members[i]
		}
	}
	done := make(chan error, 1)
	// The future is awaited in a goroutine that Close waits for, because raft's futures have no
	// deadline.
	mc.start(func() {
		defer mc.changing.Unlock()
		future, err := begin(members, m)
		if err == nil && future != nil {
			err = mc.changeError(future.Error())
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-mc.failed:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, mc.usable())
	}
}

// changeError converts raft's error for a membership change.
func (mc *memberChanger) changeError(err error) error {
	if errors.Is(err, raft.ErrEnqueueTimeout) {
		return ErrChanging
	}
	return mc.proposeError(err)
}

// addNonvoter implements Group.AddNonvoter.
func (mc *memberChanger) addNonvoter(ctx context.Context, id string) error {
	return mc.change(ctx, "add", id, func(_ []Member, m *Member) (raft.Future, error) {
		if m != nil {
			return nil, nil
		}
		mc.contacts.forget(id)
		return mc.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, changeTimeout), nil
	})
}

// promotePoll is the interval at which Promote checks the lag of a server.
const promotePoll = 20 * time.Millisecond

// promote implements Group.Promote.
func (mc *memberChanger) promote(ctx context.Context, id string) error {
	for {
		behind := mc.behind(id)
		if behind == nil {
			break
		}
		select {
		case <-time.After(promotePoll):
		case <-ctx.Done():
			return fmt.Errorf("promote %s: %w: %w", id, behind, ctx.Err())
		case <-mc.closing:
			return fmt.Errorf("promote %s: %w", id, ErrClosed)
		}
	}
	return mc.change(ctx, "promote", id, func(members []Member, m *Member) (raft.Future, error) {
		switch {
		case m == nil:
			return nil, ErrNotMember
		case m.Voter:
			return nil, nil
		case mc.lags(*m):
			return nil, behindError(m, mc.live(*m))
		}
		if err := mc.checkQuorum(members, "", id); err != nil {
			return nil, err
		}
		return mc.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, changeTimeout), nil
	})
}

// lags reports whether a member without a vote must not get one yet: it does not answer, lacks more
// than one message, or lacks the latest configuration. That configuration names it, and so it has the
// entry of its invitation, without which it would not vote.
func (mc *memberChanger) lags(m Member) bool {
	configured, _ := mc.members.find(m.ID)
	return !mc.live(m) || m.Match < configured || m.Lag > entriesPerWrite
}

// behind returns the lag of a server without a vote. It returns nil if the server does not lag, if it
// is a voter or not a member, or if this server does not lead.
func (mc *memberChanger) behind(id string) *BehindError {
	if _, leads, term, _ := mc.lead.state(); !leads || term == 0 {
		return nil
	}
	for _, m := range mc.list() {
		if m.ID == id && !m.Voter && mc.lags(m) {
			return behindError(&m, mc.live(m))
		}
	}
	return nil
}

func behindError(m *Member, live bool) *BehindError {
	return &BehindError{ID: m.ID, Match: m.Match, Last: m.Match + m.Lag, Silent: !live, Contact: m.Contact}
}

// remove implements Group.Remove.
func (mc *memberChanger) remove(ctx context.Context, id string) error {
	return mc.change(ctx, "remove", id, func(members []Member, m *Member) (raft.Future, error) {
		switch {
		case m == nil:
			return nil, nil
		case id == mc.cfg.ID:
			return nil, ErrIsLeader
		}
		if err := mc.checkQuorum(members, id, ""); m.Voter && err != nil {
			return nil, err
		}
		return mc.raft.RemoveServer(raft.ServerID(id), 0, changeTimeout), nil
	})
}

// transferLeadership implements Group.TransferLeadership.
func (mc *memberChanger) transferLeadership(ctx context.Context, id string) error {
	target := id
	if target == "" {
		target = mc.successor()
	}
	if target == "" {
		return fmt.Errorf("transfer leadership: %w", ErrQuorum)
	}
	return mc.change(ctx, "transfer leadership to", target, func(_ []Member, m *Member) (raft.Future, error) {
		switch {
		case m == nil || !m.Voter:
			return nil, ErrNotMember
		case m.ID == mc.cfg.ID:
			return nil, nil
		case !mc.live(*m):
			return nil, behindError(m, mc.live(*m))
		}
		return mc.raft.LeadershipTransferToServer(raft.ServerID(target), raft.ServerAddress(target)), nil
	})
}

// successor returns the live voter with the least lag, or an empty string.
func (mc *memberChanger) successor() string {
	var best Member
	for _, m := range mc.list() {
		if m.Voter && m.ID != mc.cfg.ID && mc.live(m) && (best.ID == "" || m.Lag < best.Lag) {
			best = m
		}
	}
	return best.ID
}
