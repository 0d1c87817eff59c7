package sched

import (
	"testing"
	"time"
)

// A user works up to its limit, then as fast as its debt decays, and leaves work to others.
func TestDebts(t *testing.T) {
	d := Debts{User: Limit{10, 1}, All: Limit{20, 2}}
	now := time.Unix(1000, 0)
	took := func(user string, cost float64) (n int) {
		for d.Take(now, user, cost) == 0 {
			n++
		}
		return n
	}
	if n := took("ann", 2); n != 5 {
		t.Errorf("ann began %d pieces of work, want 5", n)
	}
	if wait := d.Take(now, "ann", 2); wait != 2*time.Second {
		t.Errorf("ann waits %v, want 2s", wait)
	}
	if n := took("bob", 2); n != 5 {
		t.Errorf("bob began %d pieces of work, want 5", n)
	}
	if wait := d.Take(now, "cid", 2); wait != time.Second {
		t.Errorf("cid waits %v for all, want 1s", wait)
	}
	now = now.Add(-time.Hour) // a clock that goes back lengthens no wait
	if wait := d.Take(now, "ann", 2); wait != 2*time.Second {
		t.Errorf("ann waits %v, want 2s", wait)
	}
	now = now.Add(time.Hour + 4*time.Second)
	if n := took("ann", 2); n != 2 {
		t.Errorf("ann began %d pieces of work after 4 s, want 2", n)
	}
	now = now.Add(time.Minute)
	if n := took("ann", 100); n != 1 || len(d.users) != 1 {
		t.Errorf("%d pieces of work above the limit, want 1; debts of %d users are kept, want 1", n, len(d.users))
	}
	if n := took("", 2); n != 0 {
		t.Errorf("without a name, %d pieces of work above the limit of all", n)
	}
}
