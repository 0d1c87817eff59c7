package raftmeta

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestEventQueueIsExact: events have numbers without gaps, go when they are acknowledged, and give way to one FailedOver as soon
// as all sessions together have as many as may be.
func TestEventQueueIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, v := newSolo(t)
		if _, err := v.Set(t.Context(), "/f", nil, 0, api.SetOptions{}); err != nil {
			t.Fatal(err)
		}
		id := caching(t, v, time.Minute)
		k, _, _ := v.current()
		k.mu.Lock()
		defer k.mu.Unlock()
		s := k.mu.sessions[id]
		start, before := s.last, k.mu.queued
		if len(s.events) != 0 {
			t.Fatalf("%d events are queued", len(s.events))
		}
		state := func(what string, first, last uint64, events, queued int) {
			t.Helper()
			if s.first != start+first || s.last != start+last || len(s.events) != events || k.mu.queued != queued {
				t.Errorf("%s: %d events from %d to %d, %d of all sessions: want %d from %d to %d, %d of all", what,
					len(s.events), s.first-start, s.last-start, k.mu.queued, events, first, last, queued)
			}
		}
		for i := range uint64(3) {
			if got := k.pushLocked(s, api.Event{}); got != start+1+i {
				t.Errorf("event %d has number %d", i, got-start)
			}
		}
		state("three pushed", 1, 3, 3, before+3)
		s.sent = start + 3
		k.ackLocked(s, start+1)
		state("the first acknowledged", 2, 3, 2, before+2)
		k.ackLocked(s, start+1)
		k.ackLocked(s, start)
		state("acknowledged again", 2, 3, 2, before+2)
		k.ackLocked(s, start+9)
		state("more acknowledged than sent", 4, 3, 0, before)

		k.mu.queued = queuedMax - 2
		for range 2 {
			k.pushLocked(s, api.Event{})
		}
		state("as many as may be", 4, 5, 2, queuedMax)
		if got := k.pushLocked(s, api.Event{}); got != start+6 || s.events[0].Kind != api.FailedOver {
			t.Errorf("one more has number %d, and the first event is %v", got-start, s.events[0].Kind)
		}
		state("one more", 6, 6, 1, queuedMax-1)
		s.sent = s.last
		k.ackLocked(s, s.last)
		state("all acknowledged", 7, 6, 0, queuedMax-2)
		k.mu.queued = queuedMax // of others
		k.pushLocked(s, api.Event{})
		state("the only event of a session", 7, 7, 1, queuedMax+1)
		s.sent = s.last
		k.ackLocked(s, s.last)
		k.mu.queued = before
	})
}

// TestLockModes: the mode of its lock-delay marks a lock as free, and only shared modes go together.
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
