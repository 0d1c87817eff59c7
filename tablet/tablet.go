package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Tablet is one range of rows of one table, loaded on this server.
type Tablet struct {
	id      uint64
	table   uint64 // id of the table
	server  *Server
	vital   bool   // see Load
	start   []byte // start < row <= end; empty is no bound
	end     []byte
	schema  atomic.Pointer[schema]
	latches latches

	// applied is the sequence number of the last entry that is visible: all at
	// or below it are in a memtable or a file.
	applied atomic.Uint64

	// stamped is the last server timestamp given. Written under the commit
	// log's lock only.
	stamped atomic.Int64

	// halted is not nil while the tablet takes no writes.
	halted atomic.Pointer[halt]

	// claimed has one place, held while the tablet is unloaded, split or merged.
	claimed chan struct{}

	load load

	// minorFailures is how often in a row its minor compaction has failed. Guarded by minorLoop's turn.
	minorFailures int
	// minorPending is set while minorLoop writes the tablet out, or waits before it tries again.
	minorPending atomic.Bool

	// lastMajor is that of the metadata, in µs, for those who do not wait for a
	// change of it.
	lastMajor atomic.Int64

	// stalled says that reads have too many files to merge; writers wait.
	stalled atomic.Bool

	// The applier's own.
	mem      *mem
	scratch  []byte
	unloaded bool // commits that come later are dropped with the tablet

	// minorMu and mergeMu let one minor and one other compaction run at a time.
	// Held across I/O. Order: minorMu or mergeMu, then metaMu, then mu.
	minorMu, mergeMu sync.Mutex
	minorWaiters     atomic.Int32 // who wait for a minor compaction, so that it does not rest

	// metaMu guards the tablet's metadata, and is held while a change of it is
	// made durable and its view installed.
	metaMu struct {
		sync.Mutex
		meta   *Meta // as in Metadata; replaced, never changed
		closed bool  // unloaded: no change any more
	}

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		current *view   // nil when unloaded
		gone    bool    // out of service for good; see retire
		dropped bool    // with its metadata
		backlog backlog // Server.backlogs counts it

		interrupt  context.CancelCauseFunc // of the merging or major compaction that runs
		interrupts int                     // callers of stopMerging that wait
	}
}

// holds says whether row is in the tablet's range.
func (t *Tablet) holds(row []byte) bool {
	return inRange(t.start, t.end, row)
}

// acquire returns the current view and a sequence number to read it at. The view
// must be released. The error is errGone.
//
// The number is taken after the view: a compaction may have dropped from the
// view's files what newer entries replaced, and those are then visible too.
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

// acquireFiles is acquire without memtables: who works on files for long would keep those in memory that are written out meanwhile.
// The error is errGone.
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

// drop lets the metadata change no more: it is gone. It does not wait for a change that is under way, which fails.
func (t *Tablet) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.dropped = true
}

// setCurrent gives a tablet that nobody serves yet its first view.
func (t *Tablet) setCurrent(v *view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.current = v
	t.setBacklog(t.server.cfg.backlogOf(v.mostFiles()))
}

// install makes change's result the current view. It does nothing, and returns false, when the
// tablet is unloaded.
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
		t.server.signalRoom()
	}
	return true
}

// freeze puts an empty memtable in the place of the active one, which waits to be
// written out. It runs on the applier.
func (t *Tablet) freeze() {
	if t.mem.Len() == 0 {
		return
	}
	frozen, fresh := t.mem, newMem(t.server)
	frozen.stamped = t.stamped.Load()
	t.mem = fresh
	t.install(func(v *view) {
		v.frozen = append(v.frozen, frozen)
		v.active = fresh
	})
	t.server.minorQueue.add(t)
}

// unflushed returns the first sequence number that is in no file, or 0 if there
// is none.
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

// errUnloaded ends the work of a compaction whose tablet was unloaded meanwhile.
var errUnloaded = errors.New("tablet was unloaded")

// changeMeta makes a change of the tablet's metadata durable and then installs
// the view that goes with it. If it fails, the view was not installed; unclear is
// true if the metadata may be changed all the same.
//
// It does not end with ctx, whose turn it passes on while it waits: see turn.
func (t *Tablet) changeMeta(ctx context.Context, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	return t.changeMetaIf(ctx, func(*Meta) error { return nil }, change, install)
}

// changeMetaIf is changeMeta unless may, which looks at the metadata as it is, returns an error, which is then its own.
func (t *Tablet) changeMetaIf(ctx context.Context, may func(m *Meta) error, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	waiting(ctx, func() { unclear, err = t.changeMetaNow(may, change, install) })
	return unclear, err
}

func (t *Tablet) changeMetaNow(may func(m *Meta) error, change func(m *Meta), install func(v *view)) (unclear bool, err error) {
	t.metaMu.Lock()
	defer t.metaMu.Unlock()
	if t.metaClosed() {
		return false, errUnloaded
	}
	if err := may(t.metaMu.meta); err != nil {
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

// metaClosed reports whether the metadata may not change any more. metaMu is held.
func (t *Tablet) metaClosed() bool { return t.metaMu.closed || t.isDropped() }

// closeMeta lets the metadata change no more.
func (t *Tablet) closeMeta() {
	t.metaMu.Lock()
	defer t.metaMu.Unlock()
	t.metaMu.closed = true
}

// unload takes the tablet out of service: reads that start later get
// api.ErrNotServing, compactions end. If drop, its files are deleted when the last
// read ends. It runs on the applier.
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
	t.server.signalRoom()
}

// majorLate says whether the major compaction has waited for so long after it was due that it must not take its time any more (I10).
func (t *Tablet) majorLate() bool {
	return t.server.cfg.Now().After(t.majorDue().Add(t.server.cfg.MajorPeriod / 16))
}

// majorDue says when the tablet is to have its next major compaction: an eighth of the period
// before it is over, since others may be due then, and each takes its time.
func (t *Tablet) majorDue() time.Time {
	return time.UnixMicro(t.lastMajor.Load()).Add(t.server.cfg.MajorPeriod / 8 * 7)
}
