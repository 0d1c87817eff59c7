package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/raftmeta/api"
)

// The history that the linearizability test records: calls on one path.
type regCall struct {
	kind string // "get", "set", "delete"
	path string
	gen  uint64 // of set and delete
	data string // of set
}

type regAnswer struct {
	kind string // "ok", "not found", "differs", "unknown"
	gen  uint64 // got, made, or found instead
	data string // got
}

// regState is a file. gen is zero if there is none, and unseen if it was made by a write whose
// answer was lost.
type regState struct {
	gen  uint64
	data string
}

const unseen = api.AnyGeneration

// regModel is a file with Chubby's semantics. A call without an answer is placed at the end of the
// history, so it may take effect at any moment after its start, or never visibly.
var regModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		paths := map[string][]porcupine.Operation{}
		for _, op := range history {
			p := op.Input.(regCall).path
			paths[p] = append(paths[p], op)
		}
		var parts [][]porcupine.Operation
		for _, p := range paths {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return regState{} },
	Step: func(state, input, output any) (bool, any) {
		return regStep(state.(regState), input.(regCall), output.(regAnswer))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

func regStep(s regState, c regCall, a regAnswer) (bool, any) {
	matches := func(gen uint64) bool { return s.gen == gen || s.gen == unseen && gen != 0 }
	switch {
	case a.kind == "not found":
		return s.gen == 0, s
	case c.kind == "get":
		return matches(a.gen) && s.data == a.data && a.gen != 0, regState{a.gen, s.data}
	case a.kind == "unknown" && c.gen != api.AnyGeneration && !matches(c.gen):
		return true, s
	case a.kind == "unknown" && c.kind == "set":
		return true, regState{unseen, c.data}
	case a.kind == "unknown":
		return true, regState{}
	case a.kind == "differs":
		return matches(a.gen) && a.gen != c.gen, regState{a.gen, s.data}
	case c.gen != api.AnyGeneration && !matches(c.gen):
		return false, s
	case c.kind == "delete":
		return s.gen != 0, regState{}
	}
	return s.gen == unseen || a.gen > s.gen, regState{a.gen, c.data}
}

// TestLinearizable has clients compare-and-set, read and delete a few files, with cancelled calls
// and restarts of the group in between. Porcupine checks that the history is linearizable.
func TestLinearizable(t *testing.T) {
	seed := testseed.New(t)
	const clients, paths, restarts = 16, 5, 4
	dir := t.TempDir()
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	for life := range restarts {
		g := openGroup(t, Config{Dir: dir, SnapshotBytes: 64 << 10})
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		var wg sync.WaitGroup
		for c := range clients {
			rng := rand.New(rand.NewPCG(seed, uint64(life*clients+c)))
			wg.Go(func() {
				known := map[string]uint64{}
				for i := 0; ctx.Err() == nil; i++ {
					call := randomCall(rng, paths, known)
					call.data = fmt.Sprintf("%d-%d-%d", life, c, i)
					op := porcupine.Operation{ClientId: c, Input: call, Call: int64(time.Since(start))}
					answer := makeCall(t, g, rng, call)
					op.Output, op.Return = answer, int64(time.Since(start))
					known[call.path] = answer.gen
					mu.Lock()
					if answer.kind == "unknown" {
						op.Return = int64(time.Hour)
						// The call never ends, so the client continues under another id.
						op.ClientId = clients * (1 + len(history))
					}
					history = append(history, op)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		cancel()
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	unknown := 0
	for _, op := range history {
		if op.Output.(regAnswer).kind == "unknown" {
			unknown++
		}
	}
	t.Logf("%d calls, %d with unknown outcome", len(history), unknown)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	if r := porcupine.CheckOperationsTimeout(regModel, history, 2*time.Minute); r != porcupine.Ok {
		t.Errorf("porcupine says %v", r)
	}
}

func randomCall(rng *rand.Rand, paths int, known map[string]uint64) regCall {
	c := regCall{path: fmt.Sprintf("/reg/%d", rng.IntN(paths))}
	c.gen = known[c.path]
	switch n := rng.IntN(20); {
	case n < 8:
		c.kind = "get"
	case n < 16:
		c.kind = "set"
	case n < 18:
		c.kind, c.gen = "set", api.AnyGeneration
	default:
		c.kind = "delete"
		if c.gen == 0 {
			c.gen = api.AnyGeneration
		}
	}
	return c
}

// makeCall makes the call. At random it cancels calls that do not depend on a generation, so that
// the model knows their effect.
func makeCall(t *testing.T, g *Group, rng *rand.Rand, c regCall) regAnswer {
	ctx := context.Background()
	if c.gen == api.AnyGeneration && rng.IntN(25) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(1500))*time.Microsecond)
		defer cancel()
	}
	var a regAnswer
	var err error
	switch c.kind {
	case "get":
		var f File
		f, err = g.Get(ctx, c.path)
		a = regAnswer{"ok", f.Generation, string(f.Data)}
	case "set":
		a.kind = "ok"
		a.gen, err = g.Set(ctx, c.path, []byte(c.data), c.gen)
	case "delete":
		a.kind = "ok"
		err = g.Delete(ctx, c.path, c.gen)
	}
	var differs *GenerationError
	switch {
	case err == nil:
	case errors.As(err, &differs):
		a = regAnswer{kind: "differs", gen: differs.Got}
	case errors.Is(err, ErrNotFound):
		a = regAnswer{kind: "not found"}
	case errors.Is(err, ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		a = regAnswer{kind: "unknown"}
	default:
		t.Errorf("%+v: %v", c, err)
	}
	return a
}

// TestLinearModelCatches gives the checker invalid histories.
func TestLinearModelCatches(t *testing.T) {
	set := regCall{kind: "set", path: "/f", data: "a"}
	get := regCall{kind: "get", path: "/f"}
	for name, h := range map[string][]porcupine.Operation{
		"stale read": {
			{ClientId: 1, Input: set, Call: 1, Output: regAnswer{kind: "ok", gen: 5}, Return: 2},
			{ClientId: 2, Input: get, Call: 3, Output: regAnswer{kind: "not found"}, Return: 4},
		},
		"two winners": {
			{ClientId: 1, Input: set, Call: 1, Output: regAnswer{kind: "ok", gen: 5}, Return: 9},
			{ClientId: 2, Input: set, Call: 1, Output: regAnswer{kind: "ok", gen: 6}, Return: 9},
		},
		"generation from nowhere": {
			{ClientId: 1, Input: set, Call: 1, Output: regAnswer{kind: "ok", gen: 5}, Return: 2},
			{ClientId: 1, Input: get, Call: 3, Output: regAnswer{kind: "ok", gen: 6, data: "a"}, Return: 4},
		},
		"generation comes back": {
			{ClientId: 1, Input: set, Call: 1, Output: regAnswer{kind: "ok", gen: 5}, Return: 2},
			{ClientId: 1, Input: regCall{kind: "set", path: "/f", gen: 5, data: "b"}, Call: 3, Output: regAnswer{kind: "ok", gen: 5}, Return: 4},
		},
	} {
		if porcupine.CheckOperations(regModel, h) {
			t.Errorf("%s: accepted", name)
		}
	}
}
