package tablet

import (
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/memtable"
	"github.com/steledb/stele/tablet/tombstone"
)

// mem is a memtable and the range of its sequence numbers.
type mem struct {
	*memtable.Table
	// minSeq is the first entry's sequence number; 0 while there is none.
	minSeq atomic.Uint64
	// maxSeq is the last entry's sequence number. It is final once the memtable is frozen.
	maxSeq atomic.Uint64
	// stamped is the last server timestamp assigned when the memtable was frozen.
	stamped int64
	// onWritten, if not nil, is called once the metadata names the files that the memtable was
	// written to. Set before the memtable is frozen.
	onWritten func()

	// start and end bound the rows that belong to the tablet: start < row <= end, empty meaning no
	// bound. Set where a split shared the memtable between two tablets.
	start, end []byte

	held     *held
	sums     *familySums
	changes  *changes.Buffer
	released atomic.Bool
}

// Bytes returns the memory of the entries and of the records for the change stream.
func (m *mem) Bytes() int64 { return m.Table.Bytes() + m.changes.Bytes() }

// holdsRecord reports whether a record's row is in the memtable's bounds.
func (m *mem) holdsRecord(r *changes.Record) bool {
	row, err := logbody.Row(r.Body)
	return err == nil && inRange(m.start, m.end, row)
}

// held counts the memory of a memtable that one tablet has, or two after a split.
type held struct {
	memory *budget.Writes
	bytes  atomic.Int64 // of active memtables in memory or, without owners, of lingering ones
	owners atomic.Int32
	refs   atomic.Int32 // owners and views
}

func newMem(memory *budget.Writes) *mem {
	m := &mem{Table: memtable.New(), held: &held{memory: memory}, sums: &familySums{}, changes: &changes.Buffer{}}
	m.held.owners.Store(1)
	m.held.refs.Store(1)
	return m
}

// unref drops the reference of a view or an owner. The last one releases the memory.
func (h *held) unref() {
	if h.refs.Add(-1) > 0 {
		return
	}
	if n := h.bytes.Swap(0); n > 0 {
		h.memory.Drop(n)
	}
}

// part returns the rows start < row <= end of a frozen memtable, for another tablet.
func (m *mem) part(start, end []byte) *mem {
	p := &mem{Table: m.Table, held: m.held, sums: m.sums, changes: m.changes, stamped: m.stamped, start: start, end: end}
	if !planted.On(planted.SplitForgetsLog) {
		p.minSeq.Store(m.minSeq.Load())
	}
	p.maxSeq.Store(m.maxSeq.Load())
	m.held.owners.Add(1)
	m.held.refs.Add(1)
	return p
}

// checkCounted asserts that a frozen memtable with entries has the number of the first one, from which the log is needed (T4).
func (m *mem) checkCounted(first uint64) {
	invariant.Check(first > 0 || m.Len() == 0, "the log is released although %d entries up to %d are in no file", int64(m.Len()), int64(m.maxSeq.Load()))
}

// count adds the growth of the memtable to the memory for writes.
func (m *mem) count() {
	if grown := m.Bytes() - m.held.bytes.Load(); grown > 0 {
		m.held.bytes.Add(grown)
		m.held.memory.Grow(grown)
	}
}

// disown drops the tablet's ownership of the memtable, which is written out or discarded. The
// memory is released once no read uses it either.
func (m *mem) disown() {
	if m.released.Swap(true) {
		return
	}
	if h := m.held; h.owners.Add(-1) == 0 {
		h.memory.Linger(h.bytes.Load())
	}
	m.held.unref()
}

// group holds the files of one locality group, oldest first.
type group struct {
	name  string
	files []*file
}

// view is the set of memtables and files that a read uses. Together they hold each entry of the
// tablet exactly once. A view is immutable; a tablet replaces it.
type view struct {
	active *mem
	frozen []*mem  // oldest first
	groups []group // sorted by name
	// cleared holds the range tombstones, each above all entries of when it was added.
	cleared tombstone.List
	// meta is the metadata of the files. Its change files have the records up to the redo point, and the memtables all later ones.
	meta *Meta

	// refs counts the readers, and the tablet while the view is current.
	refs atomic.Int32
}

func (v *view) group(name string) *group {
	for i := range v.groups {
		if v.groups[i].name == name {
			return &v.groups[i]
		}
	}
	return nil
}

// checkRedo asserts that no memtable has an entry that the redo point skips. The tablet's files have
// none of its entries, and recovery would not read them from the commit log.
func (v *view) checkRedo(redo uint64) {
	v.eachMem(func(m *mem) {
		least := m.minSeq.Load()
		invariant.Check(least == 0 || least > redo, "redo point %d is past entry %d, which is in no file", int64(redo), int64(least))
	})
}

// filesOf returns the files of a group, oldest first.
func (v *view) filesOf(name string) []*file {
	if g := v.group(name); g != nil {
		return g.files
	}
	return nil
}

// fileOf returns the view's file of the same SSTable as m, or nil.
func (v *view) fileOf(m *FileMeta) *file {
	for _, g := range v.groups {
		for _, f := range g.files {
			if f.meta.Handle.ID == m.Handle.ID {
				return f
			}
		}
	}
	return nil
}

// hold takes references on the contents of a new view. Its last release drops them.
func (v *view) hold() {
	v.eachMem(func(m *mem) { m.held.refs.Add(1) })
	for _, g := range v.groups {
		for _, f := range g.files {
			f.refs.Add(1)
		}
	}
	v.refs.Store(1)
}

func (v *view) release() {
	if v.refs.Add(-1) > 0 {
		return
	}
	v.eachMem(func(m *mem) { m.held.unref() })
	for _, g := range v.groups {
		for _, f := range g.files {
			f.release()
		}
	}
}

// mostFiles returns the number of files of the largest group.
func (v *view) mostFiles() (n int) {
	for i := range v.groups {
		n = max(n, len(v.groups[i].files))
	}
	return n
}

// recovered returns the detail of a moment: whether memtables have entries of dead servers' logs, which are needed until these are written out.
func (v *view) recovered() string {
	for _, m := range v.frozen {
		if m.onWritten != nil {
			return "of a recovered tablet"
		}
	}
	return ""
}

func (v *view) eachMem(f func(m *mem)) {
	if v.active != nil { // nil in a view of files only
		f(v.active)
	}
	for _, m := range v.frozen {
		f(m)
	}
}

// changeGap returns the last entry of the memtables without a record, and a time at or after it.
func (v *view) changeGap() (seq uint64, time int64) {
	v.eachMem(func(m *mem) {
		if gap, at := m.changes.Gap(); gap > seq {
			seq, time = gap, at
		}
	})
	return seq, time
}

// lastChange returns a sequence number up to visible. All later changes of the tablet's rows have a larger one, also on the next server:
// it continues above the redo point, the last clear and the records of the commit log.
func (v *view) lastChange(visible uint64) uint64 {
	last := v.meta.lastSeq()
	v.eachMem(func(m *mem) {
		records := m.changes.From(0)
		for i := len(records) - 1; i >= 0; i-- {
			r := &records[i]
			if r.First > visible || len(m.start)+len(m.end) > 0 && !m.holdsRecord(r) {
				continue
			}
			last = max(last, r.First)
			break
		}
	})
	return last
}

// clone returns a copy of the view, to be changed and installed.
func (v *view) clone() *view {
	n := &view{active: v.active, frozen: append([]*mem(nil), v.frozen...), cleared: v.cleared, meta: v.meta}
	for _, g := range v.groups {
		n.groups = append(n.groups, group{name: g.name, files: append([]*file(nil), g.files...)})
	}
	return n
}

// replace puts added in the place of the removed files, which are neighbours in the named group. If
// removed is empty, it appends added.
func (v *view) replace(name string, removed []*file, added *file) {
	if added == nil {
		v.replaceAll(name, removed, nil)
		return
	}
	v.replaceAll(name, removed, []*file{added})
}

// replaceAll is replace with several files, none of which is nil.
func (v *view) replaceAll(name string, removed, added []*file) {
	g := v.group(name)
	if g == nil {
		at := 0
		for at < len(v.groups) && v.groups[at].name < name {
			at++
		}
		v.groups = append(v.groups, group{})
		copy(v.groups[at+1:], v.groups[at:])
		v.groups[at] = group{name: name}
		g = &v.groups[at]
	}
	var files []*file
	placed := false
	for _, f := range g.files {
		if len(removed) > 0 && f == removed[0] {
			files, placed = append(files, added...), true
		}
		if !containsFile(removed, f) {
			files = append(files, f)
		}
	}
	if !placed {
		files = append(files, added...)
	}
	g.files = files
}

// share marks the view's open files as shared.
func (v *view) share() {
	for _, g := range v.groups {
		for _, f := range g.files {
			f.opened.shared.Store(true)
		}
	}
}

func containsFile(files []*file, f *file) bool {
	for _, g := range files {
		if g == f {
			return true
		}
	}
	return false
}

// viewSet is what reads of a tablet see: its current view, and the sequence number to read it at. It
// counts the tablet in the server's backlogs of compactions.
type viewSet struct {
	cfg      *Config
	backlogs *backlogs
	memory   *budget.Writes

	// applied is the sequence number of the last visible entry. All entries at or below it are in a
	// memtable or a file.
	applied atomic.Uint64

	// stalled is set while reads have too many files to merge. Writers wait.
	stalled atomic.Bool

	// changed wakes readers of changes that wait.
	changed changes.Signal

	// mu guards the fields below. Never held across I/O.
	mu      sync.Mutex
	current *view   // nil when unloaded
	dropped bool    // dropped together with its metadata
	backlog backlog // counted in backlogs
}

// acquire returns the current view and the sequence number to read it at. The caller must release
// the view. The error is errGone.
//
// The number is loaded after the view. A compaction may have dropped entries from the view's files
// that newer ones replaced, and those are then visible too.
func (vs *viewSet) acquire() (*view, uint64, error) {
	vs.mu.Lock()
	v := vs.current
	if v == nil {
		vs.mu.Unlock()
		return nil, 0, errGone
	}
	v.refs.Add(1)
	vs.mu.Unlock()
	return v, vs.applied.Load(), nil
}

// acquireFiles is acquire without memtables, for long work on files: holding the view would keep
// memtables in memory after they are written out. The error is errGone.
func (vs *viewSet) acquireFiles() (*view, error) {
	v, _, err := vs.acquire()
	if err != nil {
		return nil, err
	}
	defer v.release()
	files := &view{groups: v.groups, cleared: v.cleared}
	files.hold()
	return files, nil
}

func (vs *viewSet) isDropped() bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.dropped
}

// drop marks the tablet as dropped, together with its metadata, so that the metadata cannot change
// any more. It does not wait for a pending change, which fails.
func (vs *viewSet) drop() {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.dropped = true
}

// setCurrent sets the first view of a tablet that is not served yet.
func (vs *viewSet) setCurrent(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.current = v
	vs.setBacklog(vs.cfg.backlogOf(v.mostFiles()))
}

// install applies change to a copy of the current view and makes the copy current. If the tablet is
// unloaded, it does nothing and returns false.
func (vs *viewSet) install(change func(v *view)) (served bool) {
	vs.mu.Lock()
	old := vs.current
	if old == nil {
		vs.mu.Unlock()
		return false
	}
	next := old.clone()
	change(next)
	most := next.mostFiles()
	stalled := most >= vs.cfg.FilesMax
	vs.setBacklog(vs.cfg.backlogOf(most))
	next.hold()
	vs.current = next
	vs.mu.Unlock()
	old.release()
	if vs.stalled.Swap(stalled) && !stalled {
		vs.memory.Signal()
	}
	return true
}

// take removes the last view and returns it; later reads fail. It returns nil if there is none any
// more. drop marks the tablet as dropped.
func (vs *viewSet) take(drop bool) *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.current
	vs.current = nil
	vs.dropped = vs.dropped || drop
	vs.setBacklog(noBacklog)
	vs.changed.Wake()
	return v
}

// isUnloaded reports whether there is no view any more.
func (vs *viewSet) isUnloaded() bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.current == nil
}

// unflushed returns the first sequence number that is in no file, or 0.
func (vs *viewSet) unflushed() uint64 {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.current
	if v == nil {
		return 0
	}
	for _, m := range v.frozen {
		seq := m.minSeq.Load()
		m.checkCounted(seq)
		if seq != 0 {
			return seq
		}
	}
	return v.active.minSeq.Load()
}

// activeBytes returns the memory of the active memtable's entries.
func (vs *viewSet) activeBytes() int64 {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v := vs.current; v != nil && v.active.Len() > 0 {
		return v.active.Bytes()
	}
	return 0
}

// bytes returns the approximate size of the tablet in files and memtables.
func (vs *viewSet) bytes() int64 {
	v, _, err := vs.acquire()
	if err != nil {
		return 0
	}
	defer v.release()
	n := v.memtableBytes()
	for _, g := range v.groups {
		for _, f := range g.files {
			n += f.bytes
		}
	}
	return n
}

// setBacklog updates the tablet's backlog. mu is held.
func (vs *viewSet) setBacklog(b backlog) {
	if b == vs.backlog {
		return
	}
	vs.backlogs[b].Add(1)
	vs.backlogs[vs.backlog].Add(-1)
	vs.backlog = b
}

// setChanges sets what a view needs of metadata for readers of changes.
func (v *view) setChanges(m *Meta) { v.meta = m }

// changeBytes returns the size of the tablet's change files.
func (vs *viewSet) changeBytes() int64 {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.current == nil {
		return 0
	}
	return vs.current.meta.Changes.Bytes()
}
