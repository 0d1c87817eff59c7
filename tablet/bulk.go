package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
)

// propBulk is the property of a bulk file: an SSTable whose keys have the sequence number 0, since it was unknown when they were written.
// All of its entries have the number in FileMeta, whose MinSeq and MaxSeq are equal. See numbered.
const propBulk = "tablet.bulk"

const (
	// partMemory is the memory of a part that is being written, in bytes, without that of its entries: blocks of its files and their compressed form.
	partMemory = 2 << 20
	// partEntryMemory is the memory of an entry, in bytes, until its file is complete: its hashes for the Bloom filter, and its share of the index.
	partEntryMemory = 24
	// chargeEntries is the number of entries whose memory is charged at once.
	chargeEntries = 4096

	// partsKept is how long a tablet's metadata names a committed part, so that a client whose answer was lost learns that it was committed.
	// Clients repeat a commit for api.BulkCommitWait at most, by their own clocks; the rest is for clocks that differ.
	partsKept = 3 * api.BulkCommitWait
	// partsMax is the number of such parts, 24 bytes each in METADATA.
	partsMax = 1024
)

// BulkPart is a part of a bulk import to one tablet, while it is written: rows in ascending order, which go to an SSTable for each locality
// group instead of the commit log and a memtable. Commit adds the files to the tablet in one change of METADATA. It is used by one goroutine
// at a time, and ends with Commit or Abort.
type BulkPart struct {
	tablet  *Tablet
	schema  *schema
	writers map[string]*fileWriter
	files   map[string]*file // once the part is complete
	sample  table.RowMutation
	key     []byte // of the last entry
	next    []byte // scratch
	bytes   int64
	entries int64
	charged int64 // memory, in bytes
	large   int64 // that of the largest value
	ended   bool
}

// BeginBulk begins a part in the tablet of a row. Errors: those of Apply, api.ErrBulkRefused.
func (as For) BeginBulk(ctx context.Context, tableName string, row []byte) (*BulkPart, error) {
	t, err := as.tabletOf(ctx, tableName, row)
	if err != nil {
		return nil, err
	}
	sc := t.schema.Load()
	if sc.table.ChangeRetention > 0 {
		return nil, fmt.Errorf("table %q has a change stream, which would lack the rows: %w", sc.table.Name, api.ErrBulkRefused)
	}
	p := &BulkPart{tablet: t, schema: sc, writers: map[string]*fileWriter{}}
	p.charge(partMemory)
	return p, nil
}

// charge adds to the memory of the part. The block cache shrinks by it.
func (p *BulkPart) charge(bytes int64) {
	p.charged += bytes
	p.tablet.server.readMemory.AddWorking(bytes)
}

// Ended reports whether the part cannot be committed any more.
func (p *BulkPart) Ended() bool { return p.ended }

// Admit returns an *api.OverloadedError while the tablet has so many files that it accepts no writes.
func (p *BulkPart) Admit() error {
	if t := p.tablet; t.views.stalled.Load() {
		return &api.OverloadedError{Reason: t.server.writes.overloadReason(t), RetryAfter: overloadRetry}
	}
	return nil
}

// Add adds the cells of a row, all of them behind those that were added before. After an error the part has ended, and was aborted.
//
// Errors: those of Apply that concern the row; api.ErrNotServing if the tablet is not served any more; api.ErrBulkExpired if the tablet does not
// have the row, or the table's schema was changed; api.ErrBulkOrder; *table.LimitError; blobfs.ErrDiskFull.
func (p *BulkPart) Add(ctx context.Context, as For, rm *table.RowMutation) error {
	err := p.add(ctx, as, rm)
	if err != nil {
		p.Abort()
	}
	return err
}

func (p *BulkPart) add(ctx context.Context, as For, rm *table.RowMutation) error {
	if p.ended || p.files != nil {
		return api.ErrBulkExpired
	}
	if err := p.check(); err != nil {
		return err
	}
	if as.a != nil {
		as.a.Begin()
	}
	rm, err := as.check(p.schema, rm)
	if err != nil {
		return err
	}
	if !p.tablet.holds(rm.Row) {
		return fmt.Errorf("row %.64q is not in the tablet of the part: %w", rm.Row, api.ErrBulkExpired)
	}
	if rm.Token != nil {
		return fmt.Errorf("%w: a part of a bulk import has its own id instead", table.ErrBadToken)
	}
	rows := ikey.AppendRow(p.next[:0], rm.Row)
	for i := range rm.Mutations {
		if err := p.addCell(ctx, rows, &rm.Mutations[i]); err != nil {
			return &table.ElementError{What: "mutation", Index: i, Err: err}
		}
	}
	p.next = rows[:0]
	if len(p.sample.Row) == 0 {
		p.sample.Row = bytes.Clone(rm.Row)
	}
	return nil
}

// addCell adds one cell of the row with the given row part.
func (p *BulkPart) addCell(ctx context.Context, row []byte, m *table.Mutation) error {
	if m.Op != table.OpSet {
		return fmt.Errorf("%w: a bulk import has only cells", table.ErrBadOp)
	}
	if m.Timestamp == table.ServerTimestamp {
		return &table.TimestampError{What: "a cell of a bulk import needs a timestamp of its own", Got: m.Timestamp}
	}
	f := p.schema.family(m.Family)
	if f == nil {
		return &table.NoFamilyError{Table: p.schema.table.Name, Family: m.Family}
	}
	key := ikey.AppendFamily(row, f.Name, f.ID)
	key = ikey.AppendCell(ikey.AppendColumn(key, m.Qualifier), m.Timestamp, 0)
	if bytes.Compare(key, p.key) <= 0 {
		return fmt.Errorf("row %.64q: %w", ikey.RowKey(row), api.ErrBulkOrder)
	}
	p.key = append(p.key[:0], key...)
	p.bytes, p.entries = p.bytes+int64(len(key)+len(m.Value)), p.entries+1
	if p.bytes > api.BulkPartBytesMax {
		return &table.LimitError{What: "bytes of a part of a bulk import", Limit: api.BulkPartBytesMax, Got: p.bytes}
	}
	if p.entries > api.BulkPartCellsMax {
		return &table.LimitError{What: "cells in a part of a bulk import", Limit: api.BulkPartCellsMax, Got: p.entries}
	}
	w, err := p.writer(ctx, f)
	if err != nil {
		return err
	}
	if p.entries%chargeEntries == 0 {
		p.charge(chargeEntries * partEntryMemory)
	}
	if n := writeBytes(int64(len(m.Value))); n > p.large {
		p.charge(n - p.large)
		p.large = n
	}
	if !slices.ContainsFunc(p.sample.Mutations, func(s table.Mutation) bool { return s.Family == f.Name }) {
		p.sample.Mutations = append(p.sample.Mutations, table.Set(f.Name, bytes.Clone(m.Qualifier), m.Timestamp, nil))
	}
	return w.add(f, key, m.Value)
}

// writer returns the writer of the file with a family.
func (p *BulkPart) writer(ctx context.Context, f *family) (w *fileWriter, err error) {
	if w = p.writers[f.Group]; w != nil {
		return w, nil
	}
	// The writer outlives the call.
	w, err = p.tablet.server.files.create(context.WithoutCancel(ctx), groupOf(p.schema, f.Group), fileKind{bulk: true}, nil)
	if err == nil {
		p.writers[f.Group] = w
	}
	return w, err
}

// check returns an error if the tablet is no longer served, or has another schema than the part.
func (p *BulkPart) check() error {
	t := p.tablet
	if t.views.isUnloaded() {
		return errGone
	}
	if t.schema.Load() != p.schema || !p.schema.current() {
		return fmt.Errorf("the schema of table %q was changed: %w", p.schema.table.Name, api.ErrBulkExpired)
	}
	return nil
}

// Abort discards a part that was not committed.
func (p *BulkPart) Abort() {
	p.ended = true
	for _, w := range p.writers {
		w.blob.Abort()
	}
	discard(p.files, false)
	p.release()
}

// release releases the memory of the part.
func (p *BulkPart) release() {
	p.writers, p.files = nil, nil
	p.charge(-p.charged)
}

// finish completes the files. They are durable then.
func (p *BulkPart) finish(ctx context.Context) error {
	if p.files != nil {
		return nil
	}
	p.files = map[string]*file{}
	for _, name := range slices.Sorted(maps.Keys(p.writers)) {
		f, err := p.writers[name].finish(ctx, p.tablet.server.files)
		delete(p.writers, name)
		if err != nil {
			return err
		}
		p.files[name] = f
	}
	p.charge(-p.charged)
	return nil
}

// Commit adds the rows of a complete part to the tablet, all at once. They are durable and visible when it returns nil, and later than all writes
// that were acknowledged before. Writes to the tablet wait meanwhile, and reads do not.
//
// After api.ErrOverloaded and ctx's error the part is as before. After all other errors it has ended. After an *UnknownOutcomeError the rows
// may be added: CommittedBulk of the tablet's next server returns whether they were. Further errors: api.ErrNotServing, api.ErrBulkExpired if
// the schema was changed, *api.PermissionError, ErrMetaTooLarge, blobfs.ErrDiskFull.
func (p *BulkPart) Commit(ctx context.Context, as For, id PartID) error {
	if p.ended {
		return api.ErrBulkExpired
	}
	if p.entries == 0 {
		p.Abort()
		return table.ErrNoMutations
	}
	if err := p.finish(ctx); err != nil {
		p.Abort()
		return err
	}
	moment.Pass("files of a bulk part are written", "")
	err := p.commit(ctx, as, id)
	switch {
	case err == nil || p.ended:
	case errors.Is(err, api.ErrOverloaded), ctx.Err() != nil:
	default:
		p.Abort()
	}
	return notServing(err)
}

func (p *BulkPart) commit(ctx context.Context, as For, id PartID) error {
	t := p.tablet
	if err := p.Admit(); err != nil {
		return err
	}
	if err := t.fence.claim(ctx); err != nil {
		return err
	}
	defer t.fence.unclaim()
	if err := t.flushMost(ctx); err != nil {
		return err
	}
	for range commitAttempts {
		if err := p.commitFenced(ctx, as, id); err != errChanged {
			return err
		}
	}
	return &api.OverloadedError{Reason: "the rights of the user change all the time", RetryAfter: overloadRetry}
}

// commitAttempts is how often a commit begins again because rights were changed.
const commitAttempts = 8

// commitFenced is one attempt of a commit. The claim is held. The error is errChanged if rights were changed meanwhile.
func (p *BulkPart) commitFenced(ctx context.Context, as For, id PartID) error {
	t, s := p.tablet, p.tablet.server
	if as.a != nil {
		as.a.Begin()
	}
	if err := p.check(); err != nil {
		return err
	}
	if _, err := as.check(p.schema, &p.sample); err != nil {
		return err
	}
	began := time.Now()
	if err := t.fence.raiseSoon(ctx, s.cfg.OverloadWait, s.logStalled(t)); err != nil {
		return err
	}
	defer t.fence.lift()
	// All entries before those of the part are then in files, which are older than its files (T5).
	if err := t.flush(ctx); err != nil {
		return err
	}
	l := t.fence.latches.Of(p.sample.Row) // a new schema waits for it (T12)
	l.LockShared()
	defer l.UnlockShared()
	if changed(as.a) {
		return errChanged
	}
	if err := p.check(); err != nil {
		return err
	}
	if err := s.checkServing(); err != nil {
		return err
	}
	t.meta.mu.Lock()
	defer t.meta.mu.Unlock()
	if t.meta.isClosed() {
		return errGone
	}
	if err := p.save(id); err != nil {
		return err
	}
	s.stats.bulkParts.Add(1)
	s.log.Debug("bulk part committed", "tablet", t.id, "bytes", p.bytes, "write_pause", time.Since(began))
	s.merges.queue.Add(t)
	return nil
}

// save makes the change durable, and installs its view. The tablet's metadata is locked, and writes are fenced.
func (p *BulkPart) save(id PartID) error {
	t := p.tablet
	next, err := p.nextMeta(id)
	if err != nil {
		return err
	}
	moment.Pass("before a bulk part is saved", "")
	err = t.meta.changes.settle(func(context.Context, bool) error {
		_, err := t.meta.save(next)
		return err
	})
	p.ended = true
	if err != nil {
		t.meta.closed = t.meta.closed || errors.Is(err, ErrClosed) // the outcome is unknown
		unsent := errors.Is(err, ErrMetaTooLarge) || errors.Is(err, ErrMetaUnsent)
		discard(p.files, !unsent)
		p.release()
		if !unsent {
			err = &UnknownOutcomeError{Cause: err}
		}
		return err
	}
	moment.Pass("a bulk part is saved", "")
	p.install(next)
	p.release()
	return nil
}

// nextMeta returns the tablet's metadata with the files of the part, whose sequence number it reserves.
func (p *BulkPart) nextMeta(id PartID) (*Meta, error) {
	t := p.tablet
	next := cloneMeta(t.meta.current)
	now := t.server.cfg.Now()
	next.Parts = slices.DeleteFunc(slices.Clone(next.Parts), func(c CommittedPart) bool { return now.Sub(c.Time) > partsKept })
	if len(next.Parts) >= partsMax {
		return nil, &api.OverloadedError{
			Reason:     fmt.Sprintf("tablet got %d parts of bulk imports within %v, the most that it may get: send larger parts", partsMax, partsKept),
			RetryAfter: partsKept / 10,
		}
	}
	next.Parts = append(next.Parts, CommittedPart{ID: id, Time: now.Truncate(time.Microsecond)})
	next.Redo = t.server.commitLog.commits.Reserve()
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		f := p.files[name]
		f.meta.MinSeq, f.meta.MaxSeq = next.Redo, next.Redo
		f.meta.checkSequence()
		next.replaceFiles(name, nil, &f.meta)
	}
	next.checkAfter(t.meta.current)
	return next, nil
}

// install makes the rows of a part that is in METADATA visible.
func (p *BulkPart) install(next *Meta) {
	t := p.tablet
	v, err := t.views.acquireFiles()
	if err != nil {
		discard(p.files, true) // the table was dropped
		return
	}
	defer v.release()
	for name, f := range p.files {
		if p.schema.keepsInMemory(name) {
			t.server.pins.now(context.Background(), f, v.filesOf(name))
		}
	}
	if !t.views.install(func(n *view) {
		for name, f := range p.files {
			n.replace(name, nil, f)
		}
		n.setChanges(next)
	}) {
		discard(p.files, true)
		return
	}
	// On the applier, which sets the number otherwise. A log that has ended applies nothing any more.
	_ = t.server.commitLog.commits.Between(func() { t.views.applied.Store(max(t.views.applied.Load(), next.Redo)) })
}

// CommittedBulk reports whether a part was committed to the tablet of a row lately. Errors: those of Apply.
func (as For) CommittedBulk(ctx context.Context, tableName string, row []byte, id PartID) (bool, error) {
	t, err := as.tabletOf(ctx, tableName, row)
	if err != nil {
		return false, err
	}
	if as.a != nil {
		as.a.Begin()
	}
	if err := as.checkAny(t.schema.Load(), row); err != nil {
		return false, err
	}
	t.meta.mu.Lock()
	committed := slices.ContainsFunc(t.meta.current.Parts, func(c CommittedPart) bool { return c.ID == id })
	closed := t.meta.isClosed()
	t.meta.mu.Unlock()
	if closed {
		return false, errGone
	}
	return committed, as.s.checkServing()
}

// checkAny returns nil if the caller may write to any family.
func (as For) checkAny(sc *schema, row []byte) error {
	err := error(&table.NoFamilyError{Table: sc.table.Name})
	for i := range sc.families {
		if _, err = as.check(sc, &table.RowMutation{Row: row, Mutations: []table.Mutation{table.Set(sc.families[i].Name, nil, 1000, nil)}}); err == nil {
			break
		}
	}
	return err
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
