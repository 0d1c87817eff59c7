package rpc

import (
	"strconv"
	"testing"
	"testing/synctest"
)

// TestSharesAreExact: an owner gets as many slots as remain free, calls without an owner get all,
// and waiters go first.
func TestSharesAreExact(t *testing.T) {
	took := func(s *shares, owner string) (n int) {
		for s.take(owner) {
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
			if !s.take("") {
				t.Fatal("two of two slots")
			}
		}
		got := make(chan bool, 1)
		go func() { got <- s.await("ann", nil, nil) }()
		synctest.Wait()
		s.mu.Lock()
		s.max = 9 // enough for one more
		s.mu.Unlock()
		if s.take("ann") {
			t.Error("a call overtakes a waiter")
		}
		s.mu.Lock()
		s.max = 2
		s.mu.Unlock()
		s.give("")
		synctest.Wait()
		if len(got) != 1 || !<-got || s.lanes["ann"].used != 1 || s.total != 2 || len(s.waiting) != 0 {
			t.Errorf("after a release ann has %d of %d", s.lanes["ann"].used, s.total)
		}
	})
}

// TestIdleOwnersAreForgotten: 1,024 owners are remembered; with one more, those without calls are
// removed.
func TestIdleOwnersAreForgotten(t *testing.T) {
	var s shares
	s.init(10)
	if !s.take("busy") {
		t.Fatal("no slot")
	}
	for i := range lanesMax - 1 {
		s.laneLocked(strconv.Itoa(i))
	}
	if len(s.lanes) != lanesMax {
		t.Errorf("%d owners are remembered, want %d", len(s.lanes), lanesMax)
	}
	s.laneLocked("one more")
	if len(s.lanes) != 2 || s.lanes["busy"] == nil || s.lanes["busy"].used != 1 {
		t.Errorf("%d owners are remembered, want the busy one and the last", len(s.lanes))
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
	q.lanes["ann"].waiters = []*shareWaiter{{}}
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
