package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

var (
	// ErrChanging means that another change of the members is under way;
	// nothing was changed.
	ErrChanging = errors.New("another change of the members is under way")

	// ErrNotMember means that the group has no server of that id.
	ErrNotMember = errors.New("no member of the group")

	// ErrIsLeader means that the leader was to remove itself, which it must not:
	// transfer the lead first. Nothing was changed.
	ErrIsLeader = errors.New("this server leads the group")

	// ErrQuorum means that a change of the members would leave fewer live
	// voters than a quorum; nothing was changed. The error is a *QuorumError.
	ErrQuorum = errors.New("too few live voters")

	// ErrBehind means that a server has not caught up with the log. The error
	// is a *BehindError.
	ErrBehind = errors.New("server has not caught up")
)

// QuorumError tells what a change of the members would have left. It is an
// ErrQuorum.
type QuorumError struct {
	Voters int // after the change
	Live   int // of those, the ones that answered lately
	Quorum int // how many of them it takes to go on
}

func (e *QuorumError) Error() string {
	return fmt.Sprintf("of %d voters only %d would be alive, and it takes %d", e.Voters, e.Live, e.Quorum)
}

// Is makes the error an ErrQuorum.
func (e *QuorumError) Is(target error) bool { return target == ErrQuorum }

// BehindError tells how far behind a server is that was to vote. It is an
// ErrBehind.
type BehindError struct {
	ID          string
	Match, Last uint64 // the newest entry that it has, and that there is
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("%s has the log up to entry %d of %d", e.ID, e.Match, e.Last)
}

// Is makes the error an ErrBehind.
func (e *BehindError) Is(target error) bool { return target == ErrBehind }

// Member is a server of the group as the leader sees it.
type Member struct {
	ID    string
	Voter bool
	// Leader is set for the server that leads, as far as this one knows.
	Leader bool
	// Contact is how long ago the server last answered this one; zero for
	// this one itself, negative when it never did.
	Contact time.Duration
	// Match is the newest entry of the log that the server is known to have,
	// and Lag how many it lacks. Only the leader knows; zero elsewhere.
	Match, Lag uint64
}

// Members returns the servers of the group's latest configuration, which a
// change under way may not have committed. Only the leader knows how the others
// fare. It waits for nobody.
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

// live tells whether a member answered lately.
func (g *Group) live(m Member) bool {
	return m.ID == g.cfg.ID || m.Contact >= 0 && m.Contact < 2*g.cfg.HeartbeatTimeout
}

// checkQuorum refuses a change after which the voters are those of members but
// the one removed, and the one added, which is alive, or neither.
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

// changeTimeout bounds the wait until raft takes a change of the members: an
// earlier one must be committed, which may be another leader's.
const changeTimeout = 5 * time.Second

// change makes one change of the members, which begin starts if the members
// are as they should be. It does so with the leader verified.
func (g *Group) change(ctx context.Context, what, id string, begin func(members []Member, m *Member) (raft.Future, error)) error {
	err := g.tryChange(ctx, id, begin)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	g.log.Info("raftmeta changed the members", "change", what, "server", id)
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
	// Raft is waited for in a goroutine that Close waits for: a future of
	// raft's has no deadline.
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

// changeError turns raft's error on a change of the members into ours.
func (g *Group) changeError(err error) error {
	if errors.Is(err, raft.ErrEnqueueTimeout) {
		return ErrChanging
	}
	return g.proposeError(err)
}

// AddNonvoter adds a server that receives the log and has no vote. It does
// nothing if the group has it already, voter or not. The change is committed
// when AddNonvoter returns nil. The error is ErrChanging, ErrNotReady, a
// *NotLeaderError, ErrClosed or ctx's, and nothing was changed; or it is
// ErrOutcomeUnknown: the change may still commit.
func (g *Group) AddNonvoter(ctx context.Context, id string) error {
	return g.change(ctx, "add", id, func(_ []Member, m *Member) (raft.Future, error) {
		if m != nil {
			return nil, nil
		}
		return g.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, changeTimeout), nil
	})
}

// promotePoll is how often Promote looks how far a server has come.
const promotePoll = 20 * time.Millisecond

// Promote gives a server that the group has a vote, once it has caught up: it
// waits for that as long as ctx lets it, and the error is then a *BehindError
// that is ctx's as well. A *QuorumError says that too few voters would be alive
// then, and nothing was changed. Other errors are ErrNotMember and those of
// AddNonvoter.
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
			return nil, &BehindError{id, m.Match, m.Match + m.Lag}
		}
		if err := g.checkQuorum(members, "", id); err != nil {
			return nil, err
		}
		return g.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(id), 0, changeTimeout), nil
	})
}

// behind returns how far behind a server without a vote is; nil when it has
// caught up but for one message, or that is not the question.
func (g *Group) behind(id string) *BehindError {
	if _, leads, term, _ := g.lead.state(); !leads || term == 0 {
		return nil
	}
	for _, m := range g.Members() {
		if m.ID == id && !m.Voter && (!g.live(m) || m.Match == 0 || m.Lag > entriesPerWrite) {
			return &BehindError{id, m.Match, m.Match + m.Lag}
		}
	}
	return nil
}

// Remove removes a server from the group. It does nothing if the group does not
// have it. A *QuorumError says that too few voters would be alive then, and
// nothing was changed; so does ErrIsLeader for this server. Other errors are
// those of AddNonvoter.
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

// TransferLeadership gives the lead to the voter of that id, or with an empty
// one to the voter that is least behind. No change is taken meanwhile. It
// returns nil when this server no longer leads; another may have won than was
// named. The error is ErrNotMember, ErrQuorum when there is no other live
// voter, what raft says, or one of AddNonvoter's.
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
			return nil, &BehindError{m.ID, m.Match, m.Match + m.Lag}
		}
		return g.raft.LeadershipTransferToServer(raft.ServerID(target), raft.ServerAddress(target)), nil
	})
}

// successor is the live voter that is least behind, or empty.
func (g *Group) successor() string {
	var best Member
	for _, m := range g.Members() {
		if m.Voter && m.ID != g.cfg.ID && g.live(m) && (best.ID == "" || m.Lag < best.Lag) {
			best = m
		}
	}
	return best.ID
}
