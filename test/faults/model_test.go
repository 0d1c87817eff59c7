package faults

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/raftmeta/api"
)

// register is the model's state of a file; the zero value means no file.
type register struct {
	Value string
	// Gen is its generation. If Vague, the generation is only known to be above Gen, because the
	// writer's answer was lost.
	Gen   uint64
	Vague bool
}

func (r register) exists() bool { return r.Value != "" }

// is reports whether the register may have that generation and value, and returns its state if so.
// Values are written once, so a value determines the generation; "" matches any.
func (r register) is(gen uint64, value string) (register, bool) {
	switch {
	case !r.Vague:
		return r, r.Gen == gen && (value == "" || value == r.Value)
	case gen > r.Gen && (value == "" || value == r.Value):
		return register{Value: r.Value, Gen: gen}, true
	}
	return r, false
}

// step applies an operation with its outcome, and reports whether the outcome is possible.
func (r register) step(c call, got answer) (register, bool) {
	switch {
	case c.Kind == "get" || c.Kind == "cached":
		if got.Gen == 0 {
			return r, !r.exists()
		}
		return r.is(got.Gen, got.Value)
	case got.Unknown:
		return r.perhaps(c), true
	case got.Refused:
		if got.Gen == 0 {
			return r, !r.exists() && c.Gen != 0
		}
		next, ok := r.is(got.Gen, "")
		return next, ok && got.Gen != c.Gen && !(r.Vague && c.Gen != 0 && c.Old == r.Value)
	}
	if c.Gen != api.AnyGeneration {
		next, ok := r.is(c.Gen, c.Old)
		if !ok {
			return r, false
		}
		r = next
	}
	if c.Kind == "delete" {
		return register{}, r.exists()
	}
	return register{Value: c.Value, Gen: got.Gen}, got.Gen > r.Gen
}

// perhaps applies an operation if it finds what it compares with.
func (r register) perhaps(c call) register {
	if c.Gen != api.AnyGeneration {
		if c.Gen == 0 && r.exists() {
			return r
		}
		if _, ok := r.is(c.Gen, c.Old); !ok {
			return r
		}
	}
	if c.Kind == "delete" {
		return register{}
	}
	return register{Value: c.Value, Gen: r.Gen, Vague: true}
}

// registers is the model of files (FL1).
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byPath := map[string][]porcupine.Operation{}
		for _, op := range history {
			path := op.Input.(call).Path
			byPath[path] = append(byPath[path], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byPath {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		next, ok := state.(register).step(input.(call), output.(answer))
		return ok, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// withoutUnseen removes writes of unknown outcome whose value was never read. If the others are
// linearizable, all are, since these may be ordered last. The checker, which would try each of them
// everywhere, is much faster without them.
func withoutUnseen(history []porcupine.Operation) (less []porcupine.Operation) {
	seen := map[string]bool{}
	for _, op := range history {
		seen[op.Output.(answer).Value] = true
		seen[op.Input.(call).Old] = true
	}
	for _, op := range history {
		if c := op.Input.(call); !op.Output.(answer).Unknown || c.Value != "" && seen[c.Value] {
			less = append(less, op)
		}
	}
	return less
}

// overlaps returns the violations of FL2 and FL3 among the holds.
func overlaps(holds []*span) (broken []string) {
	byLock := map[string][]*span{}
	for _, s := range holds {
		if s.to == s.from {
			continue // it was lost before its session checked
		}
		byLock[s.Lock] = append(byLock[s.Lock], s)
	}
	for lock, all := range byLock {
		slices.SortFunc(all, func(a, b *span) int { return int(a.from - b.from) })
		for i, a := range all {
			for _, b := range all[i+1:] {
				if a.Session == b.Session || a.Shared && b.Shared {
					continue
				}
				if b.from < a.to {
					broken = append(broken, fmt.Sprintf("lock %s: held at once for %.1f ms: %+v and %+v", lock, float64(min(a.to, b.to)-b.from)/1e6, *a, *b))
				}
				if b.Gen <= a.Gen {
					broken = append(broken, fmt.Sprintf("lock %s: the later hold has no larger generation: %+v, then %+v", lock, *a, *b))
				}
			}
		}
	}
	return broken
}

// shortest returns the shortest prefix of one register's operations that no order explains, in the
// order of their answers.
func shortest(part []porcupine.Operation) string {
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	// Unanswered operations may have been executed.
	until := func(n int) (history []porcupine.Operation) {
		end := part[n-1].Return
		for i, op := range part {
			if i >= n {
				if op.Call > end || op.Input.(call).Value == "" && op.Input.(call).Kind != "delete" {
					continue
				}
				op.Output, op.Return = answer{Unknown: true}, math.MaxInt64
			}
			history = append(history, op)
		}
		return history
	}
	n := sort.Search(len(part), func(i int) bool { return !porcupine.CheckOperations(registers, until(i+1)) }) + 1
	n = min(n, len(part))
	var text strings.Builder
	for _, op := range until(n)[max(0, n-12):] {
		fmt.Fprintf(&text, "  client %d, %.3f to %.3f ms: %+v → %+v\n", op.ClientId, float64(op.Call)/1e6, float64(op.Return)/1e6, op.Input, op.Output)
	}
	return text.String()
}
