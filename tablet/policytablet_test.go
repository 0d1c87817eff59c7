package tablet

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/storage"
)

// countedFiles counts reads of sealed blobs, bytes written to blobs, and their current size.
type countedFiles struct {
	*countedBlobs
	mu struct {
		sync.Mutex
		written, there, most int64
		lengths              map[blobfs.ID]int64
	}
}

func newCountedFiles(b *countedBlobs) *countedFiles {
	c := &countedFiles{countedBlobs: b}
	c.mu.lengths = map[blobfs.ID]int64{}
	return c
}

func (c *countedFiles) add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.written += max(n, 0)
	c.mu.there += n
	c.mu.most = max(c.mu.most, c.mu.there)
}

func (c *countedFiles) Create(ctx context.Context) (storage.BlobWriter, error) {
	w, err := c.countedBlobs.Create(ctx)
	return &countedWriter{BlobWriter: w, of: c}, err
}

func (c *countedFiles) CreateHighPriority(ctx context.Context, bytes int64) (storage.BlobWriter, error) {
	w, err := c.countedBlobs.CreateHighPriority(ctx, bytes)
	return &countedWriter{BlobWriter: w, of: c}, err
}

func (c *countedFiles) Delete(ctx context.Context, id blobfs.ID) error {
	err := c.countedBlobs.Delete(ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.there -= c.mu.lengths[id]
	delete(c.mu.lengths, id)
	return err
}

// countedWriter is for blobs that are sealed: no compaction of these tests is aborted.
type countedWriter struct {
	storage.BlobWriter
	of     *countedFiles
	length int64
}

func (w *countedWriter) Write(p []byte) (int, error) {
	w.length += int64(len(p))
	w.of.add(int64(len(p)))
	return w.BlobWriter.Write(p)
}

func (w *countedWriter) Seal(ctx context.Context) (blobfs.Handle, error) {
	h, err := w.BlobWriter.Seal(ctx)
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.mu.lengths[h.ID] = w.length
	return h, err
}

// policyCounts are the operations on a tablet and their costs.
type policyCounts struct {
	reads, readFiles float64 // of one row; files that they look into
	scans, scanFiles float64
	rows, rowBytes   float64 // returned by reads and scans
	blocks, disk     float64 // blocks that they looked up, cached or not; bytes from the disk

	// Of writes, as sums of the values after each memtable.
	samples   float64
	written   float64 // bytes written to files per byte put
	space     float64 // bytes of files per byte of live cells
	files     float64
	spaceMost float64 // not a sum: the maximum, during compactions
}

func (c *policyCounts) fields() []*float64 {
	return []*float64{&c.reads, &c.readFiles, &c.scans, &c.scanFiles, &c.rows, &c.rowBytes, &c.blocks, &c.disk}
}

// policyTablet is a tablet whose files are merged by a given policy, as soon as a memtable was
// written out. Nothing else runs beside the test, so its counts do not depend on the speed of the
// machine.
type policyTablet struct {
	*env
	rng      *rand.Rand
	files    *countedFiles
	memtable int // bytes at which it is written out
	held     int // approximate bytes in it, with the overhead of cells, which varies
	Live     float64
	compact  int64        // bytes that compactions read
	counts   policyCounts // of reads, and of writes since a phase began
	batch    sync.WaitGroup

	// Of a phase: bytes written and put before it, and whether sampling has begun.
	before, put float64
	sampled     bool
}

// newPolicyTablet returns a tablet with memtables of the given bytes. Its family keeps one version,
// like those of "stele bench". Its blocks are small, like the tablet and the cache.
func newPolicyTablet(t testing.TB, p mergePolicy, memtable int, cache int64, options string) *policyTablet {
	never := 1 << 20 // files at which a writer would wait
	e := newEnv(t, Config{
		MemtableBytes: 64 << 20, CacheBytes: cache, FilesMax: never, CompactionBytesPerSecond: -1, SplitBytes: -1, SplitOps: -1,
		pick: func(sizes []int64, _ int) (from, to int) { return p.pick(sizes) },
	}, "f:versions=1,group=values,block=8KiB"+options)
	m := &policyTablet{env: e, memtable: memtable, rng: rand.New(rand.NewPCG(7, 7)), files: newCountedFiles(e.countReads())}
	e.Server.useBlobs(m.files)
	return m
}

// now returns the counts up to here.
func (m *policyTablet) now() *policyCounts {
	c, cache := m.counts, m.Stats().Cache
	c.blocks = float64(cache.Hits + cache.Misses)
	c.disk = float64(m.files.bytes.Load() - m.compact)
	return &c
}

// during adds the cost of do's reads to c.
func (m *policyTablet) during(c *policyCounts, do func()) {
	before := m.now()
	do()
	b, n := before.fields(), m.now().fields()
	for i, f := range c.fields() {
		*f += *n[i] - *b[i]
	}
}

// phase runs do, which writes, and adds its cost to each of the counts. sampled receives do's
// progress.
func (m *policyTablet) phase(of []*policyCounts, do func()) {
	written, _, _ := m.files.take()
	m.before, m.put, m.sampled = float64(written), 0, false
	m.counts.samples, m.counts.written, m.counts.space, m.counts.files, m.counts.spaceMost = 0, 0, 0, 0, 0
	do()
	m.flushNow()
	n := &m.counts
	for _, c := range of {
		c.samples, c.written, c.space, c.files, c.spaceMost = n.samples, n.written, n.space, n.files, n.spaceMost
	}
}

// cellOverhead is the approximate overhead of a cell in a memtable, in bytes.
const cellOverhead = 150

// apply starts writing a row. If it is new, its cells are live in addition to the others.
func (m *policyTablet) apply(row []byte, isNew bool, cells ...table.Mutation) {
	bytes := len(row)
	for i := range cells {
		bytes += len(cells[i].Qualifier) + len(cells[i].Value)
	}
	m.put += float64(bytes)
	m.held += bytes + len(cells)*cellOverhead
	if isNew {
		m.Live += float64(bytes)
	}
	m.batch.Add(1)
	m.Apply(testTable, &table.RowMutation{Row: row, Mutations: cells}, func(_ int64, err error) {
		if err != nil {
			m.t.Error(err)
		}
		m.batch.Done()
	})
}

// settle waits for pending writes, and writes out the memtable if it is large enough. It reports
// whether it was.
func (m *policyTablet) settle() bool {
	m.batch.Wait()
	if m.held < m.memtable {
		return false
	}
	m.flushNow()
	return true
}

// flushNow writes out the memtable and merges files.
func (m *policyTablet) flushNow() {
	m.held = 0
	before := m.files.bytes.Load()
	if err := m.Compact(context.Background(), testTable, false); err != nil {
		m.t.Fatal(err)
	}
	m.compact += m.files.bytes.Load() - before
	written, there, most := m.files.take()
	if !m.sampled {
		return
	}
	c := &m.counts
	c.samples++
	c.written += (float64(written) - m.before) / m.put
	c.space += float64(there) / m.Live
	c.spaceMost = max(c.spaceMost, float64(most)/m.Live)
	c.files += float64(len(m.sstables()))
}

// take returns the bytes of blobs written, the current bytes, and their maximum since the last
// call.
func (c *countedFiles) take() (written, there, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most, c.mu.most = c.mu.most, c.mu.there
	return c.mu.written, c.mu.there, most
}

// sstables returns the tablet's files. Nothing compacts them meanwhile, so they stay.
func (m *policyTablet) sstables() []*file {
	v, _, err := m.tabletOfTest().views.acquire()
	if err != nil {
		m.t.Fatal(err)
	}
	defer v.release()
	return v.filesOf("values")
}

// emit counts a row that was read.
func (m *policyTablet) emit(row []byte, cells []table.Cell) error {
	m.counts.rows++
	m.counts.rowBytes += float64(len(row))
	for i := range cells {
		m.counts.rowBytes += float64(len(cells[i].Qualifier) + len(cells[i].Value))
	}
	return nil
}

// get reads a row, which must exist.
func (m *policyTablet) get(row []byte) {
	at := point{key: row, row: ikey.AppendRow(nil, row)}
	for _, f := range m.sstables() {
		if at.mayHold(f) {
			m.counts.readFiles++
		}
	}
	m.counts.reads++
	before := m.counts.rows
	if err := m.ReadRow(context.Background(), testTable, row, nil, m.emit); err != nil {
		m.t.Fatal(err)
	}
	if m.counts.rows != before+1 {
		m.t.Fatalf("row %q is not there", row)
	}
	m.trim()
}

// trim evicts what is above the cache's budget, which otherwise happens in the background.
func (m *policyTablet) trim() {
	cache := m.readMemory.Cache()
	cache.Resize(cache.Stats().Budget)
}

// scan reads n rows from a row on, or those that exist.
func (m *policyTablet) scan(from []byte, n int) {
	m.counts.scanFiles += float64(len(m.sstables()))
	m.counts.scans++
	_, err := m.Scan(context.Background(), testTable, Range{Start: from}, nil, func(row []byte, cells []table.Cell) error {
		_ = m.emit(row, cells)
		if n--; n == 0 {
			return ErrLast
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.trim()
}
