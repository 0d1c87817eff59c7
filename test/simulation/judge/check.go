package judge

import (
	"cmp"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/steledb/stele/test/simulation/workload"
)

// verdict is the result of the check of a part.
type verdict int

const (
	right verdict = iota
	wrong
	undecided
)

// step applies an operation to a state of a model. ok is false if the operation cannot have its
// outcome there.
type step[S any] func(s S, op *workload.Op) (next S, ok bool)

// model is a sequential specification.
type model[S any] struct {
	step  step[S]
	equal func(a, b S) bool
}

// check checks one part of a history. It first leaves out operations of unknown outcome: if the
// others are linearizable, all are, since these may be ordered last.
func (m *model[S]) check(ops []workload.Op, steps int) verdict {
	known := slices.DeleteFunc(slices.Clone(ops), func(op workload.Op) bool { return op.Outcome == workload.Unknown })
	if v := m.search(known, steps); v == right || len(known) == len(ops) {
		return v
	}
	return m.search(ops, steps)
}

// search looks for an order of all operations. After too many steps it accepts none, so that the
// search ends soon.
func (m *model[S]) search(ops []workload.Op, steps int) verdict {
	var history []porcupine.Operation
	for i := range ops {
		history = append(history, porcupine.Operation{ClientId: ops[i].Client, Input: &ops[i], Call: ops[i].Call, Return: ops[i].Return})
	}
	taken := 0
	ok := porcupine.CheckOperations(porcupine.Model{
		Init: func() any { var s S; return s },
		Step: func(state, input, _ any) (bool, any) {
			if taken++; taken > steps {
				return false, state
			}
			next, ok := m.step(state.(S), input.(*workload.Op))
			return ok, next
		},
		Equal: func(a, b any) bool { return m.equal(a.(S), b.(S)) },
	}, history)
	switch {
	case ok:
		return right
	case taken > steps:
		return undecided
	}
	return wrong
}

// shortest returns the shortest prefix of a wrong part, in the order of returns, that no order
// explains.
func (m *model[S]) shortest(part []workload.Op, steps int) []workload.Op {
	part = slices.Clone(part)
	slices.SortStableFunc(part, func(a, b workload.Op) int { return cmp.Compare(a.Return, b.Return) })
	n := sort.Search(len(part), func(i int) bool { return m.check(prefix(part, i+1), steps) == wrong }) + 1
	short := prefix(part, min(n, len(part)))
	slices.SortStableFunc(short, func(a, b workload.Op) int { return cmp.Compare(a.Call, b.Call) })
	return short
}

// prefix returns what was known when the nth operation returned: later ones that had been called may
// have been executed.
func prefix(part []workload.Op, n int) (history []workload.Op) {
	end := part[n-1].Return
	for i, op := range part {
		if i >= n {
			if op.Call > end || isRead(&op) {
				continue
			}
			op.Outcome, op.Return = workload.Unknown, workload.Infinity
		}
		history = append(history, op)
	}
	return history
}

func isRead(op *workload.Op) bool {
	return op.Kind == workload.Read || op.Kind == workload.GetFile || op.Kind == workload.CachedFile
}

// counts reports whether a model uses an operation: failed ones, and reads of unknown outcome, have
// neither changed nor shown anything.
func counts(op *workload.Op) bool {
	return op.Outcome == workload.OK || op.Outcome == workload.Unknown && !isRead(op)
}
