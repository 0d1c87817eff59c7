package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/tablet/sched"

	"github.com/steledb/stele/tablet/latch"
)

// Tablet is one range of rows of one table, loaded on this server.
type Tablet struct {
	id           uint64
	table        uint64 // id of the table
	server       *Server
	highPriority bool   // see Load.HighPriority
	start        []byte // start < row <= end; empty is no bound
	end          []byte
	schema       atomic.Pointer[schema]
	latches      latch.Stripes

	// applied is the sequence number of the last visible entry. All entries at or below it are in a
	// memtable or a file.
	applied atomic.Uint64

	// stamped is the last server timestamp assigned. Written only under the commit log's lock.
	stamped atomic.Int64

	// fence is not nil while the tablet accepts no writes.
	fence atomic.Pointer[writeFence]

	// claimed has capacity 1. It holds a value while the tablet is unloaded, split or merged.
	claimed chan struct{}

	load load

	// minorFailures counts consecutive failures of the tablet's minor compaction. Guarded by
	// minorLoop's slot.
	minorFailures int
	// minorPending is set while minorLoop writes the tablet out, or waits before a retry.
	minorPending atomic.Bool

	// lastMajor is LastMajor of the metadata, in µs, for readers that must not wait for a metadata
	// change.
	lastMajor atomic.Int64

	// stalled is set while reads have too many files to merge. Writers wait.
	stalled atomic.Bool

	// Used by the applier only.
	mem      *mem
	scratch  []byte
	unloaded bool // later commits are discarded with the tablet

	// minorMu and mergeMu serialize minor compactions, and merging and major ones. Held across I/O.
	// Order: minorMu or mergeMu, then metaMu, then mu.
	minorMu, mergeMu sync.Mutex
	minorWaiters     atomic.Int32 // callers waiting for a minor compaction, which then does not pause

	// metaMu guards the tablet's metadata. It is held while a change is made durable and its view
	// is installed.
	metaMu struct {
		sync.Mutex
		meta   *Meta // as in Metadata; immutable, replaced as a whole
		closed bool  // unloaded: no more changes
	}

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		current *view   // nil when unloaded
		gone    bool    // permanently out of service; see retire
		dropped bool    // dropped together with its metadata
		backlog backlog // counted in Server.backlogs

		interrupt  context.CancelCauseFunc // cancels the running merging or major compaction
		interrupts int                     // waiting callers of stopMerging
	}
}

// holds reports whether row is in the tablet's range.
func (t *Tablet) holds(row []byte) bool {
	return inRange(t.start, t.end, row)
}

// acquire returns the current view and the sequence number to read it at. The caller must release
// the view. The error is errGone.
//
// The number is loaded after the view. A compaction may have dropped entries from the view's files
// that newer ones replaced, and those are then visible too.
func (t *Tablet) acquire() (*view, uint64, error) {
	t.mu.Lock()
	v := t.mu.current
	if v == nil {
		t.mu.Unlock()
		return nil, 0, errGone
	}
	v.refs.Add(1)
	t.mu.Unlock()
	return v, t.applied.Load(), nil
}

// acquireFiles is acquire without memtables, for long work on files: holding the view would keep
// memtables in memory after they are written out. The error is errGone.
func (t *Tablet) acquireFiles() (*view, error) {
	v, _, err := t.acquire()
	if err != nil {
		return nil, err
	}
	defer v.release()
	files := &view{groups: v.groups}
	files.hold()
	return files, nil
}

func (t *Tablet) isDropped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.dropped
}

// drop marks the tablet as dropped, together with its metadata, so that the metadata cannot change
// any more. It does not wait for a pending change, which fails.
func (t *Tablet) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.dropped = true
}

// setCurrent sets the first view of a tablet that is not served yet.
func (t *Tablet) setCurrent(v *view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.current = v
	t.setBacklog(t.server.cfg.backlogOf(v.mostFiles()))
}

// install applies change to a copy of the current view and makes the copy current. If the tablet is
// unloaded, it does nothing and returns false.
func (t *Tablet) install(change func(v *view)) (served bool) {
	t.mu.Lock()
	old := t.mu.current
	if old == nil {
		t.mu.Unlock()
		return false
	}
	next := old.clone()
	change(next)
	most := next.mostFiles()
	stalled := most >= t.server.cfg.FilesMax
	t.setBacklog(t.server.cfg.backlogOf(most))
	next.hold()
	t.mu.current = next
	t.mu.Unlock()
	old.release()
	if t.stalled.Swap(stalled) && !stalled {
		t.server.writeMemory.Signal()
	}
	return true
}

// freeze replaces the active memtable with an empty one and queues it to be written out. It runs on
// the applier.
func (t *Tablet) freeze() {
	if t.mem.Len() == 0 {
		return
	}
	frozen, fresh := t.mem, newMem(t.server.writeMemory)
	frozen.stamped = t.stamped.Load()
	t.mem = fresh
	t.install(func(v *view) {
		v.frozen = append(v.frozen, frozen)
		v.active = fresh
	})
	t.server.minors.queue.Add(t)
}

// unflushed returns the first sequence number that is in no file, or 0.
func (t *Tablet) unflushed() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.mu.current
	if v == nil {
		return 0
	}
	for _, m := range v.frozen {
		if seq := m.minSeq.Load(); seq != 0 {
			return seq
		}
	}
	return v.active.minSeq.Load()
}

// errUnloaded ends a compaction whose tablet was unloaded meanwhile.
var errUnloaded = errors.New("tablet was unloaded")

// changeMeta makes a metadata change durable and then installs the corresponding view. On error the
// view is not installed; unclear reports that the metadata may have changed all the same.
//
// It does not end with ctx. It releases ctx's slot while it waits: see sched.Slot.
func (t *Tablet) changeMeta(ctx context.Context, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	return t.changeMetaIf(ctx, func(*Meta) error { return nil }, change, install)
}

// changeMetaIf is changeMeta on the condition that precondition, called with the current metadata,
// returns nil. Otherwise it returns that error.
func (t *Tablet) changeMetaIf(ctx context.Context, precondition func(m *Meta) error, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	sched.WithoutSlot(ctx, func() { unclear, err = t.changeMetaNow(precondition, change, install) })
	return unclear, err
}

func (t *Tablet) changeMetaNow(precondition func(m *Meta) error, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	t.metaMu.Lock()
	defer t.metaMu.Unlock()
	if t.metaClosed() {
		return false, errUnloaded
	}
	if err := precondition(t.metaMu.meta); err != nil {
		return false, err
	}
	next := cloneMeta(t.metaMu.meta)
	change(next)
	if unclear, err = t.saveMeta(next); err != nil {
		return unclear, fmt.Errorf("save metadata of tablet %d: %w", t.id, err)
	}
	t.install(install)
	return false, nil
}

// saveMeta makes next the durable metadata of t. It does not end with the caller's context: the
// outcome of a change must be known before the next one. unclear reports that after the error the
// change may still have happened.
func (t *Tablet) saveMeta(next *Meta) (unclear bool, err error) {
	ctx, cancel := t.server.metadata.context()
	defer cancel()
	err = t.server.cfg.Metadata.Save(ctx, next)
	if err == nil {
		t.metaMu.meta = next
		t.lastMajor.Store(next.LastMajor.UnixMicro())
		return false, nil
	}
	// Another writer may have changed the row after this change was made. Its row then names the
	// files too.
	unclear = !errors.Is(err, ErrMetaTooLarge) && !errors.Is(err, ErrMetaUnsent)
	if errors.Is(err, ErrMetaLost) {
		t.metaMu.closed = true
		t.server.lost(t, err)
		return unclear, err
	}
	// Only this server changes the row while it serves the tablet. If the row has changed, an
	// earlier attempt took effect after it was given up. The next attempt replaces what that one
	// wrote.
	saved, loadErr := t.server.cfg.Metadata.Load(ctx, t.table, t.end)
	if loadErr != nil || string(EncodeMeta(saved)) != string(EncodeMeta(next)) {
		return unclear, err
	}
	t.metaMu.meta = next
	t.lastMajor.Store(next.LastMajor.UnixMicro())
	return false, nil
}

func cloneMeta(m *Meta) *Meta {
	n := *m
	n.Groups = make([]GroupMeta, len(m.Groups))
	for i, g := range m.Groups {
		n.Groups[i] = GroupMeta{Name: g.Name, Files: append([]FileMeta(nil), g.Files...)}
	}
	return &n
}

// replaceFiles is view.replace for metadata.
func (m *Meta) replaceFiles(name string, removed []*file, added *FileMeta) {
	at := 0
	for at < len(m.Groups) && m.Groups[at].Name < name {
		at++
	}
	if at == len(m.Groups) || m.Groups[at].Name != name {
		m.Groups = append(m.Groups, GroupMeta{})
		copy(m.Groups[at+1:], m.Groups[at:])
		m.Groups[at] = GroupMeta{Name: name}
	}
	var files []FileMeta
	placed := false
	for _, f := range m.Groups[at].Files {
		gone := false
		for i, r := range removed {
			if f.same(&r.meta) {
				gone = true
				if i == 0 && added != nil {
					files, placed = append(files, *added), true
				}
			}
		}
		if !gone {
			files = append(files, f)
		}
	}
	if !placed && added != nil {
		files = append(files, *added)
	}
	m.Groups[at].Files = files
}

// metaClosed reports whether the metadata must not change any more. metaMu is held.
func (t *Tablet) metaClosed() bool { return t.metaMu.closed || t.isDropped() }

// closeMeta prevents further metadata changes.
func (t *Tablet) closeMeta() {
	t.metaMu.Lock()
	defer t.metaMu.Unlock()
	t.metaMu.closed = true
}

// unload takes the tablet out of service. Later reads fail with api.ErrNotServing, and compactions
// end. If drop is set, its files are deleted when the last read ends. It runs on the applier.
func (t *Tablet) unload(drop bool) {
	t.unloaded = true
	t.mu.Lock()
	v := t.mu.current
	t.mu.current = nil
	t.mu.dropped = t.mu.dropped || drop
	t.setBacklog(noBacklog)
	t.mu.Unlock()
	if v == nil {
		return
	}
	if drop {
		for _, g := range v.groups {
			for _, f := range g.files {
				f.deleteLater()
			}
		}
	}
	for _, m := range append(v.frozen, v.active) {
		m.release()
	}
	v.release()
	t.server.writeMemory.Signal()
}

// majorLate reports whether the major compaction is so overdue that it must not pause any more
// (I10).
func (t *Tablet) majorLate() bool {
	return t.server.cfg.Now().After(t.majorDue().Add(t.server.cfg.MajorPeriod / 16))
}

// majorDue returns the time of the tablet's next major compaction. It is an eighth of the period
// before the deadline, because other tablets may be due at the same time and each takes a while.
func (t *Tablet) majorDue() time.Time {
	return time.UnixMicro(t.lastMajor.Load()).Add(t.server.cfg.MajorPeriod / 8 * 7)
}
