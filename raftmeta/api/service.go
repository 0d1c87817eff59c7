package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SessionID identifies a session. It is the raft index of the command that opened the session, so
// it is never reused in a group. Zero is no session.
type SessionID uint64

// Mode is how a lock is held.
type Mode uint8

const (
	// Exclusive allows one holder (Chubby's writer lock).
	Exclusive Mode = 1
	// Shared allows any number of holders (Chubby's reader lock).
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

// Limits of the service.
const (
	// FileBytesMax bounds the content of a file.
	FileBytesMax = 256 << 10
	// LeaseMin and LeaseMax bound the lease that a session may request. LeaseDefault is used if it
	// requests none.
	LeaseMin, LeaseMax, LeaseDefault = 500 * time.Millisecond, time.Minute, 2 * time.Second
	// LockDelayMax bounds a lock-delay. Chubby has the same bound.
	LockDelayMax = time.Minute
	// SessionsMax bounds the open sessions. The last SessionsForNodes are reserved for nodes, so
	// that clients cannot lock nodes out.
	SessionsMax      = 100_000
	SessionsForNodes = 1000
	// HoldsMax bounds the locks and ephemeral files of one session, so that one fast command ends
	// it.
	HoldsMax = 10_000
	// SessionNameBytesMax bounds the name of a session.
	SessionNameBytesMax = 255
	// ACLBytesMax bounds the ACL name of a node.
	ACLBytesMax = 255
	// EventsMax bounds the events in one KeepAlive answer.
	EventsMax = 256
	// WatchesMax bounds the paths that one session watches.
	WatchesMax = 100_000
	// CachedMax bounds the paths that one session caches. Further files are returned without
	// permission to cache them.
	CachedMax = 100_000
)

// ClockDrift bounds how much faster or slower than true time a machine's monotonic clock may run:
// 5%. Within it leases are safe, whatever values the clocks have.
const ClockDrift = 0.05

// LocalLease returns how long, on its own clock, a client may rely on a lease that the server
// measures on its clock. It subtracts the drift of both clocks.
func LocalLease(granted time.Duration) time.Duration {
	return time.Duration(float64(granted) * (1 - ClockDrift) / (1 + ClockDrift))
}

// Values of TooLargeError.What.
const (
	LimitFile     = "file"
	LimitBytes    = "namespace"
	LimitNodes    = "namespace nodes"
	LimitSessions = "sessions"
	LimitWatches  = "watches"
	LimitHolds    = "locks and ephemeral files" // of one session, or of all sessions
	LimitACL      = "ACL name"
	LimitName     = "session name"
	// Limits of one user and of all users together. The cluster itself uses the remainder.
	LimitUser          = "lock service memory of the user"
	LimitUsers         = "lock service memory of all users"
	LimitUserSessions  = "sessions of the user"
	LimitUsersSessions = "sessions of all users"
	LimitUserWatches   = "memory for watches and waiting locks of the user"
	LimitUsersWatches  = "memory for watches and waiting locks of all users"
)

// Stat describes a node without its content.
type Stat struct {
	Path string
	Dir  bool
	// Instance is larger than that of any earlier node at the path.
	Instance uint64
	// Generation is the content generation: the raft index that last wrote a file, or that last
	// created or deleted a child of a directory.
	Generation uint64
	// LockGeneration is the raft index at which the lock last went from free to held; zero if it
	// was never held.
	LockGeneration uint64
	// ACLGeneration is the raft index that last changed ACL; zero if it was never set.
	ACLGeneration uint64
	// ACL is the name of the access control list of the node, empty to inherit the parent's.
	ACL string
	// Ephemeral is the session with which the file is deleted; zero for a permanent node.
	Ephemeral SessionID
	// Bytes is the length of the content. Children is the number of children of a directory.
	Bytes, Children int
	// Lock is the mode in which the node's lock is held, or was held before its lock-delay; zero if
	// it is free. Holders are sessions that hold it, at most 16; none during a lock-delay.
	Lock    Mode
	Holders []SessionID
}

// File is a file as returned by Get. In a client's cache, its content, generations and ACL are
// current; Lock, Holders and LockGeneration may be out of date.
type File struct {
	Stat
	// Data is the content, at most FileBytesMax bytes. The caller owns it.
	Data []byte
}

// DirectoryOptions select what ReadDirectory returns.
type DirectoryOptions struct {
	// Since is the Index of a previous read: children that have not changed since then are returned without their content, or
	// not at all. Zero: all are returned.
	Since uint64
	// After is the name of the last child of the page before; empty for the first page.
	After string
}

// DirectoryPage has children of a directory, in byte order of their names, as they were at one moment. Further pages may be of later
// moments.
type DirectoryPage struct {
	// Index is the raft index at which the directory was read.
	Index uint64
	// Whole reports whether Files has all children in the range of the page. Otherwise no child was created or deleted since
	// DirectoryOptions.Since, and Files has only those that were written.
	Whole bool
	// Files of children that were not written since DirectoryOptions.Since have only a Path. Directories have no Data.
	Files []File
	// More reports whether there is another page.
	More bool
}

// PageBytesMax bounds the files of a DirectoryPage, but for the last of them, with 128 bytes for each file beside its path and content.
const PageBytesMax = 256 << 10

// Sequencer identifies a lock and its holder's mode to a third party, as in Chubby. It is valid as
// long as the lock has been held without interruption since the sequencer was issued.
type Sequencer struct {
	Path string
	Mode Mode
	// Instance is that of the node, LockGeneration that of its lock.
	Instance, LockGeneration uint64
}

// String returns the sequencer as mode:instance:generation:path.
func (s Sequencer) String() string {
	return fmt.Sprintf("%s:%d:%d:%s", s.Mode, s.Instance, s.LockGeneration, s.Path)
}

// ParseSequencer parses the result of String.
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

// Grant is an acquired lock.
type Grant struct {
	Sequencer Sequencer
	// Hold is the raft index at which the session acquired the lock. Unlike the lock generation, it
	// differs for each acquisition, even if other sessions share the lock meanwhile.
	Hold uint64
}

// EventKind is the type of an event. Kinds are bits, so that a watch can select several.
type EventKind uint8

// Kinds are sent on the wire: append only.
const (
	// ContentsChanged: a file was created, written or deleted.
	ContentsChanged EventKind = 1 << iota
	// ChildAdded and ChildRemoved: a child Name was added to or removed from the directory Path.
	ChildAdded
	ChildRemoved
	// LockAcquired: the lock of Path went from free to held.
	LockAcquired
	// LockFreed: the lock of Path became free, and has no lock-delay.
	LockFreed
	// FailedOver: there is a new leader, or the event queue of the session overflowed. In both
	// cases events may have been missed, and the session has no watches. The client drops its whole
	// cache, sets its watches again, and then reads the watched paths again. A Get whose
	// CachePermission.At is less than the number of this event must not be cached. A new leader sends it
	// to every session.
	FailedOver
	// CacheInvalid: the file Path is about to change. The client must drop its copy before it
	// acknowledges the event. Applications do not see this event, only the cache does.
	CacheInvalid

	// AllEvents are the kinds that a watch may select.
	AllEvents = ContentsChanged | ChildAdded | ChildRemoved | LockAcquired | LockFreed
)

// String returns the name of the kind, such as "contents_changed".
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

// Event describes a change of a node. Events are delivered in the order of the changes, and after
// the change is visible (CacheInvalid: before).
type Event struct {
	Kind EventKind
	Path string
	// Name is the child, for ChildAdded and ChildRemoved.
	Name string
	// Index is the raft index of the change; zero if unknown.
	Index uint64
}

// SetOptions are the options of Set, Delete and SetACL.
type SetOptions struct {
	// Session is the calling session; required for Ephemeral. If the session does not exist, the
	// call fails with ErrNoSession.
	Session SessionID
	// Ephemeral makes a new file ephemeral: it is deleted when the session ends.
	Ephemeral bool
	// Guard, if its Path is not empty, must be valid when the change is applied; otherwise the
	// error is ErrStale.
	Guard Sequencer
	// AbsentSince, if not zero, lets Set create the file only if its directory has lost no child after that index; otherwise the
	// error is a *GenerationError with Removed. A caller begins with 1, or with the generation of the directory, and after that error
	// passes what it had. After an unknown outcome it repeats the call with the same index: the first request, if it arrives late, then
	// cannot create the file again after it was deleted. If the repetition fails with Removed, the file may have been created and deleted.
	AbsentSince uint64
	// From, if not empty, makes a Set that creates a file a rename: it also deletes the file at that path, which must have the generation
	// FromGeneration and be in the same directory. Both happen in one step. The file at From must be neither ephemeral nor locked. If its
	// generation differs, the error is a *GenerationError for From. Generations are not reused, so a request that arrives late has no effect.
	From           string
	FromGeneration uint64
	// Owner, if not empty, is the user on whose behalf a node makes the change: the file is charged
	// to the quota of that user. Only Set uses it, and only for nodes.
	Owner string
}

// Paths returns the paths of the files that a Set of path changes.
func (o *SetOptions) Paths(path string) []string {
	if o.From == "" {
		return []string{path}
	}
	return []string{path, o.From}
}

// OwnerBytesMax bounds SetOptions.Owner.
const OwnerBytesMax = 255

// KeepAliveRequest requests an extension of a lease.
type KeepAliveRequest struct {
	Session SessionID
	// Term is the term of the last answer, zero at first. A leader of another term answers at once
	// with a FailedOver event. The client must drop its whole cache before it sends the new term.
	// Zero is answered at once too, with the event only if the session was opened in an earlier
	// term.
	Term uint64
	// Acked is the sequence number of the last event that the client has processed in that term. A
	// session that has not acknowledged the events it was sent is answered at once, with the same
	// events, and its lease is not extended.
	Acked uint64
	// Hang is how long the server may delay its answer. It answers earlier near the end of the
	// lease, or when there are events.
	Hang time.Duration
	// Caller ends when the caller can no longer receive the answer; the lease is then not extended.
	// Nil means never. It is not sent: the server of a connection sets it.
	Caller context.Context
}

// KeepAliveResponse grants a lease.
type KeepAliveResponse struct {
	// Lease is the time, on the server's clock, for which the session is kept, counted from when
	// the *client sent* the request. The client may rely on it for LocalLease(Lease) from a time
	// before it sent the request.
	Lease time.Duration
	// Term is the leader's term. Sequence numbers of events restart in each term.
	Term uint64
	// Events are in order; the first has sequence number First, and may have been sent before.
	// First is larger than Acked+1 only after events were dropped; the first event is then
	// FailedOver.
	First  uint64
	Events []Event
}

// Service is the lock service as offered by its leader. A server that cannot answer a call returns
// a *NotLeaderError or ErrNotReady. Unless stated otherwise, methods are linearizable, safe for
// concurrent use, and may return ctx's error. A change that returns ErrOutcomeUnknown may have been
// made.
type Service interface {
	// OpenSession opens a session with that name and lease (zero: LeaseDefault). It returns the
	// lease that was granted.
	OpenSession(ctx context.Context, name string, lease time.Duration) (SessionID, time.Duration, error)
	// KeepAlive extends the lease of a session. It does not block. It calls done exactly once with
	// the outcome, from any goroutine and possibly before it returns: a leader of 100,000 sessions
	// keeps a record for each pending request, not a goroutine. done must not block. ctx bounds
	// only the time until KeepAlive returns. The error is ErrNoSession if the session has ended. It
	// is ErrSuperseded for a pending request if another one of the same session arrives, or its
	// caller is gone.
	KeepAlive(ctx context.Context, req KeepAliveRequest, done func(KeepAliveResponse, error))
	// CloseSession ends a session: its ephemeral files are deleted and its locks are freed at once,
	// without lock-delay. Closing a session that does not exist does nothing. The client must stop
	// relying on its locks and its cache before it calls this.
	CloseSession(ctx context.Context, s SessionID) error

	// Get returns the file at path. With a session, the answer may permit the session to cache the
	// file until it receives CacheInvalid. perm.At is the sequence number of the session's last
	// event when the file was read, in the term perm.Term: a later event may concern this answer.
	Get(ctx context.Context, path string, s SessionID) (f File, perm CachePermission, err error)
	// GetStale returns the file at path as this server has it, which may be out of date. Any voter
	// answers.
	GetStale(ctx context.Context, path string) (File, error)
	// Stat describes the node at path.
	Stat(ctx context.Context, path string) (Stat, error)
	// List returns the children of a directory, in byte order of their names.
	List(ctx context.Context, dir string) ([]Stat, error)

	// ReadDirectory returns a page of the files in a directory, with their contents. See DirectoryPage.
	ReadDirectory(ctx context.Context, dir string, o DirectoryOptions) (DirectoryPage, error)

	// Set writes a file if its content generation is gen, and returns the new one.
	Set(ctx context.Context, path string, data []byte, gen uint64, o SetOptions) (uint64, error)
	// Delete removes a file or an empty directory if its generation is gen. It uses Session and
	// Guard of o. If the lock of the node is held by another session or is in its lock-delay, the
	// error is a *LockedError: holders check their locks from local state, so a held lock must not
	// disappear.
	Delete(ctx context.Context, path string, gen uint64, o SetOptions) error
	// SetACL sets the ACL name of a node, and returns the new ACL generation.
	SetACL(ctx context.Context, path, acl string, o SetOptions) (uint64, error)

	// Acquire acquires the lock of the node at path, and creates an empty file if there is no node.
	// It waits until ctx ends or until wait has passed, and then returns a *LockedError; a wait of
	// zero tries once. If the session already holds the lock in that mode, Acquire returns the same
	// hold. delay is the lock-delay that applies if the session expires. Ephemeral files cannot be
	// locked, because the file and its lock-delay would disappear together: ErrEphemeral.
	Acquire(ctx context.Context, s SessionID, path string, mode Mode, wait, delay time.Duration) (Grant, error)
	// Release releases a lock. If hold is not zero it must match the session's hold, so that a
	// delayed request cannot release a later acquisition. The error is ErrNotHeld or ErrNoSession.
	Release(ctx context.Context, s SessionID, path string, hold uint64) error
	// CheckSequencer returns nil if the sequencer is valid, ErrStale if not.
	CheckSequencer(ctx context.Context, q Sequencer) error

	// Watch subscribes the session to events of those kinds at path, in addition to the kinds that
	// it already watches there. The path need not exist. If gen is not zero and differs from the
	// node's content generation, a ContentsChanged event is queued at once. Watches end with the
	// term: the client sets them again after FailedOver. The returned number identifies the watch
	// of that path until the next Watch of it, which returns another one.
	Watch(ctx context.Context, s SessionID, path string, kinds EventKind, gen uint64) (uint64, error)
	// Unwatch ends the watch of path with that number. It does nothing if the session has another
	// watch of the path, or none.
	Unwatch(ctx context.Context, s SessionID, path string, watch uint64) error
}

// CachePermission reports whether a client may cache the result of a Get.
type CachePermission struct {
	OK   bool
	Term uint64
	At   uint64
}
