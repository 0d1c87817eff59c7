package tablet

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
	"github.com/steledb/stele/tablet/deletion"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
	"github.com/steledb/stele/tablet/storage"
)

// file is an open SSTable, or the rows of it within bounds, as used by one tablet. Views hold
// references. When the last one is released and the metadata no longer names the file, its blob is
// deleted, or abandoned if other tablets may use it.
type file struct {
	meta   FileMeta
	table  *sstable.Table
	opened *opened
	whole  *file // during a cutover, the file that this is a part of; else nil
	refs   atomic.Int32
	unlink atomic.Bool // delete the blob with the last reference
	delete func(f *file)

	warm sstable.Blocks // blocks of a compaction's output that were made of cached ones

	bytes        int64 // approximate size on disk within the bounds
	largest      int64 // bytes of the largest value, 0 if unknown
	inner        bool  // the bounds exclude some of the tablet's rows
	columnFilter bool  // the Bloom filter has columns, not only rows

	families      []uint32 // ids of the families with entries, ascending
	familiesKnown bool     // if false, any family may have entries
	moved         movedFamilyCache

	weights      []familyWeight // sizes of the families, by id
	weightsKnown bool           // if false, the file does not record them
}

// opened is an open blob, used by the files of one or several tablets.
type opened struct {
	blob   storage.BlobReader
	table  *sstable.Table
	files  *sstables
	lo, hi []byte      // key range of the tablet that opened it; nil means no bound
	bulk   bool        // a bulk file: see propBulk
	shared atomic.Bool // set by a snapshot: others may name the blob, as with FileMeta.Shared
	refs   atomic.Int32
	pin    pinning
}

func (o *opened) release() {
	if o.refs.Add(-1) > 0 {
		return
	}
	o.files.pins.drop(o)
	o.files.memory.AddOpen(-o.table.MemoryBytes())
	_ = o.blob.Close() // read only: nothing to lose
}

func (f *file) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	if f.whole != nil {
		f.whole.release()
		return
	}
	f.opened.release()
	if f.unlink.Load() {
		f.delete(f)
	}
}

// deleteLater marks the blob to be deleted with the last reference.
func (f *file) deleteLater() {
	if f.whole != nil {
		f = f.whole
	}
	f.unlink.Store(true)
}

// sstables opens, creates and deletes the SSTables of a server's tablets.
type sstables struct {
	cfg         *Config
	memory      *budget.Reads
	compactions *budget.Compactions
	pins        *pins
	deletions   *deletion.Queue
	backlogs    *backlogs
}

// open opens the SSTable that m describes for a tablet with the rows start < row <= end. num is
// its number in the block cache; 0 assigns a new one.
func (s *sstables) open(ctx context.Context, m FileMeta, start, end []byte, num uint64) (*file, error) {
	blob, err := s.cfg.Blobs.OpenBlob(ctx, m.Handle)
	if err != nil {
		return nil, fmt.Errorf("open sstable %s: %w", m.Handle.ID, err)
	}
	t, err := sstable.Open(ctx, blob, sstable.OpenOptions{Cache: s.memory.Cache(), FileNum: num, Name: m.Handle.ID.String()})
	if err != nil {
		blob.Close()
		return nil, err
	}
	f := &file{table: t, opened: &opened{blob: blob, table: t, files: s}, delete: s.delete,
		columnFilter: t.Meta().FilterName == filterNameRowColumn}
	f.opened.lo, f.opened.hi = rowBounds(m.Start, m.End)
	if _, f.opened.bulk = t.Properties()[propBulk]; f.opened.bulk && (m.MinSeq != m.MaxSeq) {
		blob.Close()
		return nil, fmt.Errorf("open sstable %s: %w", m.Handle.ID, errBulkNumbers(&m))
	}
	if f.families, f.familiesKnown, err = familyIDs(t); err != nil {
		blob.Close()
		return nil, err
	}
	if f.largest, err = t.LargestValue(); err != nil {
		blob.Close()
		return nil, err
	}
	if f.weights, f.weightsKnown, err = familyWeights(t); err != nil {
		blob.Close()
		return nil, err
	}
	g, err := f.as(m, start, end)
	if err != nil {
		blob.Close()
		return nil, err
	}
	s.memory.AddOpen(t.MemoryBytes())
	return g, nil
}

// errBulkNumbers is the error of a bulk file whose metadata does not have one sequence number.
func errBulkNumbers(m *FileMeta) error {
	return fmt.Errorf("%w: a bulk file has sequence numbers %d to %d, want one", errBadMeta, m.MinSeq, m.MaxSeq)
}

// as returns the file with other metadata, for a tablet with the rows start < row <= end. The
// errors are those of reading the file's index.
func (f *file) as(m FileMeta, start, end []byte) (*file, error) {
	g := &file{meta: m, table: f.table, opened: f.opened, delete: f.delete, columnFilter: f.columnFilter,
		families: f.families, familiesKnown: f.familiesKnown, weights: f.weights, weightsKnown: f.weightsKnown, largest: f.largest}
	g.bytes = m.Handle.Length
	if m.bounded() {
		g.inner = string(m.Start) > string(start) || compareEnds(m.End, end) < 0
		var err error
		lo, hi := rowBounds(m.Start, m.End)
		if g.bytes, err = f.table.ApproxBytes(lo, hi); err != nil {
			return nil, err
		}
	}
	f.opened.refs.Add(1)
	return g, nil
}

// rowBounds returns the internal keys lo, inclusive, and hi, exclusive, of the rows start < row <=
// end; nil means no bound.
func rowBounds(start, end []byte) (lo, hi []byte) {
	if len(start) > 0 {
		lo = ikey.AppendRowEnd(nil, start)
	}
	if len(end) > 0 {
		hi = ikey.AppendRowEnd(nil, end)
		if planted.On(planted.SplitRowLost) {
			hi = ikey.AppendRow(nil, end)
		}
	}
	return lo, hi
}

// delete queues the deletion of a file that no view and no metadata holds, and removes its
// blocks from the cache, where they would displace useful ones. A blob that another tablet may use
// is left to garbage collection.
func (s *sstables) delete(f *file) {
	if f.meta.Shared || f.opened.shared.Load() {
		s.cfg.Blobs.Abandon(f.meta.Handle)
		return
	}
	f.table.DropCached()
	s.deletions.Add(f.meta.Handle.ID)
}

// fileWriter writes one SSTable of a locality group.
type fileWriter struct {
	blob     storage.BlobWriter
	w        *sstable.Writer
	meta     FileMeta
	sums     familySums
	families map[uint32]bool // ids of the families added
	last     *family         // last family added
	largest  int             // largest value, in bytes
	bulk     bool            // keys have no sequence numbers: see propBulk
}

const (
	// learnBytesMax bounds the data of a file, in bytes, that a compaction holds back at once to
	// learn from. 16 MiB: of pages of one site that gives half of the gain of the whole file, and
	// twice as much fills a file's dictionary.
	learnBytesMax = 16 << 20
	// learnWorkBytes is the additional memory of learning, in bytes.
	learnWorkBytes = 8 << 20
)

func learns(g table.LocalityGroup) bool { return g.Compression == table.CompressionTwoPass }

// limitedBlob limits a blob's writer to the server's budget of bytes per second, unless compactions
// are far behind.
type limitedBlob struct {
	storage.BlobWriter
	ctx   context.Context
	files *sstables
}

func (l *limitedBlob) Write(p []byte) (int, error) {
	for n := len(p); n > 0 && !l.files.backlogs.behind(); n -= budget.WriteBurst {
		if err := l.files.compactions.WaitToWrite(l.ctx, min(n, budget.WriteBurst)); err != nil {
			return 0, err
		}
	}
	return l.BlobWriter.Write(p)
}

// fileKind is what a file is written for.
type fileKind struct {
	// minor is set for a minor compaction. Its file is high priority: without it no commit log is
	// released, and full disks would never get free space again. Other compactions also need space
	// for their inputs, so they may wait.
	minor        bool
	highPriority bool  // see Load.HighPriority
	bytes        int64 // approximate size, 0 if unknown
	// bulk is set for a part of a bulk import, whose keys have no sequence numbers. Its writer must not hold back data to learn from.
	bulk bool
}

// FileOptions returns the options of an SSTable of a locality group that a minor compaction writes.
func FileOptions(g *table.LocalityGroup) sstable.Options {
	opts := sstable.Options{BlockBytes: g.BlockBytes, Compression: g.Compression}
	if g.Compression == table.CompressionTwoPass {
		// The memtable occupies memory meanwhile, and the file is soon merged into a larger one,
		// which is large enough to learn from.
		opts.Compression = table.CompressionZstd
	}
	switch g.Bloom {
	case table.BloomRow:
		opts.FilterPrefixes, opts.FilterName = rowPrefixes, filterNameRow
	case table.BloomRowCol, table.BloomDefault:
		opts.FilterPrefixes, opts.FilterName = rowColumnPrefixes, filterNameRowColumn
	}
	return opts
}

// create begins a file of group g. It calls step, if not nil, with the bytes written.
func (s *sstables) create(ctx context.Context, g *table.LocalityGroup, kind fileKind, step func(bytes int)) (*fileWriter, error) {
	var blob storage.BlobWriter
	var err error
	if kind.minor || kind.highPriority {
		blob, err = s.cfg.Blobs.CreateHighPriority(ctx, kind.bytes)
	} else {
		blob, err = s.cfg.Blobs.Create(ctx)
	}
	if err != nil {
		return nil, err
	}
	opts := FileOptions(g)
	if !kind.minor {
		blob = &limitedBlob{BlobWriter: blob, ctx: ctx, files: s}
	}
	if !kind.minor && !kind.bulk {
		opts.Compression = g.Compression
		opts.Cache = s.memory.Cache()
	}
	opts.Worked = step
	opts.PartialKeys = kind.bulk
	opts.LearnBytes = int(min(s.cfg.LearnMemory-learnWorkBytes, learnBytesMax))
	return &fileWriter{blob: blob, w: sstable.NewWriter(blob, opts), meta: FileMeta{MinSeq: math.MaxUint64}, families: map[uint32]bool{}, bulk: kind.bulk}, nil
}

func (w *fileWriter) add(f *family, key, value []byte) error {
	seq := ikey.Seq(key)
	w.meta.MinSeq, w.meta.MaxSeq = min(w.meta.MinSeq, seq), max(w.meta.MaxSeq, seq)
	w.largest = max(w.largest, len(value))
	if f == nil {
		w.meta.RowDeletions++
		return w.w.Add(key, value)
	}
	if f != w.last {
		w.families[f.ID], w.last = true, f
	}
	w.sums.of(f.ID).add(len(key) + len(value))
	if p, err := ikey.Split(key); err == nil && p.Kind == ikey.KindDeleteFamily {
		w.meta.RowDeletions++
	}
	return w.w.Add(key, value)
}

// wasCached records that the entry added last was in the block cache.
func (w *fileWriter) wasCached(key, value []byte) { w.w.WasCached(len(key) + len(value)) }

// finish makes the file durable and opens it.
func (w *fileWriter) finish(ctx context.Context, files *sstables) (*file, error) {
	props := map[string][]byte{
		propFamilies: appendFamilies(nil, w.families), sstable.PropLargest: binary.AppendUvarint(nil, uint64(w.largest)),
		propFamilyBytes: appendFamilySums(nil, &w.sums),
	}
	if w.bulk {
		props[propBulk] = nil
	}
	m, err := w.w.Finish(props)
	if err != nil {
		w.blob.Abort()
		return nil, err
	}
	w.meta.Entries, w.meta.RawBytes = int64(m.Entries), int64(m.RawBytes)
	if w.meta.Handle, err = w.blob.Seal(ctx); err != nil {
		w.blob.Abort()
		return nil, err
	}
	f, err := files.open(ctx, w.meta, nil, nil, w.w.FileNum())
	if err == nil {
		f.warm = w.w.Warm()
	}
	return f, err
}

// discard releases files that were finished but not installed. If named is set, the metadata may
// yet name them, so their blobs stay; garbage collection finds those that it does not name.
func discard(files map[string]*file, named bool) {
	for _, f := range files {
		f.unlink.Store(!named)
		f.refs.Store(1)
		f.release()
	}
}

func groupOf(s *schema, name string) *table.LocalityGroup {
	if g := s.table.Group(name); g != nil {
		return g
	}
	return s.table.Group(table.DefaultGroup)
}
