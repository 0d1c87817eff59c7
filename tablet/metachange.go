package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/tablet/sched"
)

// metaChanges makes changes of METADATA rows whose outcome must be known before the server goes on.
type metaChanges struct {
	cfg  *Config
	life *lifetime
}

// metaTimeout bounds a metadata change. 30 s: several elections of the lock service.
const metaTimeout = 30 * time.Second

// metaClosing is how long a metadata change may continue once the server closes. The next server of
// the tablet determines its outcome, as after a crash.
const metaClosing = 2 * time.Second

// context returns a context that bounds a metadata change.
func (c *metaChanges) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), metaTimeout)
	stop := context.AfterFunc(c.life.ctx, func() { time.AfterFunc(metaClosing, cancel) })
	return ctx, func() { stop(); cancel() }
}

// split creates the row of low, which is split off up. The error means that it did not happen,
// except ErrClosed, after which the outcome is unknown.
func (c *metaChanges) split(low, up *Meta) error {
	return c.settle(func(ctx context.Context, again bool) error {
		err := c.cfg.Metadata.Split(ctx, low, up)
		if !again || !errors.Is(err, ErrMetaChanged) {
			return err
		}
		saved, loadErr := c.cfg.Metadata.Load(ctx, low.Table, low.End)
		if loadErr != nil {
			if errors.Is(loadErr, ErrNoMeta) {
				return err
			}
			return loadErr
		}
		if saved.ID == low.ID { // an earlier attempt succeeded
			return nil
		}
		return err
	})
}

// remove deletes the row of old, a tablet that was merged. The error means that it did not happen,
// except ErrClosed, after which the outcome is unknown.
func (c *metaChanges) remove(old *Meta) error {
	return c.settle(func(ctx context.Context, again bool) error {
		err := c.cfg.Metadata.Remove(ctx, old)
		if !again || !errors.Is(err, ErrMetaChanged) {
			return err
		}
		_, loadErr := c.cfg.Metadata.Load(ctx, old.Table, old.End)
		if errors.Is(loadErr, ErrNoMeta) { // an earlier attempt succeeded
			return nil
		}
		if loadErr != nil {
			return loadErr
		}
		return err
	})
}

// settle repeats try until its outcome is known, since otherwise it would be unknown what to serve.
// The error is one of Metadata's that mean that the change did not happen, or ErrClosed of this
// server or of Metadata.
func (c *metaChanges) settle(try func(ctx context.Context, again bool) error) error {
	pauses := timing.Backoff{Min: settlePauseMin, Max: settlePauseMax}
	for n := 0; ; n++ {
		ctx, cancel := c.context()
		err := try(ctx, n > 0)
		cancel()
		if errors.Is(err, ErrClosed) {
			return ErrClosed
		}
		if err == nil || errors.Is(err, ErrMetaChanged) || errors.Is(err, ErrMetaLost) || errors.Is(err, ErrMetaTooLarge) {
			return err
		}
		pause := pauses.Next()
		c.cfg.Logger.Warn("metadata change outcome unknown", "err", err, "retry_in", pause)
		c.life.sleep(pause)
		select {
		case <-c.life.closing:
			return ErrClosed
		default:
		}
	}
}

// Pauses between attempts of a metadata change with an unknown outcome.
const (
	settlePauseMin = 5 * time.Millisecond
	settlePauseMax = time.Second
)

// metadataRow is a tablet's row of METADATA, which only this server changes while it serves the tablet.
type metadataRow struct {
	cfg     *Config
	changes *metaChanges
	views   *viewSet
	lost    func(error) // called when the tablet was assigned to another server

	// lastMajor is LastMajor of the row, in µs, for readers that must not wait for a change.
	lastMajor atomic.Int64
	// clears is whether the row's range tombstones are due for a major compaction.
	clears atomic.Bool

	// mu guards the fields below. It is held while a change is made durable and its view is
	// installed.
	mu      sync.Mutex
	current *Meta // as in Metadata; immutable, replaced as a whole
	closed  bool  // unloaded: no more changes
	// unclear are the parts of bulk imports that a change of unknown outcome has named. The next change makes the outcome known.
	unclear []PartID
}

// change makes a metadata change durable and then installs the corresponding view. On error the
// view is not installed; unclear reports that the metadata may have changed all the same.
//
// It does not end with ctx. It releases ctx's slot while it waits: see sched.Slot.
func (r *metadataRow) change(ctx context.Context, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	return r.changeIf(ctx, func(*Meta) error { return nil }, change, install)
}

// changeIf is change on the condition that precondition, called with the current metadata,
// returns nil. Otherwise it returns that error.
func (r *metadataRow) changeIf(ctx context.Context, precondition func(m *Meta) error, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	sched.WithoutSlot(ctx, func() { unclear, err = r.changeNow(precondition, change, install) })
	return unclear, err
}

func (r *metadataRow) changeNow(precondition func(m *Meta) error, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed() {
		return false, errUnloaded
	}
	if err := precondition(r.current); err != nil {
		return false, err
	}
	next := cloneMeta(r.current)
	next.forgetParts(r.cfg.Now)
	change(next)
	next.checkAfter(r.current)
	moment.Pass("before a tablet's metadata is saved", "")
	if unclear, err = r.save(next); err != nil {
		return unclear, fmt.Errorf("save metadata of tablet %d: %w", next.ID, err)
	}
	moment.Pass("a tablet's metadata is saved", "")
	r.views.install(func(v *view) {
		install(v)
		v.setChanges(next)
	})
	return false, nil
}

// save makes next the durable metadata. mu is held. It does not end with the caller's context: the
// outcome of a change must be known before the next one. unclear reports that after the error the
// change may still have happened.
func (r *metadataRow) save(next *Meta) (unclear bool, err error) {
	ctx, cancel := r.changes.context()
	defer cancel()
	err = r.cfg.Metadata.Save(ctx, next)
	if err == nil {
		r.set(next)
		return false, nil
	}
	// Another writer may have changed the row after this change was made. Its row then names the
	// files too.
	unclear = !errors.Is(err, ErrMetaTooLarge) && !errors.Is(err, ErrMetaUnsent) && !planted.On(planted.MetaOutcomeAssumed)
	if errors.Is(err, ErrMetaLost) {
		r.closed = true
		r.lost(err)
		return unclear, err
	}
	// Only this server changes the row while it serves the tablet. If the row has changed, an
	// earlier attempt took effect after it was given up. The next attempt replaces what that one
	// wrote.
	saved, loadErr := r.cfg.Metadata.Load(ctx, next.Table, next.End)
	wrote := string(EncodeMeta(next))
	if loadErr != nil || string(EncodeMeta(saved)) != wrote || wrote == string(EncodeMeta(r.current)) { // the last: it may not have been made
		return unclear, err
	}
	r.set(next)
	return false, nil
}

// set sets the current metadata, without a change of the row.
func (r *metadataRow) set(m *Meta) {
	r.current, r.unclear = m, nil
	r.lastMajor.Store(m.LastMajor.UnixMicro())
	r.clears.Store(len(m.Cleared) >= clearsDue || m.Cleared.Bytes() >= clearBytesMax/2)
}

// manyClears reports whether the tablet has so many range tombstones that a major compaction is due.
func (r *metadataRow) manyClears() bool { return r.clears.Load() }

// isClosed reports whether the row must not change any more. mu is held.
func (r *metadataRow) isClosed() bool { return r.closed || r.views.isDropped() }

// close prevents further changes.
func (r *metadataRow) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// majorLate reports whether the major compaction is so overdue that it must not pause any more
// (I10).
func (r *metadataRow) majorLate() bool {
	return r.cfg.Now().After(r.majorDue().Add(r.cfg.MajorPeriod / 16))
}

// majorDue returns the time of the tablet's next major compaction. It is an eighth of the period
// before the deadline, because other tablets may be due at the same time and each takes a while.
func (r *metadataRow) majorDue() time.Time {
	return time.UnixMicro(r.lastMajor.Load()).Add(r.cfg.MajorPeriod / 8 * 7)
}

// majorIsDue reports whether a major compaction is due.
func (r *metadataRow) majorIsDue() bool { return r.manyClears() || !r.cfg.Now().Before(r.majorDue()) }

const (
	// partsKept is how long a tablet's metadata names a committed part, so that a client whose answer was lost learns that it was committed.
	// Clients repeat a commit for api.BulkCommitWait at most, by their own clocks; the rest is for clocks that differ.
	partsKept = 3 * api.BulkCommitWait
	// partsMax is the number of such parts, 24 bytes each in METADATA.
	partsMax = 1024
)

// committed reports whether the row has a part, as of a moment when the outcome of its commit is known. Errors: errGone, *UnknownOutcomeError.
func (r *metadataRow) committed(ctx context.Context, id PartID) (bool, error) {
	var cause error
	for range settleAttempts {
		r.mu.Lock()
		current, unclear, closed := r.current, slices.Contains(r.unclear, id), r.isClosed()
		r.mu.Unlock()
		switch {
		case closed:
			return false, errGone
		case !unclear:
			return current.hasPart(id), nil
		}
		// When another change has returned, the one that named the part cannot take effect any more.
		if _, cause = r.change(ctx, func(*Meta) {}, func(*view) {}); errors.Is(cause, errUnloaded) {
			return false, errGone
		}
	}
	return false, &UnknownOutcomeError{Cause: cause}
}

// settleParts makes the outcome of commits known before a split, which leaves the row of the upper tablet as it is. mu is held.
func (r *metadataRow) settleParts() error {
	for n := 1; len(r.unclear) > 0; n++ {
		if _, err := r.save(r.current); err != nil && n == settleAttempts {
			return err
		}
	}
	return nil
}

// settleAttempts is how often committed changes the row: an attempt fails if the change that named the part has taken effect, and rereads the row.
const settleAttempts = 3

// hasPart reports whether a part was committed to the tablet lately.
func (m *Meta) hasPart(id PartID) bool {
	return slices.ContainsFunc(m.Parts, func(c CommittedPart) bool { return c.ID == id })
}

// forgetParts removes the parts whose commits are not repeated any more.
func (m *Meta) forgetParts(now func() time.Time) {
	if len(m.Parts) == 0 {
		return
	}
	before := now().Add(-partsKept)
	old := func(c CommittedPart) bool { return c.Time.Before(before) }
	if slices.ContainsFunc(m.Parts, old) {
		m.Parts = slices.DeleteFunc(slices.Clone(m.Parts), old)
	}
}

// manyParts is the error of a change after which a tablet would have more parts than partsMax. None may be forgotten before its time: if its commit were
// repeated, its rows would be written again.
func manyParts(n int) error {
	return &api.OverloadedError{
		Reason:     fmt.Sprintf("tablet would have %d parts of bulk imports of the last %v, and may have %d: send larger parts", n, partsKept, partsMax),
		RetryAfter: partsKept / 10,
	}
}

// joinParts returns the committed parts of two tablets that are merged, oldest first.
func joinParts(lower, upper []CommittedPart) []CommittedPart {
	all := slices.Clone(lower)
	for _, c := range upper {
		if !slices.ContainsFunc(all, func(o CommittedPart) bool { return o.ID == c.ID }) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b CommittedPart) int { return a.Time.Compare(b.Time) })
	return all
}
