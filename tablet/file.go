package tablet

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
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
	blob   BlobReader
	table  *sstable.Table
	server *Server
	lo, hi []byte // key range of the tablet that opened it; nil means no bound
	refs   atomic.Int32
	pin    pinning
}

func (o *opened) release() {
	if o.refs.Add(-1) > 0 {
		return
	}
	o.server.pins.drop(o)
	o.server.memory.addOpen(-o.table.MemoryBytes())
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

// openFile opens the SSTable that m describes for a tablet with the rows start < row <= end. num is
// its number in the block cache; 0 assigns a new one.
func (s *Server) openFile(ctx context.Context, m FileMeta, start, end []byte, num uint64) (*file, error) {
	blob, err := s.cfg.Blobs.OpenBlob(ctx, m.Handle)
	if err != nil {
		return nil, fmt.Errorf("open sstable %s: %w", m.Handle.ID, err)
	}
	t, err := sstable.Open(ctx, blob, sstable.OpenOptions{Cache: s.memory.cache, FileNum: num, Name: m.Handle.ID.String()})
	if err != nil {
		blob.Close()
		return nil, err
	}
	f := &file{table: t, opened: &opened{blob: blob, table: t, server: s}, delete: s.deleteFile,
		columnFilter: t.Meta().FilterName == filterNameRowColumn}
	f.opened.lo, f.opened.hi = rowBounds(m.Start, m.End)
	if f.families, f.familiesKnown, err = familyIDs(t); err != nil {
		blob.Close()
		return nil, err
	}
	if f.largest, err = largestValue(t); err != nil {
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
	s.memory.addOpen(t.MemoryBytes())
	return g, nil
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
	}
	return lo, hi
}

// deleteFile queues the deletion of a file that no view and no metadata holds, and removes its
// blocks from the cache, where they would displace useful ones. A blob that another tablet may use
// is left to garbage collection.
func (s *Server) deleteFile(f *file) {
	if f.meta.Shared {
		s.cfg.Blobs.Abandon(f.meta.Handle)
		return
	}
	f.table.DropCached()
	s.deletions.add(f.meta.Handle.ID)
}
