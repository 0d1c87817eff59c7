package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/test/simulation/workload"
)

// fileState is the model's state of a file; the zero value means no file.
type fileState struct {
	value string
	// generation is its generation. If vague, the generation is only known to be above it, because
	// the writer's answer was lost.
	generation uint64
	vague      bool
}

var fileModel = model[fileState]{step: fileStep, equal: func(a, b fileState) bool { return a == b }}

// is reports whether the file may have that generation and value, and returns its state if so.
// Values are written once, so a value determines the generation; "" matches any.
func (s fileState) is(generation uint64, value string) (fileState, bool) {
	switch {
	case !s.vague:
		return s, s.generation == generation && (value == "" || value == s.value)
	case generation > s.generation && (value == "" || value == s.value):
		return fileState{value: s.value, generation: generation}, true
	}
	return s, false
}

// fileStep applies an operation with its outcome, and reports whether the outcome is possible.
func fileStep(s fileState, op *workload.Op) (fileState, bool) {
	f := op.File
	switch {
	case op.Kind == workload.GetFile || op.Kind == workload.CachedFile:
		if f.FoundGeneration == 0 {
			return s, s.value == ""
		}
		return s.is(f.FoundGeneration, f.FoundValue)
	case op.Outcome == workload.Unknown:
		return s.perhaps(op), true
	case f.Refused && f.FoundGeneration == 0:
		return s, s.value == "" && f.Generation != 0
	case f.Refused:
		next, ok := s.is(f.FoundGeneration, "")
		return next, ok && s.value != "" && f.FoundGeneration != f.Generation && !(s.vague && f.Generation != 0 && f.Old == s.value)
	}
	if f.Generation != api.AnyGeneration {
		next, ok := s.is(f.Generation, f.Old)
		if !ok {
			return s, false
		}
		s = next
	}
	if op.Kind == workload.DeleteFile {
		return fileState{}, s.value != ""
	}
	return fileState{value: f.Value, generation: f.FoundGeneration}, f.FoundGeneration > s.generation
}

// perhaps applies an operation if it finds what it compares with.
func (s fileState) perhaps(op *workload.Op) fileState {
	f := op.File
	if f.Generation != api.AnyGeneration {
		if f.Generation == 0 && s.value != "" {
			return s
		}
		if _, ok := s.is(f.Generation, f.Old); !ok {
			return s
		}
	}
	if op.Kind == workload.DeleteFile {
		return fileState{}
	}
	return fileState{value: f.Value, generation: s.generation, vague: true}
}

// files checks the operations on each file.
func (r *Report) files(ops []workload.Op, o Options) {
	parts := map[string][]workload.Op{}
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case workload.GetFile, workload.CachedFile, workload.SetFile, workload.DeleteFile:
			if counts(op) {
				parts[op.File.Path] = append(parts[op.File.Path], *op)
			}
		}
	}
	r.Files = len(parts)
	judgeParts(r, &fileModel, "files", parts, o)
}

// judgeParts checks the parts of a history by a model.
func judgeParts[S any](r *Report, m *model[S], invariant string, parts map[string][]workload.Op, o Options) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		switch m.check(parts[name], o.Steps) {
		case undecided:
			r.Undecided = append(r.Undecided, fmt.Sprintf("%s: %s: %d operations", invariant, name, len(parts[name])))
		case wrong:
			short := m.shortest(parts[name], o.Steps)
			r.Violations = append(r.Violations, violation(invariant, "no order explains the operations on "+name, short...))
		}
	}
}

// lockState is the model's state of a lock: the holds of it, and its last generation.
type lockState struct {
	holds      []int // by number of their operations, sorted
	shared     bool
	generation uint64
}

const releaseLock workload.Kind = "release lock"

var lockModel = model[lockState]{
	step: lockStep,
	equal: func(a, b lockState) bool {
		return slices.Equal(a.holds, b.holds) && a.shared == b.shared && a.generation == b.generation
	},
}

// lockStep acquires or releases a lock.
func lockStep(s lockState, op *workload.Op) (lockState, bool) {
	at, holds := slices.BinarySearch(s.holds, op.Number)
	if op.Kind == releaseLock {
		if holds {
			s.holds = slices.Delete(slices.Clone(s.holds), at, at+1)
		}
		return s, holds
	}
	h := op.Hold
	switch {
	case len(s.holds) == 0 && h.Generation > s.generation:
		s.shared, s.generation = h.Shared, h.Generation
	case len(s.holds) == 0 || !s.shared || !h.Shared || h.Generation != s.generation:
		return s, false
	}
	s.holds = slices.Insert(slices.Clone(s.holds), at, op.Number)
	return s, true
}

// locks checks the holds of each lock. A hold is an acquisition between the call and the return of
// Acquire, and a release after its session believed in it for the last time. If it never did, because the
// answer came when its lease was over, the leader may have released the lock before the answer.
func (r *Report) locks(ops []workload.Op, o Options) {
	parts := map[string][]workload.Op{}
	for _, op := range holdsOf(ops) {
		acquire, release := op, op
		acquire.Return = op.Hold.From
		release.Kind, release.Call, release.Return = releaseLock, op.Hold.To, op.Hold.Released
		if op.Hold.From == op.Hold.To {
			release.Call = op.Call
		}
		parts[op.Hold.Lock] = append(parts[op.Hold.Lock], acquire, release)
	}
	r.Locks = len(parts)
	judgeParts(r, &lockModel, "locks", parts, o)
}

// holdsOf returns the holds, in the order in which they were acquired.
func holdsOf(ops []workload.Op) (all []workload.Op) {
	for _, op := range ops {
		if op.Kind == workload.HoldLock && op.Outcome == workload.OK {
			all = append(all, op)
		}
	}
	slices.SortStableFunc(all, func(a, b workload.Op) int { return cmp.Compare(a.Hold.From, b.Hold.From) })
	return all
}

// holds returns holds of a lock that overlap, and generations that do not grow.
func holds(ops []workload.Op) (all []Violation) {
	held := holdsOf(ops)
	for i, op := range held {
		a := op.Hold
		for _, other := range held[i+1:] {
			b := other.Hold
			if a.Lock != b.Lock || a.Session == b.Session || a.Shared && b.Shared || a.From == a.To || b.From == b.To {
				continue
			}
			if b.From < a.To {
				all = append(all, violation("holds", fmt.Sprintf("two sessions hold lock %s for %.3f ms", a.Lock, float64(min(a.To, b.To)-b.From)/1e6), op, other))
			}
			if b.Generation <= a.Generation {
				all = append(all, violation("holds", fmt.Sprintf("the later hold of lock %s has generation %d, the earlier %d", a.Lock, b.Generation, a.Generation), op, other))
			}
		}
	}
	return all
}
