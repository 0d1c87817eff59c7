package tablet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/sstable"
)

// Blobs is what a tablet server needs of the block store.
type Blobs interface {
	// Create begins a blob. Its Seal returns only when the blob is durable.
	Create(ctx context.Context) (BlobWriter, error)
	// CreateVital is Create of a blob of about so many bytes, 0 if that is not known, whose writing lets logs go, or
	// without which nothing can be deleted: it gets room also where disks are full for others.
	CreateVital(ctx context.Context, bytes int64) (BlobWriter, error)
	// OpenBlob opens a sealed blob; the error is blobfs.ErrNoBlob if no
	// replica holds it whole.
	OpenBlob(ctx context.Context, h blobfs.Handle) (BlobReader, error)
	// Delete removes a blob. A blob that is not there is no error.
	Delete(ctx context.Context, id blobfs.ID) error
	// Abandon says that this server needs a blob no more, which others may.
	Abandon(h blobfs.Handle)

	// CreateLog begins a log blob.
	CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error)
	// Logs lists the log blobs of this server.
	Logs(ctx context.Context) ([]blobfs.ID, error)
	// OpenLog fences the log's writer, if there is one still, and reads it.
	OpenLog(ctx context.Context, id blobfs.ID) (LogReader, error)
	// RemoveLog removes a log blob.
	RemoveLog(ctx context.Context, id blobfs.ID) error
}

// ErrMetaChanged means that a tablet's metadata is not at the generation that a
// change was based on, or is gone.
var ErrMetaChanged = errors.New("tablet metadata was changed by another")

// ErrMetaUnsent stands beside ErrMetaChanged if the change was not even tried: nobody can ever see what it names.
var ErrMetaUnsent = errors.New("the change was not tried")

// ErrNoMeta means that there is no metadata of a tablet.
var ErrNoMeta = errors.New("no metadata of such a tablet")

// ErrMetaLost means that a tablet has been given to another server. This one stops
// serving it.
var ErrMetaLost = errors.New("tablet was given to another server")

// ErrMetaTooLarge means that a tablet's metadata does not fit where it is kept.
var ErrMetaTooLarge = errors.New("tablet metadata too large")

// BlobWriter writes one immutable blob.
type BlobWriter interface {
	io.Writer
	// Seal makes the blob durable and returns its handle.
	Seal(ctx context.Context) (blobfs.Handle, error)
	// Abort gives the blob up. After Seal it does nothing.
	Abort()
}

// BlobReader reads one sealed blob.
type BlobReader interface {
	sstable.Source
	io.Closer
}

// LogWriter appends to a log blob.
type LogWriter interface {
	commitlog.Appender
	// Release tells that nothing below pos will be read again.
	Release(pos int64)
	// Weak returns the position up to which the log is not as safe as it should be: what
	// lies before is to be written out. Zero if it is.
	Weak() int64
	// Full returns a blobfs.ErrDiskFull if appends wait and the log has no disk with space
	// to go on elsewhere, and nil otherwise.
	Full() error
	// Close ends writing. What was appended stays.
	Close() error
}

// LogReader reads a log blob from its start.
type LogReader interface {
	// Next returns the next batch, or io.EOF after the last whole one.
	Next() (payload []byte, pos int64, err error)
	Close() error
}

// Metadata keeps the metadata rows of tablets. Each change is made only while this
// server is alive and the tablet its own. A change whose outcome was not known may take effect
// later, but not after another change of the same row has returned.
type Metadata interface {
	// Save replaces the row of tablet m, which is that of m.Table and m.End, if it is still as the last call about it
	// left or found it. The row is durable then. An error that is
	// ErrMetaUnsent or ErrMetaTooLarge says that it was not replaced, ErrMetaChanged or ErrMetaLost alone that another has replaced it:
	// perhaps what this call had made of it;
	// any other leaves that open, and Load tells. ErrClosed leaves it open for good: there will be no answers any more.
	Save(ctx context.Context, m *Meta) error
	// Load returns the row of the table's tablet with that end, from which the next change of it then starts. The error is
	// ErrNoMeta if there is none.
	Load(ctx context.Context, table uint64, end []byte) (*Meta, error)
	// Split makes the row of lower, in one change, if there is none of its table
	// and end. It is split off upper, whose row stays as
	// it is. What is assigned or noted beside upper is so beside lower. Errors: as Save.
	Split(ctx context.Context, lower, upper *Meta) error
	// Remove removes the row of tablet m if it is as the last call about it left or found it. Errors: as Save.
	Remove(ctx context.Context, m *Meta) error
}

// Config says how a tablet server works. Zero values mean the defaults.
type Config struct {
	Blobs    Blobs
	Metadata Metadata
	// Schemas is asked for the schema of a table when its Version is not current any more. Nil: no Load has a Version.
	Schemas Schemas

	// NewTabletID returns an id that no tablet has had. Only splits need it.
	NewTabletID func(ctx context.Context) (uint64, error)

	// Now is the wall clock. Nil means time.Now.
	Now func() time.Time

	Logger *slog.Logger // nil discards

	// Serving returns nil while the server is provably the one that serves its
	// tablets, as the holder of an unexpired lease is, and otherwise what an
	// operation is answered then: an error that is api.ErrNotServing or
	// api.ErrUnavailable. It is asked twice for each operation and must not
	// wait. Nil means always.
	Serving func() error

	// MemtableBytes is the size at which a tablet's memtable is frozen and
	// written out. Zero means 64 MiB, or a quarter of MemtablesBytesMax if that is less.
	MemtableBytes int64

	// MemtablesBytesMax bounds all memtables of the server together. Writers
	// wait when it is reached. Zero means 256 MiB; at least 1 MiB.
	MemtablesBytesMax int64

	// CacheBytes is the memory for all that serves reads: what open files keep, files of in-memory groups, and the
	// block cache. Zero means 256 MiB.
	CacheBytes int64

	// LogBytesMax is how much commit log may have to be read at recovery
	// before the tablets that hold it are written out. Zero means 1 GiB.
	LogBytesMax int64

	// LogBatchBytes bounds what is written to the commit log at once, in bytes, but a larger mutation. The log's buffers are four of
	// that. Zero means 4 MiB.
	LogBatchBytes int64

	// LogLater tells that the commit log is begun with the first tablet that is loaded: one that
	// is open costs room on several nodes.
	LogLater bool

	// FilesMax is how many files of a locality group a read may have to merge.
	// Merging compactions start at FilesMerge; writers wait at FilesMax. Zero
	// means 40 and 6.
	FilesMax, FilesMerge int

	// MajorPeriod is how long deleted data may stay on disk: each tablet has a
	// major compaction within it (I10). Zero means 24 h.
	MajorPeriod time.Duration

	// CompactionBytesPerSecond bounds what merging and major compactions
	// write, so that reads and commits keep their share of the disk. It does
	// not hold while a group of any tablet has half of FilesMax files. Zero means 128 MiB;
	// negative means no bound.
	CompactionBytesPerSecond int64

	// CompactionMemory bounds what the merging and major compactions have of their files in memory: with huge values they take
	// fewer files at once, but two at least, or one of each group if families move. Others wait meanwhile. Zero means 64 MiB.
	CompactionMemory int64

	// RecoveryMemory bounds what loads have of sorted runs in memory, which the block cache gives way to. Others wait meanwhile. One
	// load may have more if it is alone: all runs of a tablet are read at once. Zero means 64 MiB.
	RecoveryMemory int64

	// LearnMemory is, beside CompactionMemory, for what a compaction holds back of a group with two-pass compression to learn from,
	// and for learning: one at a time. Zero means 24 MiB, which files of hundreds of MiB gain from; at least 9 MiB.
	LearnMemory int64

	// OverloadWait is how long a writer waits for memory before it is told
	// that the server is overloaded. Zero means 2 s.
	OverloadWait time.Duration

	// RowReadBytesMax bounds the cells of one row that a read holds in memory.
	// Zero means 512 MiB.
	RowReadBytesMax int64

	// LargeReadBytes bounds the blocks of large cells that reads hold at the same time. Zero means RowReadBytesMax.
	LargeReadBytes int64

	// OnSplitWanted is told, every 10 s, of each tablet with SplitBytes or more, and of
	// one that for half a minute had more than SplitOps operations a second and more than twice
	// the server's mean. It must not wait. Nil means that nobody wants to know.
	OnSplitWanted func(SplitWanted)
	// SplitBytes is the size of a tablet that should be split. Zero means 1 GiB;
	// negative means that size does not matter.
	SplitBytes int64
	// SplitRowBytes is the longest end of a tablet, in bytes, that Metadata can keep. Tablets with longer rows split at a shorter
	// key between two of them. Zero means no bound but that of rows.
	SplitRowBytes int64
	// SplitOps is the operations per second of a tablet that should be split. Zero
	// means 5000; negative means that load does not matter.
	SplitOps int64

	// OnFailure is called once, when the commit log has failed and the server
	// takes no more writes. Nil means nothing more than the log entry.
	OnFailure func(error)

	// pick is pickMerge, but where a test compares it with others.
	pick func(sizes []int64, filesMerge int) (from, to int)
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&c.MemtablesBytesMax, 256<<20)
	setDefault(&c.MemtableBytes, min(64<<20, c.MemtablesBytesMax/4))
	setDefault(&c.CacheBytes, 256<<20)
	setDefault(&c.LogBytesMax, 1<<30)
	setDefault(&c.LogBatchBytes, 4<<20)
	setDefault(&c.FilesMax, 40)
	setDefault(&c.FilesMerge, 6)
	setDefault(&c.MajorPeriod, 24*time.Hour)
	setDefault(&c.CompactionBytesPerSecond, 128<<20)
	setDefault(&c.CompactionMemory, 64<<20)
	setDefault(&c.RecoveryMemory, 64<<20)
	setDefault(&c.LearnMemory, 24<<20)
	setDefault(&c.SplitBytes, 1<<30)
	setDefault(&c.SplitOps, 5000)
	setDefault(&c.OverloadWait, 2*time.Second)
	setDefault(&c.RowReadBytesMax, 512<<20)
	setDefault(&c.LargeReadBytes, c.RowReadBytesMax)
	if c.pick == nil {
		c.pick = pickMerge
	}
	return c
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Validate returns an error that names the first field that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Blobs == nil || c.Metadata == nil:
		return errors.New("tablet server needs Blobs and Metadata")
	case c.MemtablesBytesMax < 1<<20:
		return fmt.Errorf("MemtablesBytesMax is %d bytes, must be at least 1 MiB", c.MemtablesBytesMax)
	case c.MemtableBytes < 64<<10 || c.MemtableBytes > c.MemtablesBytesMax:
		return fmt.Errorf("MemtableBytes is %d, must be from 64 KiB to MemtablesBytesMax (%d)", c.MemtableBytes, c.MemtablesBytesMax)
	case c.FilesMerge < 2 || c.FilesMax <= c.FilesMerge:
		return fmt.Errorf("FilesMerge is %d and FilesMax %d, must be 2 <= FilesMerge < FilesMax", c.FilesMerge, c.FilesMax)
	case c.LogBytesMax < 1<<20:
		return fmt.Errorf("LogBytesMax is %d bytes, must be at least 1 MiB", c.LogBytesMax)
	case c.LogBatchBytes < 1:
		return fmt.Errorf("LogBatchBytes is %d bytes, must be at least 1", c.LogBatchBytes)
	case c.LearnMemory < learnWorkBytes+1<<20:
		return fmt.Errorf("LearnMemory is %d bytes, must be at least %d", c.LearnMemory, learnWorkBytes+1<<20)
	}
	return nil
}
