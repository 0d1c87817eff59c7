package tablet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/steledb/stele/tablet/storage"
)

// ErrMetaChanged means that a tablet's metadata row is missing, or is not at the generation that a
// change was based on.
var ErrMetaChanged = errors.New("tablet metadata was changed concurrently")

// ErrMetaUnsent accompanies ErrMetaChanged if the change was never sent, so no reader can ever see
// the files that it names.
var ErrMetaUnsent = errors.New("metadata change was not sent")

// ErrNoMeta means that a tablet has no metadata row.
var ErrNoMeta = errors.New("tablet has no metadata")

// ErrMetaLost means that a tablet has been assigned to another server. This server stops serving
// it.
var ErrMetaLost = errors.New("tablet was assigned to another server")

// ErrMetaTooLarge means that a tablet's metadata exceeds the size limit of its row.
var ErrMetaTooLarge = errors.New("tablet metadata too large")

// Metadata stores the metadata rows of tablets. A change is made only while this server is alive
// and the tablet is assigned to it. A change with an unknown outcome may still take effect later,
// but not after another change of the same row has returned.
type Metadata interface {
	// Save replaces the row of tablet m, identified by m.Table and m.End, if the row is still as
	// the last call for it left or found it. On success the row is durable.
	//
	// ErrMetaUnsent and ErrMetaTooLarge mean that the row was not replaced. ErrMetaChanged and
	// ErrMetaLost mean that another writer has replaced the row, possibly after this call had.
	// After any other error the outcome is unknown, and Load returns it. After ErrClosed it stays
	// unknown, since no more calls succeed.
	Save(ctx context.Context, m *Meta) error
	// Load returns the row of the table's tablet with that end. The next change of the row is based
	// on it. The error is ErrNoMeta if there is no such row.
	Load(ctx context.Context, table uint64, end []byte) (*Meta, error)
	// Split creates the row of lower in one change, if no row has its table and end. lower is split
	// off upper, whose row stays unchanged. Assignments and notes stored with upper are copied to
	// lower. Errors: as Save.
	Split(ctx context.Context, lower, upper *Meta) error
	// Remove deletes the row of tablet m if it is as the last call for it left or found it. Errors:
	// as Save.
	Remove(ctx context.Context, m *Meta) error
}

// Config configures a tablet server. Zero values mean the documented defaults.
type Config struct {
	Blobs    storage.Blobs
	Metadata Metadata
	// Schemas returns the schema of a table whose Version is no longer current. It may be nil if no
	// Load has a Version.
	Schemas Schemas

	// NewTabletID returns an id that no tablet has had. Only splits use it.
	NewTabletID func(ctx context.Context) (uint64, error)

	// Now is the wall clock. Nil means time.Now.
	Now func() time.Time

	Logger *slog.Logger // nil discards

	// Serving returns nil while the server provably holds the right to serve its tablets, for
	// example an unexpired lease. Otherwise it returns the error with which operations fail, which
	// matches api.ErrNotServing or api.ErrUnavailable. It is called twice for each operation and
	// must not block. Nil means always.
	Serving func() error

	// MemtableBytes is the size at which a tablet's memtable is frozen and written out. Zero means
	// 64 MiB, or a quarter of MemtablesBytesMax if that is less.
	MemtableBytes int64

	// MemtablesBytesMax bounds all memtables of the server together. Writers wait at this limit.
	// Zero means 256 MiB; at least 1 MiB.
	MemtablesBytesMax int64

	// CacheBytes is the memory for serving reads: the state of open files, the files of in-memory
	// groups, and the block cache. Zero means 256 MiB.
	CacheBytes int64

	// LogBytesMax is the size of commit log, in bytes, that recovery may have to read. Above it the
	// tablets whose entries it holds are written out. Zero means 1 GiB.
	LogBytesMax int64

	// LogSpaceMax is the disk space, in bytes, that each replica of the commit log may occupy. Extents
	// that the log left early have unused space. Above it the tablets whose entries the log holds are
	// written out. Zero means 1 GiB, or LogBytesMax if that is more; at least LogBytesMax.
	LogSpaceMax int64

	// LogBatchBytes bounds one write to the commit log, in bytes; a single larger mutation is
	// written on its own. The log's buffers use four times that. Zero means 4 MiB.
	LogBatchBytes int64

	// LogLater delays the creation of the commit log until the first tablet is loaded. An open log
	// uses disk space on several nodes.
	LogLater bool

	// FilesMax is the largest number of files of a locality group that a read may have to merge.
	// Merging compactions start at FilesMerge; writers wait at FilesMax. Zero means 40 and 6.
	FilesMax, FilesMerge int

	// MajorPeriod bounds how long deleted data may stay on disk: each tablet has a major compaction
	// within it (I10). Zero means 24 h.
	MajorPeriod time.Duration

	// CompactionBytesPerSecond bounds the write rate of merging and major compactions, so that
	// reads and commits keep their share of the disk. It does not apply while a group of any tablet
	// has half of FilesMax files. Zero means 128 MiB; negative means no bound.
	CompactionBytesPerSecond int64

	// CompactionMemory bounds the memory that merging and major compactions use for their input
	// files, in bytes. With huge values they take fewer files at once, but at least two, or one of
	// each group if families move. Others wait meanwhile. Zero means 64 MiB.
	CompactionMemory int64

	// RecoveryMemory bounds the memory that loads use for sorted runs, in bytes. The block cache
	// shrinks by it. Other loads wait meanwhile. A single load may exceed it, because all runs of a
	// tablet are read at once. Zero means 64 MiB.
	RecoveryMemory int64

	// LearnMemory is the memory, in addition to CompactionMemory, for two-pass compression: the
	// data of a group that a compaction holds back to learn from, and the learning itself. One
	// compaction learns at a time. Zero means 24 MiB, from which files of hundreds of MiB benefit;
	// at least 9 MiB.
	LearnMemory int64

	// OverloadWait is how long a writer waits for memory before it fails with an overloaded error.
	// Zero means 2 s.
	OverloadWait time.Duration

	// RowReadBytesMax bounds the cells of one row that a read holds in memory, in bytes. Zero means
	// 512 MiB.
	RowReadBytesMax int64

	// LargeReadBytes bounds the blocks of large cells that all reads together hold, in bytes. Zero
	// means RowReadBytesMax.
	LargeReadBytes int64

	// OnSplitCandidate is called every 10 s for each tablet of at least SplitBytes. It is also called
	// for a tablet that for half a minute had more than SplitOps operations a second and more than
	// twice the server's mean. It must not block. Nil means no calls.
	OnSplitCandidate func(SplitCandidate)
	// SplitBytes is the size of a tablet that should be split. Zero means 1 GiB; negative means no
	// split by size.
	SplitBytes int64
	// SplitRowBytes is the longest tablet end, in bytes, that Metadata can store. Tablets with
	// longer rows split at a shorter key between two rows. Zero means no bound but that of row
	// keys.
	SplitRowBytes int64
	// SplitOps is the number of operations per second at which a tablet should be split. Zero means
	// 5000; negative means no split by load.
	SplitOps int64

	// OnFailure is called once, when the commit log has failed and the server accepts no more
	// writes. Nil means that only a log entry is written.
	OnFailure func(error)

	// pick is pickMerge, replaced only by tests that compare policies.
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
	setDefault(&c.LogSpaceMax, max(1<<30, c.LogBytesMax))
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
	case c.MemtableBytes < 4<<10 || c.MemtableBytes > c.MemtablesBytesMax:
		return fmt.Errorf("MemtableBytes is %d, must be from 4 KiB to MemtablesBytesMax (%d)", c.MemtableBytes, c.MemtablesBytesMax)
	case c.FilesMerge < 2 || c.FilesMax <= c.FilesMerge:
		return fmt.Errorf("FilesMerge is %d and FilesMax %d, must be 2 <= FilesMerge < FilesMax", c.FilesMerge, c.FilesMax)
	case c.LogBytesMax < 64<<10:
		return fmt.Errorf("LogBytesMax is %d bytes, must be at least 64 KiB", c.LogBytesMax)
	case c.LogSpaceMax < c.LogBytesMax:
		return fmt.Errorf("LogSpaceMax is %d bytes, must be at least LogBytesMax (%d)", c.LogSpaceMax, c.LogBytesMax)
	case c.LogBatchBytes < 1:
		return fmt.Errorf("LogBatchBytes is %d bytes, must be at least 1", c.LogBatchBytes)
	case c.LearnMemory < learnWorkBytes+1<<20:
		return fmt.Errorf("LearnMemory is %d bytes, must be at least %d", c.LearnMemory, learnWorkBytes+1<<20)
	}
	return nil
}
