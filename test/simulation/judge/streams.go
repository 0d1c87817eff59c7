package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/steledb/stele/test/simulation/workload"
)

// mutation identifies mutations of a row that are equal in a change stream. Most have a value or an operand that no other has.
type mutation struct{ table, row, text string }

// sentMutation is what is known of equal mutations.
type sentMutation struct {
	certain, possible []*workload.Op // acknowledged, and of unknown outcome
	// again means that one of them may have been made several times, since the client repeats it.
	again bool
}

// streams checks the calls of the readers of change streams.
func streams(ops []workload.Op) (all []Violation) {
	j := streamJudge{ops: ops, sent: map[mutation]*sentMutation{}}
	last := map[int]bool{} // calls after which none continues
	for i := range ops {
		op := &ops[i]
		j.addSent(op)
		if op.Kind == workload.ReadStream && op.Outcome == workload.OK {
			delete(last, op.Stream.After)
			last[op.Number] = true
		}
	}
	for i := range ops {
		op := &ops[i]
		switch {
		case op.Kind != workload.ReadStream || op.Outcome != workload.OK:
		case last[op.Number]:
			all = append(all, j.chain(op)...)
		case len(op.Stream.Changes) == 0 && op.Stream.After >= 0:
			all = append(all, j.complete(op, j.path(op))...)
		}
	}
	return all
}

// streamJudge checks the calls of readers of change streams.
type streamJudge struct {
	ops  []workload.Op
	sent map[mutation]*sentMutation
}

// addSent adds the mutations that an operation has made, or may have made.
func (j *streamJudge) addSent(op *workload.Op) {
	if !isRow(op) || op.Outcome == workload.Failed {
		return
	}
	known := op.Outcome == workload.OK
	if len(op.Changes) > 0 && (op.Kind != workload.Check || !known || op.Matched) {
		j.add(op, op.Changes)
	}
	if len(op.Otherwise) > 0 && (!known || !op.Matched) {
		j.add(op, op.Otherwise)
	}
}

func (j *streamJudge) add(op *workload.Op, changes []workload.Change) {
	m := mutation{op.Table, op.Row, textOf(changes)}
	s := j.sent[m]
	if s == nil {
		s = &sentMutation{}
		j.sent[m] = s
	}
	if op.Outcome == workload.OK {
		s.certain = append(s.certain, op)
	} else {
		s.possible = append(s.possible, op)
	}
	s.again = s.again || op.Kind == workload.Write && repeatable(changes)
}

// repeatable reports whether the client may send a mutation again: what the server assigns and what is added to cells must not happen twice.
func repeatable(changes []workload.Change) bool {
	return !slices.ContainsFunc(changes, func(x workload.Change) bool {
		return x.Kind == workload.Set && x.At == 0 || x.Kind == workload.Operand && !isDeletion(&workload.Op{Changes: changes})
	})
}

// textOf returns changes of a row as a stream shows them, without what the server decides: the values of counters and the server timestamps.
func textOf(changes []workload.Change) string {
	var b strings.Builder
	for _, x := range changes {
		b.WriteString(textOfChange(x) + ", ")
	}
	return b.String()
}

func textOfChange(x workload.Change) string {
	at := ""
	if workload.Explicit(x.At) {
		at = fmt.Sprintf(" at %d", x.At)
	}
	switch x.Kind {
	case workload.Increment:
		return "count " + x.Column
	case workload.Append:
		return "log " + x.Column + " " + lastEntry(x.Value)
	case workload.Operand:
		return fmt.Sprintf("operand %s %s%s", x.Column, workload.OperandText(x), at)
	case workload.Set:
		switch {
		case workload.Counter(x.Column):
			return "count " + x.Column
		case workload.IsLog(x.Column):
			return "log " + x.Column + " " + lastEntry(x.Value)
		}
		return "set " + x.Column + " " + x.Value + at
	case workload.DeleteVersions:
		if x.From == math.MinInt64 && x.To == math.MaxInt64 {
			return "delete " + x.Column
		}
		return fmt.Sprintf("delete %s from %d to %d", x.Column, x.From, x.To)
	}
	return "delete " + x.Column
}

// lastEntry returns the entry that was appended last to a value.
func lastEntry(value string) string {
	value = strings.TrimSuffix(value, ";")
	return value[strings.LastIndexByte(value, ';')+1:]
}

// path returns the calls from the beginning of a stream to op, in order.
func (j *streamJudge) path(op *workload.Op) (calls []*workload.Op) {
	for ; op.Stream.After >= 0; op = &j.ops[op.Stream.After] {
		calls = append(calls, op)
	}
	calls = append(calls, op)
	slices.Reverse(calls)
	return calls
}

// eachChange calls f for each change of a chain of calls.
func eachChange(calls []*workload.Op, f func(op *workload.Op, x *workload.StreamChange, m mutation)) {
	for _, op := range calls {
		for i := range op.Stream.Changes {
			x := &op.Stream.Changes[i]
			f(op, x, mutation{op.Table, x.Row, textOf(x.Changes)})
		}
	}
}

// chain checks all calls of a chain of tokens.
func (j *streamJudge) chain(end *workload.Op) (all []Violation) {
	calls := j.path(end)
	seqs, latest, times := map[string]uint64{}, map[string]*workload.Op{}, map[mutation]int{}
	eachChange(calls, func(op *workload.Op, x *workload.StreamChange, m mutation) {
		bad := func(text string, ops ...workload.Op) {
			all = append(all, violation("change streams", fmt.Sprintf("the change %s(%d) of row %s in the stream of table %s %s", m.text, x.Seq, x.Row, op.Table, text), append(ops, *op)...))
		}
		if x.Seq <= seqs[x.Row] {
			bad(fmt.Sprintf("comes after the change %d of the row", seqs[x.Row]))
		}
		seqs[x.Row] = x.Seq
		s := j.sent[m]
		switch {
		case s == nil && strings.HasSuffix(x.Row, "\x00"): // the world deletes such rows to see whether a tablet can be written
			return
		case s == nil:
			bad("was never sent, or its write has failed")
			return
		}
		if times[m]++; times[m] > len(s.certain)+len(s.possible) && !s.again {
			bad(fmt.Sprintf("comes %d times", times[m]), s.ops()...)
		}
		if w := s.only(); w != nil {
			if before := latest[x.Row]; before != nil && w.Return < before.Call {
				bad("comes after one that was sent later", *w, *before)
			}
			if latest[x.Row] == nil || w.Call > latest[x.Row].Call {
				latest[x.Row] = w
			}
			if stamp := wrongStamp(x, w.Stamp); stamp != 0 {
				bad(fmt.Sprintf("has the timestamp %d", stamp), *w)
			}
		}
	})
	if len(end.Stream.Changes) == 0 {
		all = append(all, j.complete(end, calls)...)
	}
	return all
}

// wrongStamp returns a server timestamp of a change that is not the one of its write; 0 if there is none, or that of the write is not known.
func wrongStamp(x *workload.StreamChange, stamp int64) int64 {
	for _, c := range x.Changes {
		if c.Kind == workload.Set && stamp != 0 && !workload.Explicit(c.At) && c.At != stamp {
			return c.At
		}
	}
	return 0
}

func (s *sentMutation) ops() (all []workload.Op) {
	for _, op := range slices.Concat(s.certain, s.possible) {
		all = append(all, *op)
	}
	return all
}

// only returns the operation if there is one, which was made once; nil otherwise.
func (s *sentMutation) only() *workload.Op {
	both := slices.Concat(s.certain, s.possible)
	if len(both) != 1 || s.again {
		return nil
	}
	return both[0]
}

// complete checks a call that returned no change: all that was acknowledged before it must have been returned before it.
func (j *streamJudge) complete(end *workload.Op, calls []*workload.Op) (all []Violation) {
	times := map[mutation]int{}
	eachChange(calls, func(_ *workload.Op, _ *workload.StreamChange, m mutation) { times[m]++ })
	var lost []workload.Op
	for m, s := range j.sent {
		if m.table != end.Table {
			continue
		}
		before := slices.Clone(s.certain)
		before = slices.DeleteFunc(before, func(op *workload.Op) bool { return op.Return >= end.Call || op.Call <= calls[0].Return })
		if times[m] < len(before) {
			lost = append(lost, *before[len(before)-1])
		}
	}
	slices.SortFunc(lost, func(a, b workload.Op) int { return a.Number - b.Number })
	if len(lost) > 0 {
		all = append(all, violation("change streams", fmt.Sprintf("%d mutations that were acknowledged are not in the stream of table %s", len(lost), end.Table), append(lost[:min(len(lost), 5)], *end)...))
	}
	return all
}
