package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/steledb/stele/internal/testseed"
)

// TestLinearizableThroughFaults has clients call any server of a group while servers are killed,
// partitioned in one or both directions or slowed, and leadership is transferred. Porcupine checks
// that the history is linearizable. STELE_SOAK multiplies the duration.
func TestLinearizableThroughFaults(t *testing.T) {
	t.Parallel()
	seed := testseed.New(t)
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil {
		rounds = n
	}
	for round := range rounds {
		for _, voters := range []int{3, 5} {
			linearizable(t, rand.New(rand.NewPCG(seed, uint64(round))), voters, 6)
		}
	}
}

// linearizable runs one group through a number of faults.
func linearizable(t *testing.T, rng *rand.Rand, voters, faults int) {
	c := newCluster(t, voters, func(_ string, c *Config) { c.SnapshotBytes = 64 << 10 })
	c.leader()
	h := &history{start: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	const clients, paths = 8, 6
	for w := range clients {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() {
			known := map[string]uint64{}
			at := "n1"
			for i := 0; ctx.Err() == nil; i++ {
				call := randomCall(rng, paths, known)
				call.data = fmt.Sprintf("%d-%d", w, i)
				at = h.call(t, c, w, at, call, known, rng)
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
			}
		})
	}
	for range faults {
		c.fault(rng)
	}
	c.mesh.healAll()
	for i := range voters {
		if id := fmt.Sprint("n", i+1); c.group(id) == nil {
			c.open(id)
		}
	}
	c.set("/end", "x") // the group works again
	cancel()
	wg.Wait()
	c.same()
	h.check(t)
	c.close()
	c.groups, c.dirs = map[string]*Group{}, map[string]string{}
}

// fault injects one fault for a while.
func (c *cluster) fault(rng *rand.Rand) {
	ids := c.ids()
	id := ids[rng.IntN(len(ids))]
	if rng.IntN(2) == 0 {
		id = c.leader().cfg.ID
	}
	pause := time.Duration(50+rng.IntN(250)) * time.Millisecond
	switch rng.IntN(7) {
	case 0, 1:
		c.kill(id)
		time.Sleep(pause)
		c.open(id)
	case 2:
		c.isolate(id, true)
		time.Sleep(pause)
	case 3, 4:
		in := rng.IntN(2) == 0
		for _, other := range ids {
			if other == id {
				continue
			}
			if in {
				c.mesh.set(other, id, true)
			} else {
				c.mesh.set(id, other, true)
			}
		}
		time.Sleep(pause)
	case 5:
		for _, other := range ids {
			c.mesh.slow(other, id, time.Duration(rng.IntN(40))*time.Millisecond)
		}
		time.Sleep(pause)
	case 6:
		ctx, cancel := context.WithTimeout(context.Background(), pause)
		_ = c.leader().TransferLeadership(ctx, "")
		cancel()
	}
	c.mesh.healAll()
	time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
}

// history is the record of all clients' calls.
type history struct {
	start time.Time
	mu    sync.Mutex
	calls []porcupine.Operation
	lost  int
}

// call makes one call at server at, and returns the server to call next. Calls that changed nothing
// and returned nothing are not recorded.
func (h *history) call(t *testing.T, c *cluster, client int, at string, call regCall, known map[string]uint64, rng *rand.Rand) string {
	g := c.group(at)
	anywhere := fmt.Sprint("n", 1+rng.IntN(5))
	if g == nil {
		return anywhere
	}
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	op := porcupine.Operation{ClientId: client, Input: call, Call: int64(time.Since(h.start))}
	var a regAnswer
	var err error
	switch call.kind {
	case "get":
		var f File
		f, err = g.Get(ctx, call.path)
		a = regAnswer{"ok", f.Generation, string(f.Data)}
	case "set":
		a.kind = "ok"
		a.gen, err = g.Set(ctx, call.path, []byte(call.data), call.gen)
	case "delete":
		a.kind = "ok"
		err = g.Delete(ctx, call.path, call.gen)
	}
	op.Return = int64(time.Since(h.start))
	var differs *GenerationError
	var not *NotLeaderError
	unknown := false
	switch {
	case err == nil:
	case errors.As(err, &differs):
		a = regAnswer{kind: "differs", gen: differs.Got}
	case errors.Is(err, ErrNotFound):
		a = regAnswer{kind: "not found"}
	case errors.As(err, &not) && not.Leader != "":
		return not.Leader
	case errors.Is(err, ErrNotReady), errors.Is(err, ErrClosed) && !errors.Is(err, ErrOutcomeUnknown):
		return anywhere
	case errors.Is(err, ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		if call.kind == "get" || !errors.Is(err, ErrOutcomeUnknown) {
			return anywhere
		}
		a, unknown = regAnswer{kind: "unknown"}, true
	default:
		t.Errorf("%+v: %v", call, err)
		return anywhere
	}
	known[call.path] = a.gen
	h.mu.Lock()
	defer h.mu.Unlock()
	if unknown {
		// The call never ends, so the client continues under another id.
		h.lost++
		op.Return, op.ClientId, at = int64(time.Hour), 1000+len(h.calls), anywhere
	}
	op.Output = a
	h.calls = append(h.calls, op)
	return at
}

func (h *history) check(t *testing.T) {
	t.Helper()
	t.Logf("%d calls, %d with unknown outcome", len(h.calls), h.lost)
	slices.SortFunc(h.calls, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	if r := porcupine.CheckOperationsTimeout(regModel, h.calls, time.Minute); r != porcupine.Ok {
		t.Errorf("porcupine says %v", r)
	}
}
