package faults

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// userEntry is a line of a user's history. Exactly one of its parts is set.
type userEntry struct {
	// At is when it was written; for a call, before the call was made.
	At     int64
	Op     int64          `json:",omitempty"` // number of an operation, in its call and its answer
	Call   *rowCall       `json:",omitempty"`
	Got    *rowAnswer     `json:",omitempty"`
	Bad    string         `json:",omitempty"` // a violation found by the user itself
	Listed int            `json:",omitempty"` // rows of the list, at the end
	Tell   map[string]int `json:",omitempty"` // the user's counters, at its end
}

// rowCall is an operation.
type rowCall struct {
	// Kind is, for a row of the model, "put", "delete", "cas", "incr", "get" or "scan" (from Row, N
	// rows). For others it is "count", an increment by one, "watch", a read of a counter, or
	// "transfer", with number N.
	Kind string
	Row  string
	// Value is the written value: all are distinct. Old is compared.
	Value string `json:",omitempty"`
	Old   string `json:",omitempty"`
	N     int64  `json:",omitempty"`
}

// rowAnswer is the outcome of a call.
type rowAnswer struct {
	// Void: nothing was changed or learnt. Unknown: the outcome is unknown.
	Void, Unknown bool   `json:",omitempty"`
	Matched       bool   `json:",omitempty"` // of a cas or transfer
	Value         string `json:",omitempty"` // of a get
	N             int64  `json:",omitempty"` // of a get, or the sum after an increment
	Stamp         int64  `json:",omitempty"` // server timestamp of a put
	// Rows are the result of a scan. Whole: there are no more.
	Rows  []rowSeen `json:",omitempty"`
	Whole bool      `json:",omitempty"`
	Error string    `json:",omitempty"`
}

// rowSeen is a row in a scan.
type rowSeen struct {
	Row, Value string
	N          int64
}

// rowOp is an operation with its outcome.
type rowOp struct {
	rowCall
	rowAnswer
	client   int
	from, to int64
}

// userHistories are the histories of all users.
type userHistories struct {
	ops    []rowOp
	failed []rowOp // failed operations, with the time of the error
	bad    []string
	counts map[string]int
	listed int
}

// read reads a user's history. The last line of a killed user's may be incomplete.
func (h *userHistories) read(client int, path string, killed bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	calls := make(map[int64]userEntry)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	var torn error
	for lines.Scan() {
		if torn != nil {
			return torn
		}
		var e userEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			torn = fmt.Errorf("%s: %q: %w", path, lines.Bytes(), err)
			continue
		}
		switch {
		case e.Call != nil:
			calls[e.Op] = e
		case e.Got != nil:
			h.add(client, calls[e.Op], *e.Got, e.At)
			delete(calls, e.Op)
		case e.Bad != "":
			h.bad = append(h.bad, fmt.Sprintf("user %d at %.3f s: %s", client, float64(e.At)/1e9, e.Bad))
		case e.Listed != 0:
			h.listed += e.Listed
		case e.Tell != nil:
			for k, n := range e.Tell {
				h.counts[k] += n
			}
		}
	}
	for _, e := range calls { // it was killed meanwhile
		h.add(client, e, rowAnswer{Unknown: true}, math.MaxInt64)
	}
	if torn != nil && !killed {
		return torn
	}
	return lines.Err()
}

// add adds an operation, unless it neither changed nor showed anything.
func (h *userHistories) add(client int, c userEntry, got rowAnswer, at int64) {
	if got.Error != "" {
		h.failed = append(h.failed, rowOp{*c.Call, got, client, c.At, at})
	}
	reads := c.Call.Kind == "get" || c.Call.Kind == "scan" || c.Call.Kind == "watch"
	if got.Void || got.Unknown && reads {
		return
	}
	if got.Unknown {
		// It may take effect at any later time, or never, which is equivalent to an effect at the
		// end.
		at = math.MaxInt64
	}
	h.ops = append(h.ops, rowOp{*c.Call, got, client, c.At, at})
}

// judge checks the histories against the model and the counters. final has the final counters.
func (h *userHistories) judge(final map[string]int64) (bad []string) {
	bad = append(bad, h.bad...)
	byRow := map[string][]rowOp{}
	for _, op := range h.ops {
		kind := op.Kind
		if kind == "watch" {
			kind = "count"
		}
		if kind == "count" || kind == "transfer" {
			byRow[kind+" "+op.Row] = append(byRow[kind+" "+op.Row], op)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(byRow)) {
		ops := byRow[row]
		if kind, key, _ := strings.Cut(row, " "); kind == "count" {
			bad = append(bad, miscounted(key, ops, final[key])...)
		} else {
			bad = append(bad, twice(key, ops)...)
		}
	}
	return append(bad, h.backward()...)
}

// miscounted returns the violations of a counter. Its sums must be distinct and grow with time,
// also for readers. In the end it must be between the acknowledged increments and those that may
// have been made.
func miscounted(row string, ops []rowOp, final int64) (bad []string) {
	acked, unknown, most := int64(0), int64(0), int64(0)
	var known []rowOp
	sums := map[int64]rowOp{}
	for _, op := range ops {
		if op.Unknown {
			unknown++
			continue
		}
		known = append(known, op)
		n := op.rowAnswer.N
		most = max(most, n)
		if op.Kind == "watch" {
			continue
		}
		acked++
		if other, ok := sums[n]; ok {
			bad = append(bad, fmt.Sprintf("counter %s: two increments came to %d: %+v and %+v", row, n, other, op))
		}
		sums[n] = op
	}
	slices.SortFunc(known, func(a, b rowOp) int { return cmp.Compare(a.to, b.to) })
	last := int64(0) // the largest sum that was answered before an operation began
	began := slices.SortedFunc(slices.Values(known), func(a, b rowOp) int { return cmp.Compare(a.from, b.from) })
	for i, j := 0, 0; i < len(began); i++ {
		for ; known[j].to < began[i].from; j++ {
			last = max(last, known[j].rowAnswer.N)
		}
		if n := began[i].rowAnswer.N; n < last || n == last && began[i].Kind != "watch" {
			bad = append(bad, fmt.Sprintf("counter %s: it is %d after it was %d: %+v", row, n, last, began[i]))
		}
	}
	if final < max(acked, most) || final > acked+unknown {
		bad = append(bad, fmt.Sprintf("counter %s is %d in the end after %d acknowledged increments and %d of unknown outcome; it was %d", row, final, acked, unknown, most))
	}
	return bad
}

// twice returns transfers that were made from the same state.
func twice(row string, ops []rowOp) (bad []string) {
	made := map[int64]rowOp{}
	for _, op := range ops {
		if op.Unknown || !op.Matched {
			continue
		}
		if other, ok := made[op.rowCall.N]; ok {
			bad = append(bad, fmt.Sprintf("account %s: transfer %d was made twice: %+v and %+v", row, op.rowCall.N, other, op))
		}
		made[op.rowCall.N] = op
	}
	return bad
}

// backward returns server timestamps of a row that are out of order (I8).
func (h *userHistories) backward() (bad []string) {
	byRow := map[string][]rowOp{}
	for _, op := range h.ops {
		if op.Stamp != 0 {
			byRow[op.Row] = append(byRow[op.Row], op)
		}
	}
	for row, ops := range byRow {
		ended := slices.SortedFunc(slices.Values(ops), func(a, b rowOp) int { return cmp.Compare(a.to, b.to) })
		slices.SortFunc(ops, func(a, b rowOp) int { return cmp.Compare(a.from, b.from) })
		last := int64(0)
		for i, j := 0, 0; i < len(ops); i++ {
			for ; ended[j].to < ops[i].from; j++ {
				last = max(last, ended[j].Stamp)
			}
			if ops[i].Stamp <= last {
				bad = append(bad, fmt.Sprintf("row %s: timestamp %d is given after %d: %+v", row, ops[i].Stamp, last, ops[i]))
			}
		}
	}
	return bad
}

// rowState is the model's state of a row.
type rowState struct {
	value string
	n     int64
}

func (s rowState) step(c rowCall, got rowAnswer) (rowState, bool) {
	switch c.Kind {
	case "get":
		return s, s.value == got.Value && s.n == got.N
	case "put":
		s.value = c.Value
	case "delete":
		s = rowState{}
	case "cas":
		matches := s.value == c.Old
		if matches {
			s.value = c.Value
		}
		return s, got.Unknown || got.Matched == matches
	case "incr":
		s.n++
		return s, got.Unknown || got.N == s.n
	}
	return s, true
}

// rowModel is the model of a row (I2).
var rowModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byRow := map[string][]porcupine.Operation{}
		for _, op := range history {
			row := op.Input.(rowCall).Row
			byRow[row] = append(byRow[row], op)
		}
		return slices.Collect(maps.Values(byRow))
	},
	Init: func() any { return rowState{} },
	Step: func(state, input, output any) (bool, any) {
		next, ok := state.(rowState).step(input.(rowCall), output.(rowAnswer))
		return ok, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

// rowOps returns the operations that the model covers. Scans count as gets of the rows that they
// returned, and of those that they should have returned.
func (h *userHistories) rowOps() (all []porcupine.Operation) {
	add := func(op *rowOp, c rowCall, got rowAnswer) {
		all = append(all, porcupine.Operation{ClientId: op.client, Input: c, Call: op.from, Output: got, Return: op.to})
	}
	first := map[string]int64{} // time of a row's first write
	for i := range h.ops {
		op := &h.ops[i]
		switch op.Kind {
		case "put", "delete", "cas", "incr", "get":
			add(op, op.rowCall, op.rowAnswer)
			if at, ok := first[op.Row]; (!ok || op.from < at) && op.Kind != "get" {
				first[op.Row] = op.from
			}
		}
	}
	known := slices.Sorted(maps.Keys(first))
	for i := range h.ops {
		op := &h.ops[i]
		if op.Kind != "scan" {
			continue
		}
		seen, end := map[string]bool{}, ""
		for _, r := range op.Rows {
			seen[r.Row], end = true, r.Row
			add(op, rowCall{Kind: "get", Row: r.Row}, rowAnswer{Value: r.Value, N: r.N})
		}
		at, _ := slices.BinarySearch(known, op.Row)
		for _, row := range known[at:] {
			if !op.Whole && row > end {
				break
			}
			if !seen[row] && first[row] < op.to {
				add(op, rowCall{Kind: "get", Row: row}, rowAnswer{})
			}
		}
	}
	return all
}

// withoutUnseenRows removes writes of unknown outcome whose value was never read: if the others are
// linearizable, all are, since these may be ordered last.
func withoutUnseenRows(history []porcupine.Operation) (less []porcupine.Operation) {
	seen := map[string]bool{}
	for _, op := range history {
		seen[op.Output.(rowAnswer).Value] = true
		if c := op.Input.(rowCall); c.Kind == "cas" && op.Output.(rowAnswer).Matched {
			seen[c.Old] = true
		}
	}
	for _, op := range history {
		c := op.Input.(rowCall)
		if !op.Output.(rowAnswer).Unknown || c.Value == "" || seen[c.Value] {
			less = append(less, op)
		}
	}
	return less
}

// shortestRow returns the shortest prefix of one row's operations that no order explains, in the
// order of their answers.
func shortestRow(part []porcupine.Operation) string {
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	// Unanswered operations may have been executed.
	until := func(n int) (history []porcupine.Operation) {
		end := part[n-1].Return
		for i, op := range part {
			if i >= n {
				if op.Call > end || op.Input.(rowCall).Kind == "get" {
					continue
				}
				op.Output, op.Return = rowAnswer{Unknown: true}, math.MaxInt64
			}
			history = append(history, op)
		}
		return history
	}
	n := sort.Search(len(part), func(i int) bool { return !porcupine.CheckOperations(rowModel, until(i+1)) }) + 1
	n = min(n, len(part))
	var text strings.Builder
	for _, op := range until(n) {
		fmt.Fprintf(&text, "  user %d, %.3f to %.3f s: %+v → %+v\n", op.ClientId, float64(op.Call)/1e9, float64(op.Return)/1e9, op.Input, op.Output)
	}
	return tail(text.String(), 40)
}
