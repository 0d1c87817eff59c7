package gossip_test

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/steledb/stele/node/gossip"
)

// TestScale measures how long it takes until all know a new member, and a death, over loopback:
// memberlist's mock network blocks senders to a dead member. 20 members, and 200 with STELE_SOAK,
// in one process. 200 would be starved of processors and think each other dead, so all their times
// are 4 times longer, and the figures divided by 4.
func TestScale(t *testing.T) {
	n, slower := 20, 1
	if os.Getenv("STELE_SOAK") != "" {
		n, slower = 200, 4
		// Memberlist allocates 64 KiB for each packet received: 200 members in one process would
		// mostly collect garbage.
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	}
	rings, took := startCluster(t, n, slower)
	t.Logf("%d members know each other after %v", n, took.Round(time.Millisecond))
	if n > 20 {
		time.Sleep(20 * time.Second) // until the many joins at once have been distributed
	}

	c := config("new", nil)
	c.Slower(slower)
	fresh := start(t, c)
	join(t, fresh, rings[n/2])
	knew := all(t, rings, func(r *gossip.Ring) bool { _, ok := r.Member("new"); return ok })
	report(t, slower, "a new member is known", knew)

	if err := fresh.UpdateMeta(func(m *gossip.Meta) { m.FreeBytes = 7 }); err != nil {
		t.Fatal(err)
	}
	report(t, slower, "its news are known", all(t, rings, func(r *gossip.Ring) bool { m, _ := r.Member("new"); return m.FreeBytes == 7 }))

	closed := make(chan error)
	go func() { closed <- fresh.Close() }() // as if killed
	report(t, slower, "a death is known", all(t, rings, func(r *gossip.Ring) bool { m, _ := r.Member("new"); return m.State == gossip.Dead }))
	if err := <-closed; err != nil {
		t.Error(err)
	}
	all(t, rings, func(r *gossip.Ring) bool { return alive(r) == n }) // no other member died of it, or not for long
}

func report(t *testing.T, slower int, what string, took []time.Duration) {
	t.Helper()
	at := func(p float64) time.Duration {
		return (took[int(p*float64(len(took)-1))] / time.Duration(slower)).Round(time.Millisecond)
	}
	t.Logf("%s: by the first after %v, by half %v, by all %v", what, at(0), at(0.5), at(1))
}
