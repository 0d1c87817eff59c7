package rpc

import (
	"strconv"
	"testing"
	"testing/synctest"
)

// TestSlotsAreExact: an owner gets as many slots as remain free, calls without an owner get all,
// and waiters go first.
func TestSlotsAreExact(t *testing.T) {
	took := func(s *shares, owner string) (n int) {
		for s.acquire(owner) {
			n++
		}
		return n
	}
	for max, want := range map[int]int{1: 1, 2: 1, 3: 2, 8: 4, 9: 5} {
		var s shares
		s.init(max)
		if got := took(&s, "ann"); got != want {
			t.Errorf("a single owner gets %d of %d slots, want %d", got, max, want)
		}
		if got := took(&s, ""); got != max-want || s.total != max {
			t.Errorf("calls without an owner get %d of the other %d", got, max-want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var s shares
		s.init(2)
		for range 2 {
			if !s.acquire("") {
				t.Fatal("two of two slots")
			}
		}
		got := make(chan bool, 1)
		go func() { got <- s.await("ann", nil, nil) }()
		synctest.Wait()
		s.mu.Lock()
		s.max = 9 // enough for one more
		s.mu.Unlock()
		if s.acquire("ann") {
			t.Error("a call overtakes a waiter")
		}
		s.mu.Lock()
		s.max = 2
		s.mu.Unlock()
		s.release("")
		synctest.Wait()
		if len(got) != 1 || !<-got || s.owners["ann"].used != 1 || s.total != 2 || len(s.waiting) != 0 {
			t.Errorf("after a release ann has %d of %d", s.owners["ann"].used, s.total)
		}
	})
}

// TestIdleOwnersAreForgotten: 1,024 owners are remembered; with one more, those without calls are
// removed.
func TestIdleOwnersAreForgotten(t *testing.T) {
	var s shares
	s.init(10)
	if !s.acquire("busy") {
		t.Fatal("no slot")
	}
	for i := range ownersMax - 1 {
		s.ownerLocked(strconv.Itoa(i))
	}
	if len(s.owners) != ownersMax {
		t.Errorf("%d owners are remembered, want %d", len(s.owners), ownersMax)
	}
	s.ownerLocked("one more")
	if len(s.owners) != 2 || s.owners["busy"] == nil || s.owners["busy"].used != 1 {
		t.Errorf("%d owners are remembered, want the busy one and the last", len(s.owners))
	}
}

// TestPushIsExact: calls are queued while their owner may have one more, and none overtakes a
// waiter.
func TestPushIsExact(t *testing.T) {
	var q workQueue
	q.init(4, 1)
	for i, want := range []bool{true, true, false} {
		if got := q.push(&Call{owner: "ann"}); got != want {
			t.Errorf("call %d of ann is queued: %v", i, got)
		}
	}
	q.owners["ann"].waiters = []*slotWaiter{{}}
	q.max = 10
	if q.push(&Call{owner: "ann"}) {
		t.Error("a call overtakes a waiter")
	}
	for i := range 8 {
		if !q.push(&Call{}) {
			t.Errorf("call %d of none is not queued", i)
		}
	}
	if q.push(&Call{}) {
		t.Error("an eleventh call is queued")
	}
}
