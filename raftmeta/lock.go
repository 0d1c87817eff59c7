package raftmeta

import (
	"cmp"
	"time"

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
func (ns *namespace) lock(path string, f func(l *lockState)) *lockState {
	n := *ns.get(path)
	var l lockState
	if n.lock != nil {
		l = *n.lock
	}
	f(&l)
	n.lock = &l
	ns.nodes.ReplaceOrInsert(&n)
	return &l
}

// acquire grants the lock of the node at c.path to c.session.
func (ns *namespace) acquire(index uint64, c *command) result {
	if err := checkDir(c.path); err != nil {
		return badPath(c.path, err)
	}
	if ns.session(c.session) == nil {
		return result{code: codeNoSession}
	}
	n := ns.get(c.path)
	if n != nil && n.ephemeral != 0 {
		return result{code: codeEphemeral, path: c.path}
	}
	if h, ok := ns.holds.Get(hold{session: c.session, path: c.path}); ok {
		if h.mode != c.mode {
			return ns.locked(n)
		}
		h.delay = c.duration
		ns.holds.ReplaceOrInsert(h)
		return result{instance: n.instance, generation: n.lock.generation, hold: h.since}
	}
	if n != nil && n.lock.excludes(c.mode) {
		return ns.locked(n)
	}
	if r := ns.checkQuota(c); r.code != codeDone {
		return r
	}
	h := hold{session: c.session, path: c.path, mode: c.mode, delay: c.duration, since: index}
	if n != nil {
		h.path = n.path // shares the string
	}
	if r := ns.hold(h); r.code != codeDone {
		return r
	}
	if n == nil {
		if r := ns.create(index, &command{op: opSet, path: c.path, data: []byte{}, generation: AnyGeneration, quota: c.quota}); r.code != codeDone {
			ns.unhold(h)
			return r
		}
		n = ns.get(c.path)
	}
	ns.holders.ReplaceOrInsert(holder{h.path, c.session})
	l := ns.lock(c.path, func(l *lockState) {
		if l.holders == 0 {
			l.generation, l.mode = index, c.mode
		}
		l.holders++
	})
	if l.generation == index {
		ns.notify(change{kind: lockAcquired, index: index, path: c.path})
	}
	return result{instance: n.instance, generation: l.generation, hold: index}
}

// locked returns the result for a lock that is held or in its lock-delay.
func (ns *namespace) locked(n *node) result {
	r := result{code: codeLocked, path: n.path, mode: n.lock.heldMode()}
	if n.lock.holders == 0 {
		r.delay = n.lock.delay
		return r
	}
	ns.holders.AscendGreaterOrEqual(holder{path: n.path}, func(h holder) bool {
		r.holder = h.session
		return false
	})
	r.reason = ns.session(r.holder).name
	return r
}

// release releases the lock of the node at c.path if c.session holds it as c.hold, or if c.hold is
// zero.
func (ns *namespace) release(index uint64, c *command) result {
	if ns.session(c.session) == nil {
		return result{code: codeNoSession}
	}
	h, ok := ns.holds.Get(hold{session: c.session, path: c.path})
	if !ok || h.mode == 0 || c.hold != 0 && c.hold != h.since {
		return result{code: codeNotHeld}
	}
	ns.unlock(index, h, false)
	return result{}
}

// unlock releases a lock of a session, and starts its lock-delay if the session expired.
func (ns *namespace) unlock(index uint64, h hold, expired bool) {
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
	switch {
	case expired && h.delay > 0:
		ns.delayed.ReplaceOrInsert(h.path)
		ns.notify(change{kind: lockDelayed, index: index, path: h.path, duration: l.delay})
	case l.holders == 0 && l.delay == 0:
		ns.notify(change{kind: lockFreed, index: index, path: h.path})
	}
}

// endLockDelay ends the lock-delays of c that no later one has replaced.
func (ns *namespace) endLockDelay(index uint64, c *command) result {
	for _, d := range c.delays {
		n := ns.get(d.path)
		if n == nil || n.lock == nil || n.lock.delay == 0 || n.lock.delayIndex != d.index {
			continue
		}
		l := ns.lock(d.path, func(l *lockState) { l.delay, l.delayMode, l.delayIndex = 0, 0, 0 })
		ns.delayed.Delete(d.path)
		if l.holders == 0 {
			ns.notify(change{kind: lockFreed, index: index, path: d.path})
		}
	}
	return result{}
}

// valid reports whether the lock of q has been held as q describes, without interruption.
func (ns *namespace) valid(q api.Sequencer) bool {
	n := ns.get(q.Path)
	return n != nil && n.instance == q.Instance && n.lock != nil && n.lock.holders > 0 &&
		n.lock.mode == q.Mode && n.lock.generation == q.LockGeneration
}
