package tablet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/changes"
)

// Bounds of change files.
const (
	changeFilesMax  = 1024 // a tablet's; the oldest go first. METADATA's row has some 150 bytes for each
	changeReadAhead = 256 << 10
)

// deleteChanges deletes change files that the metadata does not name any more. Readers of them notice, and begin again. Files
// that another tablet may use are left to garbage collection.
func (s *sstables) deleteChanges(files []changes.File) {
	for i := range files {
		if files[i].Shared {
			s.cfg.Blobs.Abandon(files[i].Handle)
		} else {
			s.deletions.Add(files[i].Handle.ID)
		}
	}
}

// changeUpdate is the change of a tablet's change files by a minor compaction, or by the recovery of a tablet.
type changeUpdate struct {
	ctx       context.Context
	tablet    *Tablet
	view      *view
	retention time.Duration // zero: the table has no change stream

	removed, added []changes.File
	younger        []changes.Younger // the records of removed that are kept
	gap            uint64            // the last entry without a record
	gapTime        int64
	gone           []changes.File // set by apply: those that the metadata does not name any more
}

// newChangeUpdate returns an update without files. v is the tablet's view.
func newChangeUpdate(ctx context.Context, t *Tablet, v *view) *changeUpdate {
	return &changeUpdate{ctx: ctx, tablet: t, view: v, retention: t.schema.Load().table.ChangeRetention}
}

// write writes the records of the view's frozen memtables to one change file. It calls step with the bytes written.
func (u *changeUpdate) write(step func(bytes int)) error {
	if u.retention == 0 {
		return nil
	}
	u.gap, u.gapTime = u.view.changeGap()
	var later []changes.Later
	bytes := int64(0)
	for _, m := range u.view.frozen {
		if records := m.changes.From(0); len(records) > 0 {
			later = append(later, changes.LaterInMemory(records, m.start, m.end))
			bytes += m.changes.Bytes()
		}
	}
	if len(later) == 0 {
		return nil
	}
	return u.writeFile(changes.NewMerge(append(later, u.rewritten(bytes)...)), step)
}

// rewritten returns the records of the files that are rewritten with new records of the given size.
func (u *changeUpdate) rewritten(bytes int64) (later []changes.Later) {
	before := u.tablet.changesBefore(u.retention)
	u.removed = u.view.meta.Changes.Mergeable(bytes, before)
	u.younger = make([]changes.Younger, len(u.removed))
	for i := range u.removed {
		old := u.tablet.laterChanges(u.ctx, &u.removed[i], 0, nil)
		later = append(later, changes.Later{MinSeq: old.MinSeq, Open: func() (changes.Source, error) {
			src, err := old.Open()
			u.younger[i] = changes.Younger{Source: src, Before: before}
			return &u.younger[i], err
		}})
	}
	return later
}

// laterChanges returns the records of a change file from next on. It calls gate, if not nil, before it loads a large one.
func (t *Tablet) laterChanges(ctx context.Context, f *changes.File, next uint64, gate func(bytes int) error) changes.Later {
	return changes.Later{MinSeq: max(f.MinSeq, next), Open: func() (changes.Source, error) {
		blob, err := t.server.cfg.Blobs.OpenBlob(ctx, f.Handle)
		if err != nil {
			return nil, err
		}
		return changes.Open(ctx, blob, f, next, changeReadAhead, gate)
	}}
}

// writeFile writes records to one change file, if there are any.
func (u *changeUpdate) writeFile(records *changes.Merge, step func(bytes int)) error {
	defer records.Close()
	t := u.tablet
	blob, err := t.server.cfg.Blobs.CreateHighPriority(u.ctx, 0)
	if err != nil {
		return err
	}
	w := changes.NewWriter(blob, step)
	for records.Next() {
		if err := w.Add(records.Record()); err != nil {
			blob.Abort()
			return err
		}
	}
	if err := records.Err(); err != nil || w.Records() == 0 {
		blob.Abort()
		return err
	}
	f, err := w.Finish()
	if err == nil {
		f.Handle, err = blob.Seal(u.ctx)
	}
	if err != nil {
		blob.Abort()
		return err
	}
	f.Start, f.End = t.start, t.end
	u.added = append(u.added, f)
	return nil
}

// apply changes the change files of metadata, before its redo point is raised to redo.
func (u *changeUpdate) apply(m *Meta, redo uint64) {
	if u.retention == 0 {
		if m.Changes != nil {
			u.gone, m.Changes = m.Changes.Files, m.Changes.Ended(max(m.Redo, redo), m.Stamped)
		}
		return
	}
	set := m.knownChanges()
	if u.gap > 0 {
		set = set.Raise(nil, nil, u.gap, u.gapTime)
	}
	for i := range u.younger {
		if y, f := &u.younger[i], &u.removed[i]; y.Seq > 0 {
			set = set.Raise(f.Start, f.End, y.Seq, y.Time)
		}
	}
	added := u.added
	if planted.On(planted.RedoBeforeChangeFile) && len(u.removed) == 0 {
		added = nil
	}
	u.gone = set.Now(u.removed)
	expired, rest := set.Replace(u.removed, added).Expired(u.tablet.changesBefore(u.retention), changeFilesMax)
	u.gone = append(u.gone, expired...)
	m.Changes = rest
}

// changesBefore returns the time, in µs, before which changes are not kept.
func (t *Tablet) changesBefore(retention time.Duration) int64 {
	return t.server.cfg.Now().Add(-retention).UnixMicro()
}

// done deletes the files that the metadata does not name any more.
func (u *changeUpdate) done() {
	u.tablet.server.files.deleteChanges(u.gone)
	if planted.On(planted.RedoBeforeChangeFile) && len(u.removed) == 0 && len(u.added) > 0 {
		_, _ = u.tablet.meta.change(u.ctx, func(m *Meta) { m.Changes = m.knownChanges().Replace(nil, u.added) }, func(*view) {})
	}
}

// discard deletes the files that were written, unless the metadata may name them.
func (u *changeUpdate) discard(named bool) {
	if !named {
		u.tablet.server.files.deleteChanges(u.added)
	}
}

// Bounds of one answer of ReadChanges, in bytes of records.
const (
	changesDefault = 1 << 20
	changesMost    = 4 << 20
	changesScanned = 16 << 20 // read, with those that are not returned
	changesLarge   = 1 << 20  // a larger record reserves memory, as a large cell does
)

// ChangesRequest describes which changes ReadChanges returns.
type ChangesRequest struct {
	// Start and End are the rows: Start < row <= End, an empty one meaning no bound.
	Start, End []byte
	// Next is the first sequence number, as an earlier answer gave it. Zero means by Since.
	Next uint64
	// Since is the time, in µs, from which changes are returned. Zero means those after the call.
	Since int64
	// Bytes bounds the answer, but for its last change. Zero means 1 MiB; at most 4 MiB.
	Bytes int64
	// ChangeBytes rejects a larger change. Zero means no bound.
	ChangeBytes int64
	// Wait is how long the call waits for a change.
	Wait time.Duration
	// Clears adds the deletions of ranges of rows, each clipped to the rows of the page.
	Clears bool
}

// ChangesPage is an answer of ReadChanges.
type ChangesPage struct {
	Changes []changes.Change
	// End is the last row that the page is about: that of the request, or less if the tablet ends before. The changes of the rows
	// above it are on another tablet, from the request's position on. Empty means no bound.
	End []byte
	// Next continues after the page.
	Next uint64
	// Watermark is a time, in µs: all changes of the rows with a lower time were returned. Zero if none is known.
	Watermark int64
	// Families is the version of the table's families.
	Families uint64

	reserved int64
	memory   *budget.Large
	more     bool
}

// Release releases the memory of large changes, which must not be used any more.
func (p *ChangesPage) Release() {
	if p.reserved > 0 {
		p.memory.Release(p.reserved)
		p.reserved = 0
	}
}

// reserve reserves the memory of a large record.
func (p *ChangesPage) reserve(ctx context.Context, bytes int) error {
	if bytes <= changesLarge || p.reserved > 0 {
		return nil
	}
	var err error
	p.reserved, err = p.memory.Reserve(ctx, bytes)
	return err
}

// ReadChanges returns changes of a table's rows, in order of their sequence numbers, once each along a chain of requests with the Next of the
// page before (CS1). It waits for the first change at most for r.Wait. Only durable changes are returned (CS2).
//
// Mutations of families that the caller must not read are left out. So are dropped families, what garbage collection removes and, unless r.Clears, rows
// that Clear deleted (CS7).
//
// Errors: as ReadRow; api.ErrNoChangeStream, api.ErrOutOfRange if changes from the position on were dropped (CS3), and an
// *api.RowTooLargeError if the first change is larger than r.ChangeBytes.
func (as For) ReadChanges(ctx context.Context, tableName string, r ChangesRequest) (*ChangesPage, error) {
	deadline := time.NewTimer(r.Wait)
	defer deadline.Stop()
	q := changesQuery{For: as, ChangesRequest: r}
	for waited := false; ; {
		p, woken, err := q.attempt(ctx, tableName)
		if err != nil || len(p.Changes) > 0 || !p.more && (waited || r.Wait <= 0) {
			return p, err
		}
		p.Release()
		if q.Next = p.Next; p.more {
			continue // a page without changes is the last
		}
		q.Since = 0
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-as.s.life.closing:
			return nil, ErrClosed
		case <-deadline.C:
			waited = true
		case <-woken:
		}
	}
}

// attempt reads a page. woken is closed when there is a later change.
func (q *changesQuery) attempt(ctx context.Context, tableName string) (p *ChangesPage, woken <-chan struct{}, err error) {
	first := append(slices.Clone(q.Start), 0) // the first row above Start
	for {
		t, err := q.tabletOf(ctx, tableName, first)
		if err != nil {
			return nil, nil, err
		}
		woken = t.views.changed.Wait()
		p, err = q.read(ctx, t)
		if errors.Is(err, errInvisible) {
			if err = awaitVisible(ctx, q.s, woken); err == nil {
				continue
			}
		}
		if !errors.Is(err, errChanged) && !errors.Is(err, errGone) || ctx.Err() != nil {
			return p, woken, err
		}
	}
}

// errInvisible means that a tablet has no position yet: it is above an entry without a record that is not visible, but will be when the tablet's next change wakes readers.
var errInvisible = errors.New("the last entry without a change record is not visible yet")

// changesQuery is one call of ReadChanges.
type changesQuery struct {
	For
	ChangesRequest
	missing int // attempts that found a file deleted

	// All commits with a time below mark have sequence numbers below markNext. Zero if there is no mark.
	mark     int64
	markNext uint64
}

// read is one attempt on the tablet of the first row. The error is errChanged if it must be repeated.
func (q *changesQuery) read(ctx context.Context, t *Tablet) (*ChangesPage, error) {
	if q.a != nil {
		q.a.Begin()
	}
	sc := t.schema.Load()
	var vis Visibility
	if q.a != nil {
		var err error
		if vis, err = q.a.Read(ctx, sc.table); err != nil {
			return nil, err
		}
	}
	if err := sc.checkStream(&vis); err != nil {
		return nil, err
	}
	p, err := q.page(ctx, t, sc, &vis)
	if errors.Is(err, blobfs.ErrNoBlob) && q.missing < missingMax { // rewritten or dropped meanwhile
		q.missing++
		return nil, errChanged
	}
	if err != nil {
		return nil, err
	}
	if err = q.s.checkServing(); err == nil && (changed(q.a) || !sc.current()) {
		err = errChanged
	}
	if err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

// checkStream returns an error unless the table has a change stream that the caller may read.
func (sc *schema) checkStream(vis *Visibility) error {
	if vis.Row != nil {
		return fmt.Errorf("changes of a table of which only some rows are visible: %w", api.ErrPermission)
	}
	if sc.table.ChangeRetention == 0 {
		return fmt.Errorf("table %q: %w", sc.table.Name, api.ErrNoChangeStream)
	}
	return nil
}

// missingMax is how often a read of changes begins again because a change file was deleted meanwhile.
const missingMax = 10

// watermark returns a time such that all changes of the tablet with a lower one are visible, or 0.
func (q *changesQuery) watermark(t *Tablet, sc *schema) int64 {
	log := &q.s.commitLog
	if q.mark == 0 {
		// In this order: a later commit gets a later time. A time of milliseconds is rounded down.
		q.mark = sc.table.Granularity.Stamp(t.writer.cfg.Now().UnixMicro(), 0)
		q.markNext = log.commits.Next()
	}
	if log.appliedNext.Load() < q.markNext && !log.commits.Idle() || t.fence.raised.Load() != nil { // a clear may have a time, and not be visible yet
		return 0
	}
	mark := q.mark
	q.mark = 0
	return mark
}

// page reads a page of the tablet's current view.
func (q *changesQuery) page(ctx context.Context, t *Tablet, sc *schema, vis *Visibility) (*ChangesPage, error) {
	mark := q.watermark(t, sc)
	v, visible, err := t.views.acquire()
	if err != nil {
		return nil, err
	}
	defer v.release()
	p := &ChangesPage{End: q.End, Families: sc.table.FamiliesVersion(), memory: q.s.largeReads}
	if compareEnds(t.end, q.End) < 0 {
		p.End = t.end
	}
	last := v.lastChange(visible)
	next, floor, err := q.position(v, p.End)
	if err != nil {
		return nil, err
	}
	if next == 0 {
		if gap, _ := v.changeGap(); gap > visible { // a row that is read now may lack the entry, as the stream from the position on does
			return nil, errInvisible
		}
		p.Next, p.Watermark = max(last, floor)+1, mark
		return p, nil
	}
	f := filling{changesQuery: q, p: p, sc: sc, vis: vis, records: changes.NewMerge(q.sources(ctx, t, v, p, next))}
	defer f.records.Close()
	if q.Clears {
		f.clears = v.meta.knownChanges().ClearsFrom(q.Start, p.End, next)
	}
	p.Next, p.Watermark = max(next, last+1), mark
	if p.more, err = f.fill(ctx, visible); err != nil {
		p.Release()
		return nil, err
	}
	if p.more {
		p.Watermark = 0
	}
	return p, nil
}

// position returns the first sequence number to read, or 0 for what comes next, and that up to which changes may be missing. The error is
// api.ErrOutOfRange.
func (q *changesQuery) position(v *view, end []byte) (next, floor uint64, err error) {
	set := v.meta.knownChanges()
	seq, since := set.Floor(q.Start, end)
	if q.Clears {
		cleared, at := set.ClearFloor(q.Start, end)
		seq, since = max(seq, cleared), max(since, at)
	}
	if gap, at := v.changeGap(); gap > 0 {
		seq, since = max(seq, gap), max(since, at)
	}
	switch {
	case q.Next > seq:
		return q.Next, seq, nil
	case q.Next > 0:
		return 0, seq, fmt.Errorf("changes from position %d on: %w", q.Next, &api.OutOfRangeError{Oldest: since + 1})
	case q.Since == 0:
		return 0, seq, nil
	case q.Since <= since:
		return 0, seq, fmt.Errorf("changes since %d µs: %w", q.Since, &api.OutOfRangeError{Oldest: since + 1})
	}
	return seq + 1, seq, nil
}

// sources returns the records of the page's rows from next on.
func (q *changesQuery) sources(ctx context.Context, t *Tablet, v *view, p *ChangesPage, next uint64) (later []changes.Later) {
	if v.meta.Changes != nil {
		for _, f := range v.meta.Changes.Within(q.Start, p.End).Files {
			if f.MaxSeq >= next && f.MaxTime >= q.Since {
				later = append(later, t.laterChanges(ctx, &f, next, func(bytes int) error { return p.reserve(ctx, bytes) }))
			}
		}
	}
	v.eachMem(func(m *mem) {
		start, end := m.start, m.end
		if string(q.Start) > string(start) {
			start = q.Start
		}
		if compareEnds(p.End, end) < 0 {
			end = p.End
		}
		if records := m.changes.From(next); len(records) > 0 {
			later = append(later, changes.LaterInMemory(records, start, end))
		}
	})
	return later
}

// filling fills a page with records and clears.
type filling struct {
	*changesQuery
	p       *ChangesPage
	sc      *schema
	vis     *Visibility
	records *changes.Merge
	clears  []changes.Clear // that are not in the page yet

	returned, scanned int64
	last              uint64 // sequence number of the last record, or clear
}

// fill adds records up to visible, and all clears, to the page, and reports whether there are more. A page does not end between two with the
// same sequence number, which a tablet has after a merge.
func (f *filling) fill(ctx context.Context, visible uint64) (more bool, err error) {
	for f.records.Next() {
		r := f.records.Record()
		if r.First > visible {
			break
		}
		if more, err := f.addClears(r); more || err != nil {
			return more, err
		}
		if more, err := f.addRecord(ctx, r); more || err != nil {
			return more, err
		}
	}
	if err := f.records.Err(); err != nil {
		return false, err
	}
	return f.addClears(nil)
}

// addClears adds the clears before a record, nil being after all. It reports whether the page is full.
func (f *filling) addClears(r *changes.Record) (full bool, err error) {
	for ; len(f.clears) > 0; f.clears = f.clears[1:] {
		c := &f.clears[0]
		if r != nil && !c.Precedes(r) {
			return false, nil
		}
		if f.endsBefore(c.Seq) {
			return true, nil
		}
		same := c.Seq == f.last
		if f.last = c.Seq; c.Time < f.Since {
			continue
		}
		f.p.Changes = append(f.p.Changes, changes.Change{Seq: c.Seq, Time: c.Time, Cleared: &table.RowRange{Start: c.Start, End: c.End}})
		n := int64(len(c.Start)+len(c.End)) + changeOverhead
		f.returned, f.scanned = f.returned+n, f.scanned+n
		if full, err := f.tooLarge(same); full || err != nil {
			return full, err
		}
	}
	return false, nil
}

// endsBefore reports whether the page ends before a sequence number, which is its position then.
func (f *filling) endsBefore(seq uint64) bool {
	full := f.returned >= f.most() || f.scanned >= changesScanned || f.p.reserved > 0 && len(f.p.Changes) > 0
	if full = full && seq != f.last; full {
		f.p.Next = seq
	}
	return full
}

// addRecord adds a record, and reports whether the page is full.
func (f *filling) addRecord(ctx context.Context, r *changes.Record) (full bool, err error) {
	if f.endsBefore(r.First) {
		return true, nil
	}
	n := int64(len(r.Body)) + changeOverhead
	same := r.First == f.last
	f.last, f.scanned = r.First, f.scanned+n
	if r.Time < f.Since {
		return false, nil
	}
	ok, err := f.p.add(ctx, r, f.sc, f.vis)
	if err != nil || !ok {
		return false, err
	}
	f.returned += n
	return f.tooLarge(same)
}

// tooLarge removes the last change if it is larger than the caller accepts, and reports whether the page ends there. The error is an *api.RowTooLargeError if the
// page would be empty, or end between two changes with the same number.
func (f *filling) tooLarge(same bool) (full bool, err error) {
	n := len(f.p.Changes) - 1
	if f.ChangeBytes == 0 || f.p.Changes[n].Bytes() <= f.ChangeBytes {
		return false, nil
	}
	if n == 0 || same {
		return false, &api.RowTooLargeError{Limit: f.ChangeBytes}
	}
	f.p.Next, f.p.Changes = f.p.Changes[n].Seq, f.p.Changes[:n]
	return true, nil
}

// most returns the bytes of changes after which a page ends.
func (q *changesQuery) most() int64 {
	if q.Bytes <= 0 {
		return changesDefault
	}
	return min(q.Bytes, changesMost)
}

// changeOverhead is what a change counts for besides its body, in bytes.
const changeOverhead = 64

// add adds what the caller may see of a record, and reports whether that is anything.
func (p *ChangesPage) add(ctx context.Context, r *changes.Record, sc *schema, vis *Visibility) (bool, error) {
	if err := cmp.Or(ctx.Err(), p.reserve(ctx, len(r.Body))); err != nil {
		return false, err
	}
	own := *r
	own.Body = slices.Clone(r.Body) // the file's block, or the memtable, is not kept for it
	c, err := own.Decode(func(name []byte, id uint32) bool {
		f := sc.familyOf(name, id)
		return f != nil && f.index != sc.hidden && vis.family(f.index)
	})
	if err != nil || len(c.Mutations) == 0 {
		return false, err
	}
	p.Changes = append(p.Changes, c)
	return true, nil
}
