package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SessionID names a session. It is the raft index of the command that opened it,
// so none is ever used twice in a group. Zero is no session.
type SessionID uint64

// Mode is how a lock is held.
type Mode uint8

const (
	// Exclusive: one holder (Chubby's writer lock).
	Exclusive Mode = 1
	// Shared: any number of holders (Chubby's reader lock).
	Shared Mode = 2
)

func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "mode_" + strconv.Itoa(int(m))
}

// Bounds of the service.
const (
	// FileBytesMax is the largest file.
	FileBytesMax = 256 << 10
	// LeaseMin and LeaseMax bound the lease that a session may ask for; LeaseDefault
	// is what it gets when it does not.
	LeaseMin, LeaseMax, LeaseDefault = 500 * time.Millisecond, time.Minute, 2 * time.Second
	// LockDelayMax bounds a lock-delay. Chubby's bound is the same.
	LockDelayMax = time.Minute
	// SessionsMax bounds the open sessions. The last SessionsForNodes are for nodes,
	// so that clients cannot keep nodes out.
	SessionsMax      = 100_000
	SessionsForNodes = 1000
	// HoldsMax bounds the locks and ephemeral files of one session, so that its end
	// is one quick change.
	HoldsMax = 10_000
	// SessionNameBytesMax bounds what a session calls itself.
	SessionNameBytesMax = 255
	// ACLBytesMax bounds a node's ACL name.
	ACLBytesMax = 255
	// EventsMax is how many events one KeepAlive answer carries.
	EventsMax = 256
	// WatchesMax bounds the paths that one session watches.
	WatchesMax = 100_000
	// CachedMax bounds the paths that one session caches. Further files are
	// answered without leave to cache them.
	CachedMax = 100_000
)

// ClockDrift bounds how much faster or slower than true time a machine's
// monotonic clock may run: 5%. Leases are safe within it, whatever the clocks say.
const ClockDrift = 0.05

// LocalLease returns how long, on its own clock, a client may believe in a lease
// that the server counts as granted on its clock: less by what both clocks may
// drift apart.
func LocalLease(granted time.Duration) time.Duration {
	return time.Duration(float64(granted) * (1 - ClockDrift) / (1 + ClockDrift))
}

// The words that TooLargeError.What takes.
const (
	LimitFile     = "file"
	LimitBytes    = "namespace"
	LimitNodes    = "namespace nodes"
	LimitSessions = "sessions"
	LimitWatches  = "watches"
	LimitHolds    = "locks and ephemeral files" // of a session, or of all
	LimitACL      = "ACL name"
	LimitName     = "session name"
	// What one user, and all users together, may hold. What users leave free is the
	// cluster's own.
	LimitUser          = "lock service memory of the user"
	LimitUsers         = "lock service memory of all users"
	LimitUserSessions  = "sessions of the user"
	LimitUsersSessions = "sessions of all users"
	LimitUserWatches   = "memory for watches and waiting locks of the user"
	LimitUsersWatches  = "memory for watches and waiting locks of all users"
)

// Stat is what the namespace knows of a node beside its content.
type Stat struct {
	Path string
	Dir  bool
	// Instance is larger than that of any node that had the path before.
	Instance uint64
	// Generation is the content generation: of a file the raft index that last
	// wrote it, of a directory the one that last made or deleted a child.
	Generation uint64
	// LockGeneration is the raft index at which the lock last went from free to
	// held; zero when it never was.
	LockGeneration uint64
	// ACLGeneration is the raft index that last changed ACL; zero when none did.
	ACLGeneration uint64
	// ACL is the name of the access rights that hold here, empty for the parent's.
	ACL string
	// Ephemeral is the session that the file goes with; zero for one that stays.
	Ephemeral SessionID
	// Bytes is the content's length, Children the number of a directory's.
	Bytes, Children int
	// Lock is how the node's lock is held, zero when it is free. Holders are the
	// sessions that hold it, at most 16 of them; none during a lock-delay.
	Lock    Mode
	Holders []SessionID
}

// File is a file as a Get found it. In a client's cache its content, generations and
// ACL are never old; Lock, Holders and LockGeneration may be.
type File struct {
	Stat
	// Data is the content, at most FileBytesMax bytes. It is the caller's.
	Data []byte
}

// Sequencer tells a third party which lock its bearer held when it asked, as in
// Chubby. It is valid as long as that lock has been held without a break.
type Sequencer struct {
	Path string
	Mode Mode
	// Instance is the node's, LockGeneration that of its lock.
	Instance, LockGeneration uint64
}

// String returns the sequencer as text: mode, instance, generation, path.
func (s Sequencer) String() string {
	return fmt.Sprintf("%s:%d:%d:%s", s.Mode, s.Instance, s.LockGeneration, s.Path)
}

// ParseSequencer reads what String wrote.
func ParseSequencer(text string) (Sequencer, error) {
	parts := strings.SplitN(text, ":", 4)
	if len(parts) != 4 || len(parts[3]) == 0 {
		return Sequencer{}, fmt.Errorf("sequencer %.80q is not mode:instance:generation:path", text)
	}
	s := Sequencer{Path: parts[3]}
	switch parts[0] {
	case "exclusive":
		s.Mode = Exclusive
	case "shared":
		s.Mode = Shared
	default:
		return Sequencer{}, fmt.Errorf("sequencer %.80q: mode is neither exclusive nor shared", text)
	}
	var err error
	if s.Instance, err = strconv.ParseUint(parts[1], 10, 64); err == nil {
		s.LockGeneration, err = strconv.ParseUint(parts[2], 10, 64)
	}
	if err != nil {
		return Sequencer{}, fmt.Errorf("sequencer %.80q: %w", text, err)
	}
	return s, nil
}

// Grant is a lock as a session got it.
type Grant struct {
	Sequencer Sequencer
	// Hold is the raft index at which the session got the lock. Unlike the lock
	// generation it differs each time, also when others share the lock meanwhile.
	Hold uint64
}

// EventKind says what happened. Kinds are bits, so that a watch can ask for several.
type EventKind uint8

// Kinds travel on the wire: append only.
const (
	// ContentsChanged: a file was written, made or deleted.
	ContentsChanged EventKind = 1 << iota
	// ChildAdded and ChildRemoved: of the directory Path, named by Name.
	ChildAdded
	ChildRemoved
	// LockAcquired: the lock of Path went from free to held.
	LockAcquired
	// LockFreed: the lock of Path became free, its lock-delay over.
	LockFreed
	// FailedOver: another server leads since, or so much has happened that events of
	// this session were dropped. Either way events may have been missed and no watch
	// of the session is left: it drops its whole cache, sets its watches again, and
	// reads again what is watched. A Get whose CacheLeave.At is less than this event's
	// number must not be cached. Every session gets it from a new leader.
	FailedOver
	// CacheInvalid: the file Path changes; a cached copy must go before the event
	// is acknowledged. Clients of this service see it only in their cache.
	CacheInvalid

	// AllEvents is what a watch may ask for.
	AllEvents = ContentsChanged | ChildAdded | ChildRemoved | LockAcquired | LockFreed
)

// String returns the kind's name, as "contents_changed".
func (k EventKind) String() string {
	switch k {
	case ContentsChanged:
		return "contents_changed"
	case ChildAdded:
		return "child_added"
	case ChildRemoved:
		return "child_removed"
	case LockAcquired:
		return "lock_acquired"
	case LockFreed:
		return "lock_freed"
	case FailedOver:
		return "failed_over"
	case CacheInvalid:
		return "cache_invalid"
	}
	return "events_" + strconv.Itoa(int(k))
}

// Event is something that happened to a node. It is delivered after the change
// can be read, and in the order of changes (CacheInvalid: before).
type Event struct {
	Kind EventKind
	Path string
	// Name is the child's, of ChildAdded and ChildRemoved.
	Name string
	// Index is the raft index of the change; zero when it is not known.
	Index uint64
}

// SetOptions are what a Set may ask for beside its compare-and-set.
type SetOptions struct {
	// Session is whose the call is; needed for Ephemeral. A session that is gone
	// fails the call with ErrNoSession.
	Session SessionID
	// Ephemeral makes a new file one that goes with the session.
	Ephemeral bool
	// Guard, if its Path is not empty, must be valid when the change is applied,
	// else the error is ErrStale.
	Guard Sequencer
	// Owner, if not empty, is the user for whom a node makes the change: the file counts in that user's share. Set alone
	// heeds it, and only from nodes.
	Owner string
}

// OwnerBytesMax bounds SetOptions.Owner.
const OwnerBytesMax = 255

// KeepAliveRequest asks for a longer lease.
type KeepAliveRequest struct {
	Session SessionID
	// Term is that of the last answer, zero at first: a leader of another term
	// answers at once with a FailedOver event, and the client has dropped its
	// whole cache before it tells the new term. Zero is answered at once too, with
	// the event only if the session was opened in an earlier term.
	Term uint64
	// Acked is the sequence number of the last event that the client has
	// processed, in that term. A session that has not acknowledged what it was sent
	// is answered at once, with the same events, and gets no longer lease.
	Acked uint64
	// Hang is how long the client lets the server wait before it answers. The
	// server may answer sooner: near the lease's end, or when there are events.
	Hang time.Duration
	// Caller ends when nobody is there for the answer any more: the lease is not made longer then. Nil: never. It is not sent; the
	// server of a connection sets it.
	Caller context.Context
}

// KeepAliveResponse grants a lease.
type KeepAliveResponse struct {
	// Lease is how long the session is good for, on the server's clock, from the
	// moment at which the *client sent* the request. So the client believes in it for
	// LocalLease(Lease) from before it sent it.
	Lease time.Duration
	// Term is the leader's. Sequence numbers start anew with each.
	Term uint64
	// Events come in order; the first has sequence number First, and may have been
	// sent before. First is more than Acked+1 only after events were dropped: the
	// event is FailedOver then.
	First  uint64
	Events []Event
}

// Service is the lock service as its leader offers it. Calls that the asked server
// cannot answer fail with *NotLeaderError or ErrNotReady. All methods but those that
// say otherwise are linearizable, may be called by several goroutines at once and
// may return ctx's error. A change whose error is ErrOutcomeUnknown may have been
// made.
type Service interface {
	// OpenSession opens a session that calls itself name and wants that lease
	// (zero: LeaseDefault). It returns the lease granted.
	OpenSession(ctx context.Context, name string, lease time.Duration) (SessionID, time.Duration, error)
	// KeepAlive extends a session's lease. It returns at once, and calls done with the
	// outcome later, once, from any goroutine and perhaps before it returns: a leader
	// of 100,000 sessions has a record for each request that hangs, not a goroutine.
	// done must not block. ctx bounds only what happens before KeepAlive returns. The
	// error is ErrNoSession when the session has ended, and ErrSuperseded for a
	// request that hangs when another one of its session comes, or its caller goes.
	KeepAlive(ctx context.Context, req KeepAliveRequest, done func(KeepAliveResponse, error))
	// CloseSession ends a session: its ephemeral files go and its locks are free at
	// once, without lock-delay. Closing one that is gone does nothing. The client
	// believes in nothing of the session any more when it calls this.
	CloseSession(ctx context.Context, s SessionID) error

	// Get returns the file at path. With a session, the answer may say that the
	// session may cache it, until it is told otherwise by CacheInvalid. At is the
	// sequence number of the session's last event when the file was read: an event
	// beyond it may be about this very answer. It is of the term in Term.
	Get(ctx context.Context, path string, s SessionID) (f File, leave CacheLeave, err error)
	// GetStale is Get from what this server has, which may be old; any voter answers.
	GetStale(ctx context.Context, path string) (File, error)
	// Stat returns what is known of the node at path.
	Stat(ctx context.Context, path string) (Stat, error)
	// List returns the children of a directory, in byte order of their names.
	List(ctx context.Context, dir string) ([]Stat, error)

	// Set writes a file if its content generation is gen, and returns the new one.
	Set(ctx context.Context, path string, data []byte, gen uint64, o SetOptions) (uint64, error)
	// Delete removes a file or empty directory if its generation is gen. Of o it
	// heeds Session and Guard. A node whose lock is held by another than that
	// session, or is in its lock-delay, stays: *LockedError. Holders answer from
	// their own memory that they hold a lock, so it must not be pulled from under
	// them.
	Delete(ctx context.Context, path string, gen uint64, o SetOptions) error
	// SetACL gives a node another ACL name, and returns the new ACL generation.
	SetACL(ctx context.Context, path, acl string, o SetOptions) (uint64, error)

	// Acquire takes the lock of the node at path, making an empty file if there is
	// none, or waits for it until ctx ends or wait is over: *LockedError then; a wait
	// of zero tries once. A lock that the session holds already in that mode is had
	// again, as the same hold. Delay is the lock-delay should the session expire.
	// An ephemeral file cannot be locked, for it and the lock-delay would go together:
	// ErrEphemeral.
	Acquire(ctx context.Context, s SessionID, path string, mode Mode, wait, delay time.Duration) (Grant, error)
	// Release gives a lock back. A hold that is not zero must be the one that the
	// session has: so a request that was delayed on its way cannot give back what the
	// session has acquired since. The error is ErrNotHeld or ErrNoSession.
	Release(ctx context.Context, s SessionID, path string, hold uint64) error
	// CheckSequencer returns nil if the sequencer is valid, ErrStale if not.
	CheckSequencer(ctx context.Context, q Sequencer) error

	// Watch has the session told of events of those kinds at path, which need not
	// exist, beside the kinds that it watches there already. A generation that is not
	// zero and not the node's content generation any more makes a ContentsChanged at
	// once. Watches end with the term: the client sets them again after FailedOver.
	// The number returned names the watch of that path until the next Watch of it,
	// which gives another one.
	Watch(ctx context.Context, s SessionID, path string, kinds EventKind, gen uint64) (uint64, error)
	// Unwatch ends the watch of path if it is the one of that number. It is no error
	// if it is another, or none.
	Unwatch(ctx context.Context, s SessionID, path string, watch uint64) error
}

// CacheLeave says whether a client may keep what Get answered.
type CacheLeave struct {
	OK   bool
	Term uint64
	At   uint64
}
