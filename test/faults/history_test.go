package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
)

// entry is a line of a client's history. Exactly one of its parts is set.
type entry struct {
	// At is when it was written; for a call, before the call was made.
	At   int64
	Op   int64    `json:",omitempty"` // number of an operation, in its call and its answer
	Call *call    `json:",omitempty"`
	Got  *answer  `json:",omitempty"`
	Hold *hold    `json:",omitempty"` // begin of a hold
	Held int64    `json:",omitempty"` // number of a hold that is believed in at At
	Bad  string   `json:",omitempty"` // a violation found by the client itself
	Tell *tallies `json:",omitempty"` // the client's counters, at its end
}

// call is an operation on a register.
type call struct {
	Kind string // "get", "cached" (a get too), "set", "delete"
	Path string
	// Value is the value of a set: all are distinct.
	Value string `json:",omitempty"`
	// Gen is the generation to compare; AnyGeneration for none. Old is the value that came with it.
	Gen uint64 `json:",omitempty"`
	Old string `json:",omitempty"`
}

// answer is the outcome of a call.
type answer struct {
	// Void: nothing was changed or learnt. Unknown: the outcome is unknown.
	Void, Unknown bool `json:",omitempty"`
	// Refused: the generation found was Gen.
	Refused bool   `json:",omitempty"`
	Gen     uint64 `json:",omitempty"` // found or created; zero: no file
	Value   string `json:",omitempty"` // found
	Error   string `json:",omitempty"`
}

// hold is a lock as a client acquired it.
type hold struct {
	Number  int64
	Lock    string
	Shared  bool `json:",omitempty"`
	Session uint64
	Gen     uint64
}

// tallies count a client's operations.
type tallies struct{ Answers, Unknown, Void, CacheReads, Holds, Ephemerals, Sessions int }

// recorder writes a client's history. Each entry is one write, so a kill loses at most the entry
// that was about to be written.
type recorder struct {
	mu   sync.Mutex
	file *os.File
}

func (r *recorder) put(e any) {
	b, err := json.Marshal(e)
	if err == nil {
		r.mu.Lock()
		_, err = r.file.Write(append(b, '\n'))
		r.mu.Unlock()
	}
	if err != nil {
		panic("write history: " + err.Error())
	}
}

func (r *recorder) bad(format string, args ...any) {
	r.put(entry{At: now(), Bad: fmt.Sprintf(format, args...)})
}

// span is a hold as reconstructed from a history.
type span struct {
	hold
	client   int
	from, to int64
}

// histories are the histories of all clients, one after the other.
type histories struct {
	ops     []porcupine.Operation
	holds   []*span
	bad     []string
	entries int
	tally   tallies
}

// read adds the history of one process.
func (h *histories) read(client int, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	calls := make(map[int64]entry)
	holds := make(map[int64]*span)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: %q: %w", path, lines.Bytes(), err)
		}
		h.entries++
		switch {
		case e.Call != nil:
			calls[e.Op] = e
		case e.Got != nil:
			h.add(client, calls[e.Op], *e.Got, e.At)
			delete(calls, e.Op)
		case e.Hold != nil:
			s := &span{hold: *e.Hold, client: client, from: e.At, to: e.At}
			holds[s.Number] = s
			h.holds = append(h.holds, s)
		case e.Held != 0:
			holds[e.Held].to = max(holds[e.Held].to, e.At)
		case e.Bad != "":
			h.bad = append(h.bad, fmt.Sprintf("client %d: %s", client, e.Bad))
		case e.Tell != nil:
			h.addTallies(*e.Tell)
		}
	}
	for _, e := range calls { // it was killed meanwhile
		h.add(client, e, answer{Unknown: true}, math.MaxInt64)
	}
	return lines.Err()
}

func (h *histories) addTallies(t tallies) {
	h.tally.Answers += t.Answers
	h.tally.Unknown += t.Unknown
	h.tally.Void += t.Void
	h.tally.CacheReads += t.CacheReads
	h.tally.Holds += t.Holds
	h.tally.Ephemerals += t.Ephemerals
	h.tally.Sessions += t.Sessions
}

// add adds an operation, unless it neither changed nor showed anything.
func (h *histories) add(client int, c entry, got answer, at int64) {
	reads := c.Call.Kind == "get" || c.Call.Kind == "cached"
	if got.Void || got.Unknown && reads {
		return
	}
	if got.Unknown {
		// It may take effect at any later time, or never, which is equivalent to an effect at the
		// end.
		at = math.MaxInt64
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: *c.Call, Call: c.At, Output: got, Return: at})
}

// readHistories reads the histories in files that tests wrote.
func readHistories(t *testing.T, paths []string) *histories {
	t.Helper()
	h := &histories{}
	for i, p := range paths {
		if err := h.read(i, p); err != nil {
			t.Fatal(err)
		}
	}
	return h
}
