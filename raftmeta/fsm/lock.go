package fsm

import (
	"cmp"
	"time"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/raftmeta/api"
)

// lockState is the lock of a node. It is immutable once it is in a node.
type lockState struct {
	// generation is the raft index at which the lock last went from free to held.
	generation uint64
	// mode is how the lock is held and holders by how many sessions; zero if it is not held.
	mode    api.Mode
	holders int
	// delay is the current lock-delay, zero for none. It began when sessions that held the lock in
	// delayMode expired, the last one at delayIndex. Other sessions that shared the lock with them
	// still hold it.
	delay      time.Duration
	delayMode  api.Mode
	delayIndex uint64
}

// excludes reports whether the lock cannot be acquired in mode.
func (l *lockState) excludes(mode api.Mode) bool {
	if l == nil {
		return false
	}
	excl := mode == api.Exclusive || l.mode == api.Exclusive
	return l.holders > 0 && excl ||
		l.delay > 0 && (mode == api.Exclusive || l.delayMode == api.Exclusive)
}

// heldMode returns the mode reported to callers: zero if the lock is free.
func (l *lockState) heldMode() api.Mode {
	switch {
	case l == nil:
		return 0
	case l.holders > 0:
		return l.mode
	}
	return l.delayMode
}

// hold is a lock or an ephemeral file of a session.
type hold struct {
	session api.SessionID
	path    string
	mode    api.Mode // zero: the file at path is the session's ephemeral file
	delay   time.Duration
	since   uint64 // the raft index at which the session got it
}

func holdLess(a, b hold) bool {
	return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.path, b.path)) < 0
}

// holder is a session that holds the lock of path.
type holder struct {
	path    string
	session api.SessionID
}

func holderLess(a, b holder) bool {
	return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.session, b.session)) < 0
}

// lock modifies the lock of the node at path, which must exist.
func (ns *Namespace) lock(path string, f func(l *lockState)) *lockState {
	n := *ns.Get(path)
	var l lockState
	if n.lock != nil {
		l = *n.lock
	}
	f(&l)
	l.check()
	n.lock = &l
	ns.nodes.ReplaceOrInsert(&n)
	return &l
}

// check asserts that a lock has one holder, or holders that share it.
func (l *lockState) check() {
	invariant.Check(l.holders >= 0, "a lock has %d holders", int64(l.holders))
	invariant.Check(l.holders <= 1 || l.mode == api.Shared, "an exclusive lock has %d holders", int64(l.holders))
	invariant.Check((l.holders > 0) == (l.mode != 0), "a lock in mode %d has %d holders", int64(l.mode), int64(l.holders))
}

// checkHolders asserts that the sessions that hold the lock of path exist, and that they are as many
// as the lock counts.
func checkHolders(ns *Namespace, path string, l *lockState) {
	found := 0
	ns.holders.AscendGreaterOrEqual(holder{path: path}, func(h holder) bool {
		if h.path != path {
			return false
		}
		invariant.Check(ns.Session(h.session) != nil, "session %d holds a lock and does not exist", int64(h.session))
		found++
		return true
	})
	invariant.Check(found == l.holders, "%d sessions hold a lock that counts %d", int64(found), int64(l.holders))
}

// acquire grants the lock of the node at c.path to c.session.
func (ns *Namespace) acquire(index uint64, c *Command) Result {
	if err := CheckDir(c.Path); err != nil {
		return badPath(c.Path, err)
	}
	if ns.Session(c.Session) == nil {
		return Result{Code: CodeNoSession}
	}
	n := ns.Get(c.Path)
	if n != nil && n.Ephemeral != 0 {
		return Result{Code: CodeEphemeral, path: c.Path}
	}
	if h, ok := ns.holds.Get(hold{session: c.Session, path: c.Path}); ok {
		if h.mode != c.Mode {
			return ns.locked(n)
		}
		h.delay = c.Duration
		ns.holds.ReplaceOrInsert(h)
		return Result{Instance: n.instance, Generation: n.lock.generation, Hold: h.since}
	}
	if n != nil && n.lock.excludes(c.Mode) {
		return ns.locked(n)
	}
	if r := ns.CheckQuota(c); r.Code != CodeDone {
		return r
	}
	h := hold{session: c.Session, path: c.Path, mode: c.Mode, delay: c.Duration, since: index}
	if n != nil {
		h.path = n.Path // shares the string
	}
	if r := ns.hold(h); r.Code != CodeDone {
		return r
	}
	if n == nil {
		if r := ns.create(index, &Command{Op: OpSet, Path: c.Path, Data: []byte{}, Generation: api.AnyGeneration, Quota: c.Quota}); r.Code != CodeDone {
			ns.unhold(h)
			return r
		}
		n = ns.Get(c.Path)
	}
	ns.holders.ReplaceOrInsert(holder{h.path, c.Session})
	l := ns.lock(c.Path, func(l *lockState) {
		if l.holders == 0 {
			l.generation, l.mode = index, c.Mode
		}
		l.holders++
	})
	if invariant.On {
		checkHolders(ns, c.Path, l)
	}
	if l.generation == index {
		ns.notify(Change{Kind: LockAcquired, Index: index, Path: c.Path})
	}
	return Result{Instance: n.instance, Generation: l.generation, Hold: index}
}

// locked returns the result for a lock that is held or in its lock-delay.
func (ns *Namespace) locked(n *Node) Result {
	r := Result{Code: CodeLocked, path: n.Path, mode: n.lock.heldMode()}
	if n.lock.holders == 0 {
		r.delay = n.lock.delay
		return r
	}
	ns.holders.AscendGreaterOrEqual(holder{path: n.Path}, func(h holder) bool {
		r.holder = h.session
		return false
	})
	r.reason = ns.Session(r.holder).Name
	return r
}

// release releases the lock of the node at c.path if c.session holds it as c.hold, or if c.hold is
// zero.
func (ns *Namespace) release(index uint64, c *Command) Result {
	if ns.Session(c.Session) == nil {
		return Result{Code: CodeNoSession}
	}
	h, ok := ns.holds.Get(hold{session: c.Session, path: c.Path})
	if !ok || h.mode == 0 || c.Hold != 0 && c.Hold != h.since {
		return Result{Code: CodeNotHeld}
	}
	ns.unlock(index, h, false)
	return Result{}
}

// unlock releases a lock of a session, and starts its lock-delay if the session expired.
func (ns *Namespace) unlock(index uint64, h hold, expired bool) {
	ns.unhold(h)
	ns.holders.Delete(holder{h.path, h.session})
	l := ns.lock(h.path, func(l *lockState) {
		l.holders--
		if expired && h.delay > 0 {
			// An earlier lock-delay has the same mode, because a lock-delay excludes the other
			// modes.
			l.delay, l.delayMode, l.delayIndex = max(l.delay, h.delay), h.mode, index
		}
		if l.holders == 0 {
			l.mode = 0
		}
	})
	if invariant.On {
		checkHolders(ns, h.path, l)
	}
	switch {
	case expired && h.delay > 0:
		ns.delayed.ReplaceOrInsert(h.path)
		ns.notify(Change{Kind: LockDelayed, Index: index, Path: h.path, Duration: l.delay})
	case l.holders == 0 && l.delay == 0:
		ns.notify(Change{Kind: LockFreed, Index: index, Path: h.path})
	}
}

// endLockDelay ends the lock-delays of c that no later one has replaced.
func (ns *Namespace) endLockDelay(index uint64, c *Command) Result {
	for _, d := range c.Delays {
		n := ns.Get(d.Path)
		if n == nil || n.lock == nil || n.lock.delay == 0 || n.lock.delayIndex != d.Index {
			continue
		}
		l := ns.lock(d.Path, func(l *lockState) { l.delay, l.delayMode, l.delayIndex = 0, 0, 0 })
		ns.delayed.Delete(d.Path)
		if l.holders == 0 {
			ns.notify(Change{Kind: LockFreed, Index: index, Path: d.Path})
		}
	}
	return Result{}
}

// EachLockDelay calls f with each lock that is in its lock-delay, and the length of that.
func (ns *Namespace) EachLockDelay(f func(d DelayRef, length time.Duration)) {
	ns.delayed.Ascend(func(path string) bool {
		l := ns.Get(path).lock
		f(DelayRef{path, l.delayIndex}, l.delay)
		return true
	})
}

// Valid reports whether the lock of q has been held as q describes, without interruption.
func (ns *Namespace) Valid(q api.Sequencer) bool {
	n := ns.Get(q.Path)
	return n != nil && n.instance == q.Instance && n.lock != nil && n.lock.holders > 0 &&
		n.lock.mode == q.Mode && (n.lock.generation == q.LockGeneration || planted.On(planted.SequencerNotCompared))
}
