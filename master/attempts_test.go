package master

import (
	"testing"
	"time"
)

// TestAttemptPauses: after its first failed attempt a node is deferred for a second, then for twice
// as long each time, up to five minutes.
func TestAttemptPauses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	all := attempts{}
	for failures, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		all.fail("b", now)
		if got := all["b"].retry().Sub(now); got != want*time.Second {
			t.Errorf("after %d failures the pause is %v, want %v", failures+1, got, want*time.Second)
		}
	}
	all["b"].failures = 1 << 40
	if got := all["b"].retry().Sub(now); got != retryMax {
		t.Errorf("after very many failures the pause is %v", got)
	}
}

// TestAttemptsDefer: a node is deferred until its next attempt, and while it is staged for long
// without catching up. Earlier failures no longer count after a restart, or when it has caught up.
func TestAttemptsDefer(t *testing.T) {
	failed := time.Unix(1_000_000, 0)
	staged := Voter{ID: "b", Staged: true}
	for name, c := range map[string]struct {
		server   Server
		group    []Voter
		failures int
		behind   time.Duration // before failed; 0 if it is not staged
		after    time.Duration
		deferred bool
		kept     bool // earlier failures still count
	}{
		"never failed":                  {Server{Alive: true, Since: time.Hour}, nil, 0, 0, 0, false, false},
		"failed just now":               {Server{Alive: true, Since: time.Hour}, nil, 3, 0, 0, true, true},
		"just before its next attempt":  {Server{Alive: true, Since: time.Hour}, nil, 3, 0, 4*time.Second - 1, true, true},
		"at its next attempt":           {Server{Alive: true, Since: time.Hour}, nil, 3, 0, 4 * time.Second, false, true},
		"restarted since":               {Server{Alive: true, Since: time.Second - 1}, nil, 3, 0, time.Second, false, false},
		"restarted at the same moment":  {Server{Alive: true, Since: time.Second}, nil, 3, 0, time.Second, true, true},
		"gone since":                    {Server{Since: time.Second - 1}, nil, 3, 0, time.Second, true, true},
		"has a vote":                    {Server{Alive: true, Since: time.Hour}, []Voter{{ID: "b"}}, 3, 0, 0, false, false},
		"staged and caught up":          {Server{Alive: true, Since: time.Hour}, []Voter{{ID: "b", Staged: true, CaughtUp: true}}, 3, 0, 0, false, false},
		"staged just now":               {Server{Alive: true, Since: time.Hour}, []Voter{staged}, 3, 0, 0, false, true},
		"staged for nearly long":        {Server{Alive: true, Since: time.Hour}, []Voter{staged}, 3, stable - 1, 0, false, true},
		"staged for long":               {Server{Alive: true, Since: time.Hour}, []Voter{staged}, 3, stable, 0, true, true},
		"another one is in the group":   {Server{Alive: true, Since: time.Hour}, []Voter{{ID: "c"}}, 3, 0, 0, true, true},
		"no longer staged, was at fail": {Server{Alive: true, Since: time.Hour}, nil, 3, stable, 0, true, true},
	} {
		all := attempts{}
		for range c.failures {
			all.fail("b", failed)
		}
		if c.behind != 0 {
			all.of("b").behind = failed.Add(-c.behind)
		}
		c.server.ID = "b"
		servers := []Server{c.server}
		all.apply(servers, c.group, stable, failed.Add(c.after))
		if servers[0].Deferred != c.deferred {
			t.Errorf("%s: deferred is %v", name, servers[0].Deferred)
		}
		if kept := all["b"] != nil && all["b"].failures > 0; kept != c.kept {
			t.Errorf("%s: %+v of its failures is kept, want %v", name, all["b"], c.kept)
		}
		if _, in := find(c.group, "b"); !in && all["b"] != nil && !all["b"].behind.IsZero() {
			t.Errorf("%s: it is behind since %v, and not staged", name, all["b"].behind)
		}
	}
}

// TestStagedTimeBeginsOnce: the time for which a staged node has not caught up starts when it is
// first seen.
func TestStagedTimeBeginsOnce(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	all, group := attempts{}, []Voter{{ID: "b", Staged: true}}
	deferred := func(after time.Duration) bool {
		servers := []Server{{ID: "b", Alive: true, Since: time.Hour}}
		all.apply(servers, group, stable, now.Add(after))
		return servers[0].Deferred
	}
	for _, after := range []time.Duration{0, stable / 2, stable - 1} {
		if deferred(after) {
			t.Errorf("it is deferred after %v", after)
		}
	}
	if !deferred(stable) {
		t.Error("it is not deferred though it does not catch up")
	}
}
