package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

var (
	// ErrChanging means that another membership change is in progress; nothing was changed.
	ErrChanging = errors.New("another membership change is in progress")

	// ErrNotMember means that the group has no server with that id.
	ErrNotMember = errors.New("not a member of the group")

	// ErrIsLeader means that the leader was asked to remove itself. Leadership must be transferred
	// first. Nothing was changed.
	ErrIsLeader = errors.New("this server leads the group: transfer leadership first")

	// ErrQuorum means that a membership change would leave fewer live voters than a quorum; nothing
	// was changed. The error is a *QuorumError.
	ErrQuorum = errors.New("too few live voters")

	// ErrBehind means that a server has not caught up with the log. The error is a *BehindError.
	ErrBehind = errors.New("server has not caught up")
)

// QuorumError describes the state that a membership change would have caused. It is an ErrQuorum.
type QuorumError struct {
	Voters int // number of voters after the change
	Live   int // voters that answered recently
	Quorum int // live voters required
}

func (e *QuorumError) Error() string {
	return fmt.Sprintf("only %d of %d voters would be live, and a quorum is %d", e.Live, e.Voters, e.Quorum)
}

// Is makes the error an ErrQuorum.
func (e *QuorumError) Is(target error) bool { return target == ErrQuorum }

// BehindError describes how far a server lags, or how long it has been silent, that was to become a
// voter or the leader. It is an ErrBehind.
type BehindError struct {
	ID string
	// Match and Last are the newest entry of the server and of the log. They are zero if the server
	// has confirmed no entry to this leader.
	Match, Last uint64
	// Silent is set if the server has not answered recently. Contact is the time since it last
	// answered, negative if it never did.
	Silent  bool
	Contact time.Duration
}

func (e *BehindError) Error() string {
	switch {
	case e.Silent && e.Contact < 0:
		return e.ID + " has not answered this leader"
	case e.Silent:
		return fmt.Sprintf("%s has not answered for %v", e.ID, e.Contact.Round(10*time.Millisecond))
	case e.Match == 0:
		return e.ID + " has not confirmed a log entry to this leader"
	}
	return fmt.Sprintf("%s has caught up to log entry %d of %d", e.ID, e.Match, e.Last)
}

// Is makes the error an ErrBehind.
func (e *BehindError) Is(target error) bool { return target == ErrBehind }

// Member is a server of the group as the leader sees it.
type Member struct {
	ID    string
	Voter bool
	// Leader is set for the leader, as far as this server knows.
	Leader bool
	// Contact is the time since the server last answered this one; zero for this server itself,
	// negative if it never answered.
	Contact time.Duration
	// Match is the newest entry that the server is known to have, and Lag the number of entries
	// that it lacks. Both are zero on servers other than the leader.
	Match, Lag uint64
}

// Members returns the servers of the group's latest configuration, which may not be committed yet.
// Only the leader knows Match and Lag of the other servers. Members does not block.
func (g *Group) Members() []Member {
	_, leads, term, _ := g.lead.state()
	_, leader := g.raft.LeaderWithID()
	last := g.raft.LastIndex()
	var members []Member
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		m := Member{ID: string(s.ID), Voter: s.Suffrage == raft.Voter, Leader: s.ID == leader}
		if m.ID == g.cfg.ID {
			m.Match = last
			members = append(members, m)
			continue
		}
		c := g.contacts.get(m.ID)
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
func (g *Group) live(m Member) bool {
	return m.ID == g.cfg.ID || m.Contact >= 0 && m.Contact < 2*g.cfg.HeartbeatTimeout
}

// checkQuorum returns a *QuorumError if the change would leave fewer live voters than a quorum. The
// new voters are those of members without removed and with added, which is live; either may be
// empty.
func (g *Group) checkQuorum(members []Member, removed, added string) error {
	var e QuorumError
	for _, m := range members {
		if m.ID == removed || !m.Voter && m.ID != added {
			continue
		}
		e.Voters++
		if g.live(m) {
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
func (g *Group) change(ctx context.Context, what, id string, begin func(members []Member, m *Member) (raft.Future, error)) error {
	err := g.tryChange(ctx, id, begin)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	g.log.Info("raftmeta membership changed", "change", what, "server", id)
	return nil
}

func (g *Group) tryChange(ctx context.Context, id string, begin func(members []Member, m *Member) (raft.Future, error)) error {
	if id == "" || len(id) > idBytesMax {
		return fmt.Errorf("server id has %d bytes, not 1 to %d", len(id), idBytesMax)
	}
	if !g.changing.TryLock() {
		return ErrChanging
	}
	if _, err := g.verify(ctx); err != nil {
		g.changing.Unlock()
		return err
	}
	members := g.Members()
	var m *Member
	for i := range members {
		if members[i].ID == id {
			m = &members[i]
		}
	}
	done := make(chan error, 1)
	// The future is awaited in a goroutine that Close waits for, because raft's futures have no
	// deadline.
	g.start(func() {
		defer g.changing.Unlock()
		future, err := begin(members, m)
		if err == nil && future != nil {
			err = g.changeError(future.Error())
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-g.failed:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, g.usable())
	}
}

// changeError converts raft's error for a membership change.
func (g *Group) changeError(err error) error {
	if errors.Is(err, raft.ErrEnqueueTimeout) {
		return ErrChanging
	}
	return g.proposeError(err)
}

// AddNonvoter adds a server that receives the log and has no vote. It does nothing if the server is
// a member already, voter or not. The change is committed when AddNonvoter returns nil. The error
// is ErrChanging, ErrNotReady, a *NotLeaderError, ErrClosed or ctx's, and nothing was changed; or
// ErrOutcomeUnknown, and the change may still commit.
func (g *Group) AddNonvoter(ctx context.Context, id string) error {
	return g.change(ctx, "add", id, func(_ []Member, m *Member) (raft.Future, error) {
		if m != nil {
			return nil, nil
		}
		return g.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, changeTimeout), nil
	})
}

// promotePoll is the interval at which Promote checks the lag of a server.
const promotePoll = 20 * time.Millisecond

// Promote gives a member a vote once it has caught up. It waits for that until ctx ends; the error
// is then a *BehindError and ctx's. A *QuorumError means that too few voters would be live, and
// nothing was changed. Other errors are ErrNotMember and those of AddNonvoter.
func (g *Group) Promote(ctx context.Context, id string) error {
	for {
		behind := g.behind(id)
		if behind == nil {
			break
		}
		select {
		case <-time.After(promotePoll):
		case <-ctx.Done():
			return fmt.Errorf("promote %s: %w: %w", id, behind, ctx.Err())
		case <-g.closing:
			return fmt.Errorf("promote %s: %w", id, ErrClosed)
		}
	}
	return g.change(ctx, "promote", id, func(members []Member, m *Member) (raft.Future, error) {
		switch {
		case m == nil:
			return nil, ErrNotMember
		case m.Voter:
			return nil, nil
		case !g.live(*m) || m.Lag > entriesPerWrite:
			return nil, behindError(m, g.live(*m))
		}
		if err := g.checkQuorum(members, "", id); err != nil {
			return nil, err
		}
		return g.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, changeTimeout), nil
	})
}

// behind returns the lag of a server without a vote. It returns nil if the lag is at most one
// message, if the server is a voter or not a member, or if this server does not lead.
func (g *Group) behind(id string) *BehindError {
	if _, leads, term, _ := g.lead.state(); !leads || term == 0 {
		return nil
	}
	for _, m := range g.Members() {
		if m.ID == id && !m.Voter && (!g.live(m) || m.Match == 0 || m.Lag > entriesPerWrite) {
			return behindError(&m, g.live(m))
		}
	}
	return nil
}

func behindError(m *Member, live bool) *BehindError {
	return &BehindError{ID: m.ID, Match: m.Match, Last: m.Match + m.Lag, Silent: !live, Contact: m.Contact}
}

// Remove removes a server from the group. It does nothing if the server is not a member. A
// *QuorumError means that too few voters would be live, and nothing was changed. ErrIsLeader means
// that id is this server; nothing was changed. Other errors are those of AddNonvoter.
func (g *Group) Remove(ctx context.Context, id string) error {
	return g.change(ctx, "remove", id, func(members []Member, m *Member) (raft.Future, error) {
		switch {
		case m == nil:
			return nil, nil
		case id == g.cfg.ID:
			return nil, ErrIsLeader
		}
		if err := g.checkQuorum(members, id, ""); m.Voter && err != nil {
			return nil, err
		}
		return g.raft.RemoveServer(raft.ServerID(id), 0, changeTimeout), nil
	})
}

// TransferLeadership transfers leadership to the voter with that id, or if id is empty, to the
// voter with the least lag. Proposals are rejected meanwhile. It returns nil once this server no
// longer leads; a voter other than id may have been elected. The error is ErrNotMember, ErrQuorum
// if there is no other live voter, raft's, or one of AddNonvoter's.
func (g *Group) TransferLeadership(ctx context.Context, id string) error {
	target := id
	if target == "" {
		target = g.successor()
	}
	if target == "" {
		return fmt.Errorf("transfer leadership: %w", ErrQuorum)
	}
	return g.change(ctx, "transfer leadership to", target, func(_ []Member, m *Member) (raft.Future, error) {
		switch {
		case m == nil || !m.Voter:
			return nil, ErrNotMember
		case m.ID == g.cfg.ID:
			return nil, nil
		case !g.live(*m):
			return nil, behindError(m, g.live(*m))
		}
		return g.raft.LeadershipTransferToServer(raft.ServerID(target), raft.ServerAddress(target)), nil
	})
}

// successor returns the live voter with the least lag, or an empty string.
func (g *Group) successor() string {
	var best Member
	for _, m := range g.Members() {
		if m.Voter && m.ID != g.cfg.ID && g.live(m) && (best.ID == "" || m.Lag < best.Lag) {
			best = m
		}
	}
	return best.ID
}
