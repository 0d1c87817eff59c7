package fsm

import (
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// locking is a namespace with the sessions 11, "ann", and 12, "bob", and its lock events.
type locking struct {
	*Namespace
	index uint64
	told  []Change
}

func newLocking() *locking {
	l := &locking{Namespace: NewNamespace(), index: 10}
	l.emit = func(c Change) {
		switch c.Kind {
		case LockAcquired, LockFreed, LockDelayed:
			l.told = append(l.told, c)
		}
	}
	l.do(Command{Op: OpOpenSession, Name: "ann", Duration: 2 * time.Second})
	l.do(Command{Op: OpOpenSession, Name: "bob", Duration: 2 * time.Second})
	return l
}

func (l *locking) do(c Command) Result {
	l.index++
	return l.Apply(l.index, 1, &c)
}

func (l *locking) acquire(s api.SessionID, path string, mode api.Mode, delay time.Duration) Result {
	return l.do(Command{Op: OpAcquire, Session: s, Path: path, Mode: mode, Duration: delay})
}

func (l *locking) expire(s api.SessionID) {
	l.do(Command{Op: OpExpireSession, Sessions: []api.SessionID{s}})
}

// TestLockedNamesHolder: an error for a lock names the session that holds it, or its lock-delay.
func TestLockedNamesHolder(t *testing.T) {
	l := newLocking()
	l.acquire(11, "/l", api.Exclusive, 5*time.Second)
	l.acquire(12, "/m", api.Shared, 0)
	if r := l.acquire(12, "/l", api.Shared, 0); r.Code != CodeLocked || r.path != "/l" || r.mode != api.Exclusive || r.holder != 11 || r.reason != "ann" || r.delay != 0 {
		t.Errorf("a lock that is held: %+v", r)
	}
	if r := l.acquire(11, "/m", api.Exclusive, 0); r.Code != CodeLocked || r.path != "/m" || r.mode != api.Shared || r.holder != 12 || r.reason != "bob" || r.delay != 0 {
		t.Errorf("a lock that is shared: %+v", r)
	}
	l.expire(11)
	if r := l.acquire(12, "/l", api.Shared, 0); r.Code != CodeLocked || r.path != "/l" || r.mode != api.Exclusive || r.holder != 0 || r.delay != 5*time.Second {
		t.Errorf("a lock in its lock-delay: %+v", r)
	}
}

// TestLockReleasedByHold: a release of an older hold, by another session, or of an ephemeral file
// releases nothing.
func TestLockReleasedByHold(t *testing.T) {
	l := newLocking()
	first := l.acquire(11, "/l", api.Exclusive, 0).Hold
	if r := l.do(Command{Op: OpRelease, Session: 11, Path: "/l", Hold: first}); r.Code != CodeDone {
		t.Errorf("the first hold: %+v", r)
	}
	second := l.acquire(11, "/l", api.Exclusive, 0).Hold
	l.do(Command{Op: OpSet, Session: 11, Path: "/e", Ephemeral: true, Generation: api.AnyGeneration})
	for name, c := range map[string]Command{
		"an older hold":     {Session: 11, Path: "/l", Hold: first},
		"another session":   {Session: 12, Path: "/l", Hold: second},
		"any hold of it":    {Session: 12, Path: "/l"},
		"an ephemeral file": {Session: 11, Path: "/e"},
		"no node":           {Session: 11, Path: "/none"},
	} {
		c.Op = OpRelease
		if r := l.do(c); r.Code != CodeNotHeld {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := l.do(Command{Op: OpRelease, Session: 99, Path: "/l"}); r.Code != CodeNoSession {
		t.Errorf("no session: %+v", r)
	}
	if r := l.do(Command{Op: OpRelease, Session: 11, Path: "/l"}); r.Code != CodeDone {
		t.Errorf("any hold: %+v", r)
	}
}

// TestLockDelayEndsOnce: a command ends only the lock-delays that are the latest of their lock, at
// any position in its list.
func TestLockDelayEndsOnce(t *testing.T) {
	l := newLocking()
	l.acquire(11, "/l", api.Shared, 5*time.Second)
	l.acquire(12, "/l", api.Shared, 3*time.Second)
	l.acquire(11, "/held", api.Shared, time.Second)
	l.acquire(12, "/held", api.Shared, 0)
	l.acquire(11, "/free", api.Exclusive, 0)
	l.do(Command{Op: OpSet, Path: "/file", Generation: api.AnyGeneration})
	l.expire(11)
	first := l.Get("/l").lock.delayIndex
	l.expire(12)
	last := l.Get("/l").lock.delayIndex
	if first == last {
		t.Fatalf("both lock-delays are of index %d", first)
	}
	l.told = nil
	l.do(Command{Op: OpEndLockDelay, Delays: []DelayRef{{"/none", last}, {"/file", 0}, {"/free", 0}, {"/l", first}}})
	if d := l.Get("/l").lock.delay; d != 5*time.Second || len(l.told) != 0 {
		t.Errorf("after stale ends the lock-delay is %v: %+v", d, l.told)
	}
	l.do(Command{Op: OpEndLockDelay, Delays: []DelayRef{{"/none", last}, {"/file", 0}, {"/free", 0}, {"/l", last}}})
	if lock := l.Get("/l").lock; lock.delay != 0 || lock.delayMode != 0 || lock.delayIndex != 0 || len(l.told) != 1 || l.told[0].Kind != LockFreed || l.told[0].Path != "/l" {
		t.Errorf("after the end the lock is %+v: %+v", *lock, l.told)
	}
	l.do(Command{Op: OpEndLockDelay, Delays: []DelayRef{{"/l", last}}})
	if len(l.told) != 1 {
		t.Errorf("after a second end: %+v", l.told)
	}
}

// TestLockSharedThroughDelay: while a sharer holds a lock, the end of another sharer's lock-delay
// frees nothing.
func TestLockSharedThroughDelay(t *testing.T) {
	l := newLocking()
	l.acquire(11, "/l", api.Shared, 5*time.Second)
	l.acquire(12, "/l", api.Shared, 0)
	l.expire(11)
	l.told = nil
	l.do(Command{Op: OpEndLockDelay, Delays: []DelayRef{{"/l", l.Get("/l").lock.delayIndex}}})
	if len(l.told) != 0 || l.Get("/l").lock.holders != 1 {
		t.Errorf("a lock that is held: %+v", l.told)
	}
	l.do(Command{Op: OpRelease, Session: 12, Path: "/l"})
	if len(l.told) != 1 || l.told[0].Kind != LockFreed {
		t.Errorf("when the last releases it: %+v", l.told)
	}
}

// TestLockSequencer: a sequencer is valid while the lock of that node is held in that mode without
// interruption.
func TestLockSequencer(t *testing.T) {
	l := newLocking()
	r := l.acquire(11, "/l", api.Exclusive, 0)
	l.do(Command{Op: OpSet, Path: "/file", Generation: api.AnyGeneration})
	file := l.Get("/file").instance
	q := api.Sequencer{Path: "/l", Mode: api.Exclusive, Instance: r.Instance, LockGeneration: r.Generation}
	if !l.Valid(q) {
		t.Errorf("%+v is not valid", q)
	}
	for name, change := range map[string]func(q *api.Sequencer){
		"no node":               func(q *api.Sequencer) { q.Path = "/none" },
		"a node never locked":   func(q *api.Sequencer) { q.Path, q.Instance, q.Mode, q.LockGeneration = "/file", file, 0, 0 },
		"another mode":          func(q *api.Sequencer) { q.Mode = api.Shared },
		"another instance":      func(q *api.Sequencer) { q.Instance++ },
		"an earlier generation": func(q *api.Sequencer) { q.LockGeneration-- },
		"a later generation":    func(q *api.Sequencer) { q.LockGeneration++ },
	} {
		other := q
		change(&other)
		if l.Valid(other) {
			t.Errorf("%s: %+v is valid", name, other)
		}
	}
	l.do(Command{Op: OpRelease, Session: 11, Path: "/l"})
	free := q
	free.Mode = 0
	if l.Valid(q) || l.Valid(free) {
		t.Error("a sequencer of a lock that is free is valid")
	}
}

// TestLockModes: a lock-delay reports the mode in which the lock was held, and only shared modes
// are compatible.
func TestLockModes(t *testing.T) {
	const shared, exclusive = api.Shared, api.Exclusive
	for _, c := range []struct {
		l                     *lockState
		held                  api.Mode
		noShared, noExclusive bool // what it excludes
	}{
		{nil, 0, false, false},
		{&lockState{}, 0, false, false},
		{&lockState{holders: 1, mode: shared, delayMode: exclusive}, shared, false, true},
		{&lockState{holders: 1, mode: exclusive, delayMode: shared}, exclusive, true, true},
		{&lockState{holders: 2, mode: shared}, shared, false, true},
		{&lockState{delay: 1, delayMode: shared}, shared, false, true},
		{&lockState{delay: 1, delayMode: exclusive}, exclusive, true, true},
		{&lockState{holders: 1, mode: shared, delay: 1, delayMode: exclusive}, shared, true, true},
		{&lockState{holders: 1, mode: shared, delay: 1, delayMode: shared}, shared, false, true},
	} {
		if got := c.l.heldMode(); got != c.held {
			t.Errorf("%+v is held in mode %v, want %v", c.l, got, c.held)
		}
		if s, e := c.l.excludes(shared), c.l.excludes(exclusive); s != c.noShared || e != c.noExclusive {
			t.Errorf("%+v excludes shared %v, exclusive %v", c.l, s, e)
		}
	}
}
