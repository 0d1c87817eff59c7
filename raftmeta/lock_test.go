package raftmeta

import (
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// locking is a namespace with the sessions 11, "ann", and 12, "bob", and its lock events.
type locking struct {
	*namespace
	index uint64
	told  []change
}

func newLocking() *locking {
	l := &locking{namespace: newNamespace(), index: 10}
	l.emit = func(c change) {
		switch c.kind {
		case lockAcquired, lockFreed, lockDelayed:
			l.told = append(l.told, c)
		}
	}
	l.do(command{op: opOpenSession, name: "ann", duration: 2 * time.Second})
	l.do(command{op: opOpenSession, name: "bob", duration: 2 * time.Second})
	return l
}

func (l *locking) do(c command) result {
	l.index++
	return l.apply(l.index, 1, &c)
}

func (l *locking) acquire(s api.SessionID, path string, mode api.Mode, delay time.Duration) result {
	return l.do(command{op: opAcquire, session: s, path: path, mode: mode, duration: delay})
}

func (l *locking) expire(s api.SessionID) {
	l.do(command{op: opExpireSession, sessions: []api.SessionID{s}})
}

// TestLockedNamesHolder: an error for a lock names the session that holds it, or its lock-delay.
func TestLockedNamesHolder(t *testing.T) {
	l := newLocking()
	l.acquire(11, "/l", api.Exclusive, 5*time.Second)
	l.acquire(12, "/m", api.Shared, 0)
	if r := l.acquire(12, "/l", api.Shared, 0); r.code != codeLocked || r.path != "/l" || r.mode != api.Exclusive || r.holder != 11 || r.reason != "ann" || r.delay != 0 {
		t.Errorf("a lock that is held: %+v", r)
	}
	if r := l.acquire(11, "/m", api.Exclusive, 0); r.code != codeLocked || r.path != "/m" || r.mode != api.Shared || r.holder != 12 || r.reason != "bob" || r.delay != 0 {
		t.Errorf("a lock that is shared: %+v", r)
	}
	l.expire(11)
	if r := l.acquire(12, "/l", api.Shared, 0); r.code != codeLocked || r.path != "/l" || r.mode != api.Exclusive || r.holder != 0 || r.delay != 5*time.Second {
		t.Errorf("a lock in its lock-delay: %+v", r)
	}
}

// TestLockReleasedByHold: a release of an older hold, by another session, or of an ephemeral file
// releases nothing.
func TestLockReleasedByHold(t *testing.T) {
	l := newLocking()
	first := l.acquire(11, "/l", api.Exclusive, 0).hold
	if r := l.do(command{op: opRelease, session: 11, path: "/l", hold: first}); r.code != codeDone {
		t.Errorf("the first hold: %+v", r)
	}
	second := l.acquire(11, "/l", api.Exclusive, 0).hold
	l.do(command{op: opSet, session: 11, path: "/e", ephemeral: true, generation: AnyGeneration})
	for name, c := range map[string]command{
		"an older hold":     {session: 11, path: "/l", hold: first},
		"another session":   {session: 12, path: "/l", hold: second},
		"any hold of it":    {session: 12, path: "/l"},
		"an ephemeral file": {session: 11, path: "/e"},
		"no node":           {session: 11, path: "/none"},
	} {
		c.op = opRelease
		if r := l.do(c); r.code != codeNotHeld {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := l.do(command{op: opRelease, session: 99, path: "/l"}); r.code != codeNoSession {
		t.Errorf("no session: %+v", r)
	}
	if r := l.do(command{op: opRelease, session: 11, path: "/l"}); r.code != codeDone {
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
	l.do(command{op: opSet, path: "/file", generation: AnyGeneration})
	l.expire(11)
	first := l.get("/l").lock.delayIndex
	l.expire(12)
	last := l.get("/l").lock.delayIndex
	if first == last {
		t.Fatalf("both lock-delays are of index %d", first)
	}
	l.told = nil
	l.do(command{op: opEndLockDelay, delays: []delayRef{{"/none", last}, {"/file", 0}, {"/free", 0}, {"/l", first}}})
	if d := l.get("/l").lock.delay; d != 5*time.Second || len(l.told) != 0 {
		t.Errorf("after stale ends the lock-delay is %v: %+v", d, l.told)
	}
	l.do(command{op: opEndLockDelay, delays: []delayRef{{"/none", last}, {"/file", 0}, {"/free", 0}, {"/l", last}}})
	if lock := l.get("/l").lock; lock.delay != 0 || lock.delayMode != 0 || lock.delayIndex != 0 || len(l.told) != 1 || l.told[0].kind != lockFreed || l.told[0].path != "/l" {
		t.Errorf("after the end the lock is %+v: %+v", *lock, l.told)
	}
	l.do(command{op: opEndLockDelay, delays: []delayRef{{"/l", last}}})
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
	l.do(command{op: opEndLockDelay, delays: []delayRef{{"/l", l.get("/l").lock.delayIndex}}})
	if len(l.told) != 0 || l.get("/l").lock.holders != 1 {
		t.Errorf("a lock that is held: %+v", l.told)
	}
	l.do(command{op: opRelease, session: 12, path: "/l"})
	if len(l.told) != 1 || l.told[0].kind != lockFreed {
		t.Errorf("when the last releases it: %+v", l.told)
	}
}

// TestLockSequencer: a sequencer is valid while the lock of that node is held in that mode without
// interruption.
func TestLockSequencer(t *testing.T) {
	l := newLocking()
	r := l.acquire(11, "/l", api.Exclusive, 0)
	l.do(command{op: opSet, path: "/file", generation: AnyGeneration})
	file := l.get("/file").instance
	q := api.Sequencer{Path: "/l", Mode: api.Exclusive, Instance: r.instance, LockGeneration: r.generation}
	if !l.valid(q) {
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
		if l.valid(other) {
			t.Errorf("%s: %+v is valid", name, other)
		}
	}
	l.do(command{op: opRelease, session: 11, path: "/l"})
	free := q
	free.Mode = 0
	if l.valid(q) || l.valid(free) {
		t.Error("a sequencer of a lock that is free is valid")
	}
}
