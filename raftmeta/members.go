package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrChanging means that another membership change is in progress; nothing was changed.
	ErrChanging = errors.New("another membership change is in progress")

	// ErrNotMember means that the group has no server with that id.
	ErrNotMember = errors.New("not a member of the group")

	// ErrMember means that a server that is a member already cannot be invited.
	ErrMember = errors.New("already a member of the group")

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
func (g *Group) Members() []Member { return g.changer.list() }

// OnlyMember reports whether this server is the group's only member, as far as it knows, and may lead it. It is not while the only
// member that it knows is another server, which has removed this one.
func (g *Group) OnlyMember() bool {
	all := g.Members()
	return len(all) == 1 && all[0].ID == g.cfg.ID && g.invited.pending.Load() == nil
}

// AddNonvoter adds a server that receives the log and has no vote. The server must have an invitation:
// see Invite. AddNonvoter does nothing if the server is a member already, voter or not. The change is
// committed when AddNonvoter returns nil. The error is ErrChanging, ErrNotReady, a *NotLeaderError,
// ErrClosed or ctx's, and nothing was changed; or ErrOutcomeUnknown, and the change may still commit.
func (g *Group) AddNonvoter(ctx context.Context, id string) error {
	return g.changer.addNonvoter(ctx, id)
}

// Promote gives a member a vote once it has caught up, and has the latest configuration. It waits for
// that until ctx ends; the error is then a *BehindError and ctx's. A *QuorumError means that too few
// voters would be live, and nothing was changed. Other errors are ErrNotMember and those of AddNonvoter.
func (g *Group) Promote(ctx context.Context, id string) error { return g.changer.promote(ctx, id) }

// Remove removes a server from the group. It does nothing if the server is not a member. A
// *QuorumError means that too few voters would be live, and nothing was changed. ErrIsLeader means
// that id is this server; nothing was changed. Other errors are those of AddNonvoter.
func (g *Group) Remove(ctx context.Context, id string) error { return g.changer.remove(ctx, id) }

// TransferLeadership transfers leadership to the voter with that id, or if id is empty, to the
// voter with the least lag. Proposals are rejected meanwhile. It returns nil once this server no
// longer leads; a voter other than id may have been elected. The error is ErrNotMember, ErrQuorum
// if there is no other live voter, raft's, or one of AddNonvoter's.
func (g *Group) TransferLeadership(ctx context.Context, id string) error {
	return g.changer.transferLeadership(ctx, id)
}
