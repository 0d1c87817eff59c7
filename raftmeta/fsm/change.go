package fsm

import (
	"strings"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// ChangeKind is what a command did to the namespace.
type ChangeKind uint8

const (
	ContentsChanged ChangeKind = 1 + iota
	ChildAdded
	ChildRemoved
	ACLChanged
	LockAcquired
	LockFreed
	LockDelayed // a holder expired; duration is the lock-delay, restarted here
	SessionOpened
	SessionEnded
)

// Change is one effect of a command, as reported to the machine's observer.
type Change struct {
	Kind     ChangeKind
	Index    uint64
	Path     string
	Name     string // of a child
	Session  api.SessionID
	Duration time.Duration // a lease, or a lock-delay
	Owner    string        // of a session
}

// notify reports a change to the observer.
func (ns *Namespace) notify(c Change) {
	if ns.emit != nil {
		c.Name = strings.TrimPrefix(c.Name, "/")
		ns.emit(c)
	}
}

// Event returns the event that watches of the path receive. ok is false if there is none.
func (c Change) Event() (e api.Event, ok bool) {
	e = api.Event{Path: c.Path, Name: c.Name, Index: c.Index}
	switch c.Kind {
	case ContentsChanged:
		e.Kind = api.ContentsChanged
	case ChildAdded:
		e.Kind = api.ChildAdded
	case ChildRemoved:
		e.Kind = api.ChildRemoved
	case LockAcquired:
		e.Kind = api.LockAcquired
	case LockFreed:
		e.Kind = api.LockFreed
	}
	return e, e.Kind != 0
}

// Apply applies the command of the entry at index and term to ns, and returns its result.
func (ns *Namespace) Apply(index, term uint64, c *Command) Result {
	if c.Term != 0 && c.Term != term {
		return Result{Code: CodeTerm}
	}
	if c.Quota != nil {
		if u, ok := ns.users.usages.Get(&Usage{Owner: c.Quota.Owner}); ok {
			c.Quota.Owner = u.Owner // one copy of the name for everything that the user owns
		}
	}
	switch c.Op {
	case OpSet:
		return ns.set(index, c)
	case OpDelete:
		return ns.remove(index, c)
	case OpSetACL:
		return ns.setACL(index, c)
	case OpMarkCached:
		return ns.markCached(index, c)
	case OpOpenSession:
		return ns.openSession(index, c)
	case OpCloseSession:
		ns.endSession(index, c.Session, false)
		return Result{}
	case OpExpireSession:
		for _, s := range c.Sessions {
			ns.endSession(index, s, true)
		}
		return Result{}
	case OpAcquire:
		return ns.acquire(index, c)
	case OpRelease:
		return ns.release(index, c)
	case OpEndLockDelay:
		return ns.endLockDelay(index, c)
	}
	return Result{Code: CodeUnknown}
}
