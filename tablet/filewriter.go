package tablet

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// fileWriter writes one SSTable of a locality group.
type fileWriter struct {
	blob     BlobWriter
	w        *sstable.Writer
	meta     FileMeta
	sums     familySums
	families map[uint32]bool // ids of the families added
	last     *family         // last family added
	largest  int             // largest value, in bytes
}

// budgetBurst is the number of bytes that compactions may write at once after writing nothing for a
// while: two writes of sstable.Writer. With 32 MiB each compaction began by keeping a processor
// from reads for 60 ms.
const budgetBurst = 512 << 10

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
	BlobWriter
	ctx    context.Context
	server *Server
}

func (l *limitedBlob) Write(p []byte) (int, error) {
	for n := len(p); n > 0 && !l.server.behind(); n -= budgetBurst {
		if err := l.server.budget.WaitN(l.ctx, min(n, budgetBurst)); err != nil {
			return 0, err
		}
	}
	return l.BlobWriter.Write(p)
}

// newFileWriter begins a file of group g, of about the given size in bytes, for a minor or another
// compaction. It calls step, if not nil, with the bytes written.
//
// A file of a minor compaction is high priority: without it no commit log is released, and full
// disks would never get free space again. Other compactions also need space for their inputs, so
// they may wait.
func (t *Tablet) newFileWriter(ctx context.Context, g *table.LocalityGroup, bytes int64, minor bool, step func(bytes int)) (*fileWriter, error) {
	var blob BlobWriter
	var err error
	if minor || t.highPriority {
		blob, err = t.server.cfg.Blobs.CreateHighPriority(ctx, bytes)
	} else {
		blob, err = t.server.cfg.Blobs.Create(ctx)
	}
	if err != nil {
		return nil, err
	}
	opts := sstable.Options{BlockBytes: g.BlockBytes, Compression: g.Compression}
	if minor && g.Compression == table.CompressionTwoPass {
		// The memtable occupies memory meanwhile, and the file is soon merged into a larger one,
		// which is large enough to learn from.
		opts.Compression = table.CompressionZstd
	}
	if !minor {
		blob = &limitedBlob{BlobWriter: blob, ctx: ctx, server: t.server}
		opts.Cache = t.server.memory.cache
	}
	opts.Worked = step
	opts.LearnBytes = int(min(t.server.cfg.LearnMemory-learnWorkBytes, learnBytesMax))
	switch g.Bloom {
	case table.BloomRow:
		opts.FilterPrefixes, opts.FilterName = rowPrefixes, filterNameRow
	case table.BloomRowCol, table.BloomDefault:
		opts.FilterPrefixes, opts.FilterName = rowColumnPrefixes, filterNameRowColumn
	}
	return &fileWriter{blob: blob, w: sstable.NewWriter(blob, opts), meta: FileMeta{MinSeq: math.MaxUint64}, families: map[uint32]bool{}}, nil
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
func (w *fileWriter) finish(ctx context.Context, s *Server) (*file, error) {
	m, err := w.w.Finish(map[string][]byte{
		propFamilies: appendFamilies(nil, w.families), propLargest: binary.AppendUvarint(nil, uint64(w.largest)),
		propFamilyBytes: appendFamilySums(nil, &w.sums),
	})
	if err != nil {
		w.blob.Abort()
		return nil, err
	}
	w.meta.Entries, w.meta.RawBytes = int64(m.Entries), int64(m.RawBytes)
	if w.meta.Handle, err = w.blob.Seal(ctx); err != nil {
		w.blob.Abort()
		return nil, err
	}
	f, err := s.openFile(ctx, w.meta, nil, nil, w.w.FileNum())
	if err == nil {
		f.warm = w.w.Warm()
	}
	return f, err
}

// discard releases files that were finished but not installed. If named is set, the metadata may
// yet name them, so their blobs stay; the next start removes unnamed ones.
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
