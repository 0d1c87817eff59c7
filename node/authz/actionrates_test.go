package authz

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
)

// TestActionRates: a user that administers tables has a burst of actions, then one a second. Users have separate rates.
func TestActionRates(t *testing.T) {
	var r actionRates
	now := time.Now()
	take := func(user string, n int) (taken int) {
		for range n {
			err := r.Take(user, now)
			if err == nil {
				taken++
			} else if !errors.Is(err, api.ErrOverloaded) {
				t.Fatal(err)
			}
		}
		return taken
	}
	if n := take("ann", 1000); n != tableActionsBurst {
		t.Errorf("a burst of %d, want %d", n, tableActionsBurst)
	}
	if n := take("bob", 1); n != 1 {
		t.Error("another user has to wait")
	}
	now = now.Add(10 * time.Second)
	if n := take("ann", 1000); n != 10 {
		t.Errorf("%d actions in 10 s, want 10", n)
	}
}

// TestActionRatesAreBounded: the number of users with a rate of their own is bounded.
func TestActionRatesAreBounded(t *testing.T) {
	var r actionRates
	for i := range 2*tableAdminsMax + 1 {
		if err := r.Take(strconv.Itoa(i), time.Now()); err != nil {
			t.Fatal(err)
		}
		if n := len(r.mu.users); n > tableAdminsMax {
			t.Fatalf("%d users have rates, want at most %d", n, tableAdminsMax)
		}
	}
}
