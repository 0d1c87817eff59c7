package tablet

import (
	"bytes"
	"cmp"
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
	"github.com/steledb/stele/tablet/sched"
	"github.com/steledb/stele/tablet/sstable"
)

// propBulk is the property of a bulk file: an SSTable whose keys have the sequence number 0, since it was unknown when they were written.
// All of its entries have the number in FileMeta, whose MinSeq and MaxSeq are equal. See numbered.
const propBulk = "tablet.bulk"

// BulkFileVersion is the version of SSTables of bulk files. A node that does not read it cannot serve a tablet with one.
const BulkFileVersion = sstable.PartialVersion

// partMemory is the memory of a part that is being written, in bytes, without that of its index and its values: blocks of its files and their compressed form.
const partMemory = 2 << 20

// Costs of commits, in bytes. Each commit writes out the tablet's memtable, and pauses the writes of all users. One with few rows therefore costs as much as
// many rows, and each has a cost beside its rows, which are bounded by quotas and by the network.
const (
	bulkSmall      = 4 << 20
	bulkCommitCost = 256 << 10
	// bulkDebt is the largest debt of a user, in bytes, and bulkDecay the bytes per second by which it decays. All users together have twice as much.
	bulkDebt, bulkDecay = 16 << 20, 1 << 20
)

// newBulkDebts returns the debts of the commits to one tablet.
func newBulkDebts() sched.Debts {
	return sched.Debts{User: sched.Limit{Most: bulkDebt, PerSecond: bulkDecay}, All: sched.Limit{Most: 2 * bulkDebt, PerSecond: 2 * bulkDecay}}
}

// ErrPartCommitted means that a part has been committed, so that its requests change nothing any more.
var ErrPartCommitted = errors.New("part of a bulk import was committed")

// BulkPart is a part of a bulk import to one tablet, while it is written: rows in ascending order, which go to an SSTable for each locality
// group instead of the commit log and a memtable. Commit adds the files to the tablet in one change of METADATA. It is used by one goroutine
// at a time, and ends with Commit or Abort.
type BulkPart struct {
	id      PartID
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
	index   int64 // that of the indexes and filters
	paid    bool  // the commit has been admitted: see bulkDebt
	ended   bool
}

// MayBulk returns nil if the caller may write a row, for a check before any work for a part of it. Errors: those of Apply.
func (as For) MayBulk(ctx context.Context, tableName string, rm *table.RowMutation) error {
	_, _, err := as.mayBulk(ctx, tableName, rm)
	return err
}

func (as For) mayBulk(ctx context.Context, tableName string, rm *table.RowMutation) (*Tablet, *schema, error) {
	t, err := as.tabletOf(ctx, tableName, rm.Row)
	if err != nil {
		return nil, nil, err
	}
	if as.a != nil {
		as.a.Begin()
	}
	sc := t.schema.Load()
	_, err = as.check(sc, rm)
	return t, sc, err
}

// BeginBulk begins a part with that id in the tablet of its first row. Errors: those of Apply, api.ErrBulkRefused, ErrPartCommitted.
func (as For) BeginBulk(ctx context.Context, tableName string, first *table.RowMutation, id PartID) (*BulkPart, error) {
	t, sc, err := as.mayBulk(ctx, tableName, first)
	if err != nil {
		return nil, err
	}
	if sc.table.ChangeRetention > 0 {
		return nil, fmt.Errorf("table %q has a change stream, which would lack the rows: %w", sc.table.Name, api.ErrBulkRefused)
	}
	if n := len(sc.table.Groups); n > partGroupsMax {
		return nil, fmt.Errorf("table %q has %d locality groups, a part at most %d: %w", sc.table.Name, n, partGroupsMax, api.ErrBulkRefused)
	}
	if committed, err := t.meta.committed(ctx, id); err != nil || committed {
		return nil, cmp.Or(notServing(err), ErrPartCommitted)
	}
	p := &BulkPart{id: id, tablet: t, schema: sc, writers: map[string]*fileWriter{}}
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

// Gone reports whether the tablet of the part is no longer served, or has another schema.
func (p *BulkPart) Gone() bool { return p.check() != nil }

// Admit returns an *api.OverloadedError while the tablet has so many files that it accepts no writes.
func (p *BulkPart) Admit() error {
	if t := p.tablet; t.views.stalled.Load() {
		return &api.OverloadedError{Reason: t.server.writes.overloadReason(t), RetryAfter: overloadRetry}
	}
	return nil
}

// Add adds the cells of rows, all of them behind those that were added before. After an error the part has ended, and was aborted.
//
// Errors: api.ErrNoTable; api.ErrNotServing if the tablet is not served any more; api.ErrBulkExpired if the table's schema was changed; otherwise a
// *table.ElementError with the row: those of Apply that concern it; api.ErrBulkExpired if the tablet does not have it; api.ErrBulkOrder;
// *table.LimitError; blobfs.ErrDiskFull.
func (p *BulkPart) Add(ctx context.Context, as For, rows ...table.RowMutation) error {
	err := p.add(ctx, as, rows)
	if err != nil {
		p.Abort()
	}
	return err
}

func (p *BulkPart) add(ctx context.Context, as For, rows []table.RowMutation) error {
	if p.ended || p.files != nil {
		return api.ErrBulkExpired
	}
	if err := p.check(); err != nil {
		return err
	}
	if as.a != nil {
		as.a.Begin() // once: the rights are checked again by the commit
	}
	for i := range rows {
		switch err := p.addRow(ctx, as, &rows[i]); {
		case errors.Is(err, api.ErrNoTable): // it is the same for all rows
			return err
		case err != nil:
			return &table.ElementError{What: "row", Index: i, Err: err}
		}
	}
	return nil
}

func (p *BulkPart) addRow(ctx context.Context, as For, rm *table.RowMutation) error {
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
	if n := int64(len(m.Value)); n > api.BulkValueBytesMax {
		return &table.LimitError{What: "bytes of a value of a bulk import", Limit: api.BulkValueBytesMax, Got: n}
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
	if n := writeBytes(int64(len(m.Value))); n > p.large {
		p.charge(n - p.large)
		p.large = n
	}
	if !slices.ContainsFunc(p.sample.Mutations, func(s table.Mutation) bool { return s.Family == f.Name }) {
		p.sample.Mutations = append(p.sample.Mutations, table.Set(f.Name, nil, m.Timestamp, nil))
	}
	if err := w.add(f, key, m.Value); err != nil {
		return err
	}
	return p.chargeIndex()
}

// partGroupsMax bounds the files of a part that are written at a time.
const partGroupsMax = 4

// partIndexMax bounds the memory of the indexes and filters of a part, in bytes: they are in memory until its files are complete. 500,000 cells of
// ordinary keys need 3 MiB.
const partIndexMax = 16 << 20

// chargeIndex charges the memory of the indexes and filters, which depends on the length of the keys.
func (p *BulkPart) chargeIndex() error {
	index := int64(0)
	for _, w := range p.writers {
		index += w.w.MemoryBytes()
	}
	if index > partIndexMax {
		return &table.LimitError{What: "bytes of the index of a part of a bulk import, which grows with the length of the keys", Limit: partIndexMax, Got: index}
	}
	if index-p.index > indexCharge {
		p.charge(index - p.index)
		p.index = index
	}
	return nil
}

// indexCharge is the memory of indexes that is charged at once, in bytes.
const indexCharge = 64 << 10

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
	return p.pin(ctx)
}

// pin loads the files of in-memory groups that are read, before writes are fenced.
func (p *BulkPart) pin(ctx context.Context) error {
	v, err := p.tablet.views.acquireFiles()
	if err != nil {
		return err
	}
	defer v.release()
	for name, f := range p.files {
		if p.schema.keepsInMemory(name) {
			p.tablet.server.pins.now(ctx, f, v.filesOf(name))
		}
	}
	return nil
}

// Commit adds the rows of a complete part to the tablet, all at once. They are durable and visible when it returns nil, and later than all writes
// that were acknowledged before. Writes to the tablet wait meanwhile, and reads do not.
//
// If a part with its id was committed before, the part is discarded, and the result is nil.
//
// After api.ErrOverloaded and ctx's error the part is as before. After all other errors it has ended. After an *UnknownOutcomeError the rows
// may be added: CommittedBulk returns whether they were. Further errors: api.ErrNotServing, api.ErrBulkExpired if
// the schema was changed, *api.PermissionError, ErrMetaTooLarge, blobfs.ErrDiskFull.
func (p *BulkPart) Commit(ctx context.Context, as For) error {
	if p.ended {
		return api.ErrBulkExpired
	}
	if p.entries == 0 {
		p.Abort()
		return table.ErrNoMutations
	}
	if err := p.finish(ctx); err != nil {
		p.Abort()
		return notServing(err)
	}
	moment.Pass("files of a bulk part are written", "")
	err := p.commit(ctx, as)
	switch {
	case err == nil || p.ended:
	case errors.Is(err, api.ErrOverloaded), ctx.Err() != nil:
	default:
		p.Abort()
	}
	if errors.Is(err, ErrPartCommitted) {
		return nil
	}
	return notServing(err)
}

// admitCommit returns an *api.OverloadedError if the user or all users have committed too many parts to the tablet: see bulkDebt.
func (p *BulkPart) admitCommit(as For) error {
	if p.paid {
		return nil
	}
	user, whose := "", "all users"
	if as.a != nil {
		if user = as.a.Caller(); user != "" {
			whose = "user " + user
		}
	}
	wait := p.tablet.bulk.Take(p.tablet.server.cfg.Now(), user, float64(bulkCommitCost+max(0, bulkSmall-p.bytes)))
	if wait > 0 {
		return &api.OverloadedError{
			Reason: fmt.Sprintf("parts of bulk imports of %s to one tablet follow each other too fast: send parts of %d MiB or more, and fewer rows in batches, by mutate_rows",
				whose, bulkSmall>>20),
			RetryAfter: wait,
		}
	}
	p.paid = true
	return nil
}

func (p *BulkPart) commit(ctx context.Context, as For) error {
	t := p.tablet
	if err := p.Admit(); err != nil {
		return err
	}
	if err := p.admitCommit(as); err != nil {
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
		if err := p.commitFenced(ctx, as); err != errChanged {
			return err
		}
	}
	return &api.OverloadedError{Reason: "the rights of the user change all the time", RetryAfter: overloadRetry}
}

// commitAttempts is how often a commit begins again because rights were changed.
const commitAttempts = 8

// commitFenced is one attempt of a commit. The claim is held. The error is errChanged if rights were changed meanwhile.
func (p *BulkPart) commitFenced(ctx context.Context, as For) error {
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
	if err := p.flushSoon(ctx); err != nil {
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
	if err := p.save(); err != nil {
		return err
	}
	s.stats.bulkParts.Add(1)
	s.log.Debug("bulk part committed", "tablet", t.id, "bytes", p.bytes, "write_pause", time.Since(began))
	s.merges.queue.Add(t)
	return nil
}

// flushSoon writes out what has arrived since the claim. Writers wait, so it takes at most OverloadWait. What remains then is METADATA's change, whose
// outcome must be known.
func (p *BulkPart) flushSoon(ctx context.Context) error {
	t := p.tablet
	wait := t.server.cfg.OverloadWait
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := t.flush(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = &api.OverloadedError{Reason: fmt.Sprintf("memtable of tablet %d was not written out within %v", t.id, wait), RetryAfter: overloadRetry}
	}
	return err
}

// save makes the change durable, and installs its view. The tablet's metadata is locked, and writes are fenced.
func (p *BulkPart) save() error {
	t := p.tablet
	next, err := p.nextMeta()
	if err != nil {
		return err
	}
	moment.Pass("before a bulk part is saved", "")
	sent := false // an attempt may have taken effect, or may still do
	err = t.meta.changes.settle(func(context.Context, bool) error {
		unclear, err := t.meta.save(next)
		sent = sent || unclear
		return err
	})
	p.ended = true
	if err != nil {
		t.meta.closed = t.meta.closed || errors.Is(err, ErrClosed) // the outcome is unknown
		unsent := !sent && (errors.Is(err, ErrMetaTooLarge) || errors.Is(err, ErrMetaUnsent))
		discard(p.files, !unsent)
		p.release()
		if !unsent {
			t.meta.unclear = append(t.meta.unclear, p.id)
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
func (p *BulkPart) nextMeta() (*Meta, error) {
	t := p.tablet
	if t.meta.current.hasPart(p.id) {
		return nil, ErrPartCommitted
	}
	next := cloneMeta(t.meta.current)
	now := t.server.cfg.Now()
	next.forgetParts(t.server.cfg.Now)
	if len(next.Parts) >= partsMax {
		return nil, manyParts(len(next.Parts) + 1)
	}
	next.Parts = append(slices.Clip(next.Parts), CommittedPart{ID: p.id, Time: now.Truncate(time.Microsecond)})
	next.Redo = t.server.commitLog.commits.Reserve()
	next.Changes = next.Changes.Ended(next.Redo, next.Stamped) // a later change stream begins behind the part
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		f := p.files[name]
		f.meta.MinSeq, f.meta.MaxSeq = next.Redo, next.Redo
		f.meta.checkSequence()
		next.replaceFiles(name, nil, &f.meta)
	}
	next.checkAfter(t.meta.current)
	return next, nil
}

// install makes the rows of a part that is in METADATA visible. Writes are fenced. The memtable is replaced, so that a view without the part never gets an entry
// behind it.
func (p *BulkPart) install(next *Meta) {
	t, installed := p.tablet, false
	show := func() {
		t.writer.renew(func(n *view) {
			installed = true
			for name, f := range p.files {
				n.replace(name, nil, f)
			}
			n.setChanges(next)
		})
		t.views.applied.Store(max(t.views.applied.Load(), next.Redo))
	}
	if err := t.server.commitLog.commits.Between(show); err != nil { // on the applier, which sets the number otherwise
		show() // the applier has ended
	}
	if !installed {
		discard(p.files, true) // the table was dropped
	}
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
	committed, err := t.meta.committed(ctx, id)
	if err != nil {
		return false, notServing(err)
	}
	return committed, as.s.checkServing()
}

// checkAny returns nil if the caller may write to any family, also of a table that has become read-only.
func (as For) checkAny(sc *schema, row []byte) error {
	err := error(&table.NoFamilyError{Table: sc.table.Name})
	for i := range sc.families {
		if _, err = as.s.writes.check(sc, &table.RowMutation{Row: row, Mutations: []table.Mutation{table.Set(sc.families[i].Name, nil, 1000, nil)}}, as.a, false); err == nil {
			break
		}
	}
	return err
}
