package workload

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// Infinity is the return time of an operation that may take effect at any later time.
const Infinity int64 = math.MaxInt64

// Outcome is what a client knows about an operation.
type Outcome string

// The outcomes. A failed operation was certainly not executed. One of unknown outcome was executed,
// will be executed, or neither.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
)

// History records the operations of all clients. It is safe for concurrent use and never blocks
// while it holds its lock.
type History struct {
	started time.Time

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		last   int64
		ops    []Op
		values int
	}
}

// NewHistory returns an empty history, whose time starts now.
func NewHistory() *History { return &History{started: time.Now()} }

// Now returns a time in nanoseconds since the start of the history. All times that it returns are
// different and grow, so that they order events of the same instant.
func (h *History) Now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nowLocked()
}

// micros returns the time in µs since the start of the history.
func (h *History) micros() int64 { return h.Now() / 1000 }

// stamp returns a timestamp of a cell in µs since the start of the history.
func (h *History) stamp(timestamp int64) int64 { return timestamp - h.started.UnixMicro() }

func (h *History) nowLocked() int64 {
	h.mu.last = max(h.mu.last+1, int64(time.Since(h.started)))
	return h.mu.last
}

// Begin records the call of an operation, whose outcome is unknown until End. It returns the
// operation with its number and time.
func (h *History) Begin(op Op) Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	op.Number, op.Call = len(h.mu.ops), h.nowLocked()
	op.Return, op.Outcome = Infinity, Unknown
	h.mu.ops = append(h.mu.ops, op)
	return op
}

// End records the results of an operation and the outcome that err means. It returns the operation.
func (h *History) End(op Op, err error) Op {
	op.Outcome, op.Reason = Classify(err)
	if err != nil {
		op.Error = err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	op.Return = h.nowLocked()
	if op.Outcome == Unknown {
		op.Return = Infinity
	}
	h.mu.ops[op.Number] = op
	return op
}

// EndPartly is End for an operation of which a part may be executed if it fails, or executed later.
func (h *History) EndPartly(op Op, err error) Op {
	op = h.End(op, err)
	if op.Outcome != Failed {
		return op
	}
	op.Outcome, op.Return = Unknown, Infinity
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.ops[op.Number] = op
	return op
}

// created reports whether the creation of the table with that id was acknowledged.
func (h *History) created(id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.mu.ops, func(op Op) bool { return op.Kind == Create && op.Outcome == OK && op.TableID == id })
}

// Violation records a violation that a client has found by itself.
func (h *History) Violation(of int, text string) {
	h.End(h.Begin(Op{Client: of, Kind: Note, Bad: text}), nil)
}

// Ops returns the operations, in the order of their calls.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Op(nil), h.mu.ops...)
}

// number returns a number that it has not returned before, for a unique value.
func (h *History) number() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.values++
	return h.mu.values
}

// Reason is why an operation was not executed, as far as judges use it.
type Reason string

// The reasons.
const (
	NoReason Reason = ""
	NoTable  Reason = "no table"
	NoFamily Reason = "no family"
	NoBlob   Reason = "no blob"
	NoBackup Reason = "no backup"
	NoView   Reason = "no view"
	Denied   Reason = "permission denied"
	OverRate Reason = "quota exceeded"
	// Wrong is an error that no client should get, whatever the faults: corrupt data, for example.
	Wrong Reason = "wrong"
)

// Classify returns the outcome of a call with this error. An error that does not mean that the
// outcome is unknown means that nothing was changed.
func Classify(err error) (Outcome, Reason) {
	var denied *client.PermissionError
	switch {
	case err == nil:
		return OK, NoReason
	case errors.Is(err, client.ErrAmbiguous) || errors.Is(err, api.ErrOutcomeUnknown):
		return Unknown, NoReason
	case errors.As(err, &denied) && denied.Executed:
		return Unknown, Denied
	}
	for _, known := range []struct {
		err    error
		reason Reason
	}{
		{client.ErrPermission, Denied}, {client.ErrQuota, OverRate}, {client.ErrNoTable, NoTable}, {client.ErrTableReplaced, NoTable},
		{client.ErrNoFamily, NoFamily}, {client.ErrNoBlob, NoBlob}, {client.ErrNoBackup, NoBackup}, {table.ErrNoView, NoView}, {client.ErrCorrupt, Wrong}, {client.ErrNotNumber, Wrong},
		{client.ErrBadFilter, Wrong}, {client.ErrRowTooLarge, Wrong}, {client.ErrSystemTable, Wrong},
	} {
		if errors.Is(err, known.err) {
			return Failed, known.reason
		}
	}
	return Failed, NoReason
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
