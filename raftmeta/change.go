package raftmeta

import (
	"strings"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// changeKind is what a command did to the namespace.
type changeKind uint8

const (
	contentsChanged changeKind = 1 + iota
	childAdded
	childRemoved
	aclChanged
	lockAcquired
	lockFreed
	lockDelayed // a holder expired; duration is the lock-delay, restarted here
	sessionOpened
	sessionEnded
)

// change is one effect of a command, as reported to the machine's observer.
type change struct {
	kind     changeKind
	index    uint64
	path     string
	name     string // of a child
	session  api.SessionID
	duration time.Duration // a lease, or a lock-delay
	owner    string        // of a session
}

// notify reports a change to the observer.
func (ns *namespace) notify(c change) {
	if ns.emit != nil {
		c.name = strings.TrimPrefix(c.name, "/")
		ns.emit(c)
	}
}

// event returns the event that watches of the path receive. ok is false if there is none.
func (c change) event() (api.Event, bool) {
	e := api.Event{Path: c.path, Name: c.name, Index: c.index}
	switch c.kind {
	case contentsChanged:
		e.Kind = api.ContentsChanged
	case childAdded:
		e.Kind = api.ChildAdded
	case childRemoved:
		e.Kind = api.ChildRemoved
	case lockAcquired:
		e.Kind = api.LockAcquired
	case lockFreed:
		e.Kind = api.LockFreed
	}
	return e, e.Kind != 0
}

// apply applies the command of the entry at index and term to ns, and returns its result.
func (ns *namespace) apply(index, term uint64, c *command) result {
	if c.term != 0 && c.term != term {
		return result{code: codeTerm}
	}
	if c.quota != nil {
		if u, ok := ns.usages.Get(&usage{owner: c.quota.Owner}); ok {
			c.quota.Owner = u.owner // one copy of the name for everything that the user owns
		}
	}
	switch c.op {
	case opSet:
		return ns.set(index, c)
	case opDelete:
		return ns.remove(index, c)
	case opSetACL:
		return ns.setACL(index, c)
	case opMarkCached:
		return ns.markCached(index, c)
	case opOpenSession:
		return ns.openSession(index, c)
	case opCloseSession:
		ns.endSession(index, c.session, false)
		return result{}
	case opExpireSession:
		for _, s := range c.sessions {
			ns.endSession(index, s, true)
		}
		return result{}
	case opAcquire:
		return ns.acquire(index, c)
	case opRelease:
		return ns.release(index, c)
	case opEndLockDelay:
		return ns.endLockDelay(index, c)
	}
	return result{code: codeUnknown}
}
