package gossip_test

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/steledb/stele/node/gossip"
)

// TestFleet: how long it takes until all know a new member, and until all know of a
// death, over loopback: memberlist's mock network blocks senders to a member that
// has died. 20 members, and 200 with STELE_SOAK, in one process. Those would be
// starved of processors and think each other dead, so all their times are 4 times
// longer, and the figures divided by 4.
func TestFleet(t *testing.T) {
	n, slower := 20, 1
	if os.Getenv("STELE_SOAK") != "" {
		n, slower = 200, 4
		// Memberlist takes 64 KiB for each packet that comes: 200 members in one process
		// would do nothing but collect that.
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30))
	}
	rings, took := fleet(t, n, slower)
	t.Logf("%d members know each other after %v", n, took.Round(time.Millisecond))
	if n > 20 {
		time.Sleep(20 * time.Second) // until the news of so many joins at once are old
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
	all(t, rings, func(r *gossip.Ring) bool { return alive(r) == n }) // nobody else died of it, or not for long
}

func report(t *testing.T, slower int, what string, took []time.Duration) {
	t.Helper()
	at := func(p float64) time.Duration {
		return (took[int(p*float64(len(took)-1))] / time.Duration(slower)).Round(time.Millisecond)
	}
	t.Logf("%s: by the first after %v, by half %v, by all %v", what, at(0), at(0.5), at(1))
}
