package sched

import (
	"sync"
	"time"
)

// Debts bounds how fast users cause work whose cost is not in proportion to what they send. Each piece of work adds its cost to the debt of its
// user, and to that of all users. Debts decay over time. Work begins only if both stay within their limits. A user's limit is below that of all,
// so one user leaves work to others. The zero value has no debts; Limits must be set. It is safe for concurrent use.
type Debts struct {
	User, All Limit

	// mu guards the fields below.
	mu    sync.Mutex
	all   debt
	users map[string]debt // at most All.Most / the smallest cost of them
}

// Limit is a limit of a debt.
type Limit struct {
	Most      float64
	PerSecond float64 // by which it decays
}

// debt is a debt at a time.
type debt struct {
	amount float64
	at     time.Time
}

// now returns the debt at a time.
func (d debt) now(l Limit, now time.Time) float64 {
	return max(0, d.amount-max(0, now.Sub(d.at).Seconds())*l.PerSecond)
}

// wait returns after which time a debt may grow by cost; 0 means now. A cost above the limit needs a debt of 0.
func (l Limit) wait(owed, cost float64) time.Duration {
	excess := min(owed+cost-l.Most, owed)
	return time.Duration(max(0, excess) / l.PerSecond * float64(time.Second))
}

// Take adds the cost of work that a user begins at the time now. If a limit does not permit it yet, it adds nothing, and returns how long to wait.
// A user without a name counts for all users only.
func (d *Debts) Take(now time.Time, user string, cost float64) (wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, x := range d.users {
		if x.now(d.User, now) == 0 {
			delete(d.users, name)
		}
	}
	all, own := d.all.now(d.All, now), d.users[user].now(d.User, now)
	wait = d.All.wait(all, cost)
	if user != "" {
		wait = max(wait, d.User.wait(own, cost))
	}
	if wait > 0 {
		return wait
	}
	d.all = debt{all + cost, now}
	if user != "" {
		if d.users == nil {
			d.users = map[string]debt{}
		}
		d.users[user] = debt{own + cost, now}
	}
	return 0
}
