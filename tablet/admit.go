package tablet

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/memtable"
)

// overloadRetry is the retry-after of a rejected write: about the duration of one minor compaction.
const overloadRetry = 500 * time.Millisecond

// rowMutationBytes returns the approximate memory of rm in the memtable. Every entry there has a
// whole key, including the row's, in which zero bytes are escaped as two.
func rowMutationBytes(rm *table.RowMutation) int64 {
	const entry = 96 // rest of the key, node, alignment
	row := escapedLen(rm.Row)
	n := int64(0)
	if rm.Token != nil {
		n = row + int64(len(tokenFamily.Name)+2*sha256.Size) + entry
	}
	for i := range rm.Mutations {
		m := &rm.Mutations[i]
		n += row + escapedLen(m.Qualifier) + int64(len(m.Family)+len(m.Value)) + entry
	}
	return n
}

// admission checks the mutations of writes and charges their memory (I13).
type admission struct {
	cfg     *Config
	limits  *table.Limits
	follow  *table.Limits // of changes of followers: the row's position does not count
	memory  *budget.Writes
	closing <-chan struct{}
	blocked func() error // returns why memtables cannot be written out, or nil

	stalls, overloads atomic.Int64 // writers that waited for memory; writers rejected
}

// chargeBytes returns the memory that rm is charged until it is in the memtable. It is its size
// there and its encoded form, plus the part above LogBatchBytes, since a mutation larger than a log
// batch has a batch to itself. The additional charges leave half of the memory to others; otherwise
// rm would wait forever while they write.
func (a *admission) chargeBytes(rm *table.RowMutation) int64 {
	n := rowMutationBytes(rm)
	return n + max(0, min(n+max(0, n-a.cfg.LogBatchBytes), a.cfg.MemtablesBytesMax/2-n))
}

func escapedLen(b []byte) int64 { return int64(len(b) + bytes.Count(b, []byte{0})) }

// check returns the mutation as a caller with that access may make it. The mutation of a follower has the row's position beside the change.
func (a *admission) check(sc *schema, rm *table.RowMutation, of Access, follower bool) (*table.RowMutation, error) {
	switch {
	case of != nil:
		return of.Write(sc.table, rm)
	case follower:
		return rm, rm.Validate(sc.table, a.follow)
	}
	return rm, rm.Validate(sc.table, a.limits)
}

// positionBytes bounds the names and the value of a row's position, in bytes.
const positionBytes = 64

// followLimits returns the limits of changes of followers.
func followLimits(l table.Limits) *table.Limits {
	l.Mutations++
	l.RowMutationBytes += positionBytes
	return &l
}

// admit waits until there is memory for a checked mutation, and charges it. The charge must be
// released. admit does not wait while the tablet accepts no writes: the error is errFenced then.
func (a *admission) admit(t *Tablet, rm *table.RowMutation, traced *trace.Record) error {
	n := rowMutationBytes(rm)
	if n > a.mutationMax() && n-a.positionMemory(rm) > a.mutationMax() {
		return &table.LimitError{What: "row mutation bytes in memory (each mutation counts the row key)", Limit: a.mutationMax(), Got: n}
	}
	n = a.chargeBytes(rm)
	if a.tryCharge(t, n) {
		return nil
	}
	a.stalls.Add(1)
	defer traced.Since(trace.WriteSpace, traced.Now())
	a.memory.BeginWait()
	defer a.memory.EndWait()
	deadline := time.NewTimer(a.cfg.OverloadWait)
	defer deadline.Stop()
	for {
		freed := a.memory.Freed()
		if a.tryCharge(t, n) {
			return nil
		}
		if t.fence.raised.Load() != nil {
			return errFenced
		}
		select {
		case <-freed:
		case <-a.closing:
			return ErrClosed
		case <-deadline.C:
			a.overloads.Add(1)
			if err := a.blocked(); err != nil {
				return err
			}
			return &api.OverloadedError{Reason: a.overloadReason(t), RetryAfter: overloadRetry}
		}
	}
}

// positionMemory returns the memory of a row's position in a mutation; 0 if it has none.
func (a *admission) positionMemory(rm *table.RowMutation) int64 {
	last := rm.Mutations[len(rm.Mutations)-1:]
	if last[0].Family != table.PositionFamily {
		return 0
	}
	return rowMutationBytes(&table.RowMutation{Row: rm.Row, Mutations: last})
}

// mutationMax is the largest memory of one row mutation. It is held by one memtable, so it is
// bounded by the size of a memtable and by the memory for all of them.
func (a *admission) mutationMax() int64 {
	return min(max(a.memory.Max(), 2*a.limits.ValueBytes), memtable.BytesMax/2)
}

// tryCharge charges n bytes for a write of t if they are free and t has not too many files. A high
// priority tablet's writes are always admitted.
func (a *admission) tryCharge(t *Tablet, n int64) bool {
	if t.highPriority {
		a.memory.Charge(n)
		return true
	}
	return !t.views.stalled.Load() && a.memory.TryCharge(n)
}

func (a *admission) overloadReason(t *Tablet) string {
	if t.views.stalled.Load() {
		return fmt.Sprintf("compactions are behind: a locality group of tablet %d has %d files", t.id, a.cfg.FilesMax)
	}
	return a.memory.String()
}
