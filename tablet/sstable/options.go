package sstable

import (
	"fmt"

	"github.com/steledb/stele/table"
)

// Limits of the format. A file that exceeds them is corrupt.
const (
	// KeyBytesMax is the maximum length of a key. 1 MiB: a row key of 64 KiB and a qualifier of 16
	// KiB fit several times, however they are escaped.
	KeyBytesMax = 1 << 20
	// EntryBytesMax is the maximum of a key and its value together. 256 MiB is the largest row
	// mutation; the remainder is for its key.
	EntryBytesMax = 256<<20 + KeyBytesMax
	// PropertyBytesMax is the maximum of the names and values given to Finish together. They are
	// held in memory while the table is open.
	PropertyBytesMax = 1 << 20

	// blockRawMax bounds what a reader allocates for one block: an entry, its lengths and its
	// restart.
	blockRawMax = EntryBytesMax + 1<<20
)

// Options control how a file is written. Readers do not need them: the file has all parameters. The
// zero value is usable.
type Options struct {
	// BlockBytes is the size at which data blocks are cut, before compression. Zero means 64 KiB; 1
	// KiB to 1 MiB. A larger entry has a block of its own.
	BlockBytes int
	// Compression of the blocks. Zero means s2. A block that does not shrink by an eighth is stored
	// raw. With two-pass compression, all blocks except data blocks use zstd.
	Compression table.Compression
	// RestartInterval is the number of entries from one complete key to the next in a data block.
	// Zero means 16; 1 to 1024.
	RestartInterval int
	// FilterPrefixes appends to dst the lengths of the prefixes of key that the filter must
	// contain, each at least 1 and at most len(key). It must depend on the key only. Nil means no
	// filter.
	FilterPrefixes func(key []byte, dst []int) []int
	// FilterName is stored in the file and identifies the selection of prefixes, so that a reader
	// knows what it may pass to Table.MayContain. At most 255 bytes.
	FilterName string

	// LearnBytes is how much data is buffered at a time for two-pass compression to learn from.
	// Zero means 16 MiB.
	LearnBytes int

	// Cache is the cache of the file's readers, for Writer.WasCached. Nil means that the file is
	// not put into a cache.
	Cache *Cache

	// Worked, if not nil, is called after each piece of work with its size in bytes: for a data
	// block (raw) that was written, and for one that two-pass compression has learned from.
	Worked func(bytes int)

	// PartialKeys is set if the keys lack something that readers of the file must add. Such a file has a version that programs from before
	// the option reject: they would take the keys as they are.
	PartialKeys bool

	// Zero means the constant of the same name. Tests set less.
	learnMin int
}

const (
	defaultBlockBytes      = 64 << 10
	defaultRestartInterval = 16
	defaultLearnBytes      = 16 << 20
)

// Validate returns an error that wraps ErrBadOption and names the invalid option, or nil.
func (o Options) Validate() error {
	switch {
	case o.BlockBytes != 0 && (o.BlockBytes < 1<<10 || o.BlockBytes > 1<<20):
		return fmt.Errorf("%w: block size of %d bytes, must be 1024 to 1048576", ErrBadOption, o.BlockBytes)
	case o.Compression > table.CompressionTwoPass:
		return fmt.Errorf("%w: compression %d", ErrBadOption, o.Compression)
	case o.RestartInterval < 0 || o.RestartInterval > 1024:
		return fmt.Errorf("%w: restart interval %d, must be 1 to 1024", ErrBadOption, o.RestartInterval)
	case o.LearnBytes < 0:
		return fmt.Errorf("%w: LearnBytes of %d, must not be negative", ErrBadOption, o.LearnBytes)
	case len(o.FilterName) > 255:
		return fmt.Errorf("%w: filter name of %d bytes, must be at most 255", ErrBadOption, len(o.FilterName))
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.BlockBytes == 0 {
		o.BlockBytes = defaultBlockBytes
	}
	if o.Compression == 0 {
		o.Compression = table.CompressionS2
	}
	if o.LearnBytes == 0 {
		o.LearnBytes = defaultLearnBytes
	}
	if o.learnMin == 0 {
		o.learnMin = learnMin
	}
	if o.RestartInterval == 0 {
		o.RestartInterval = defaultRestartInterval
	}
	return o
}

// OpenOptions control how a file is read. The zero value is usable.
type OpenOptions struct {
	// Cache has the blocks of all tables of a server. Nil means that each lookup reads from the
	// source.
	Cache *Cache
	// FileNum identifies this file among all files that were ever in Cache: a number below 1<<63,
	// or Writer.FileNum. Zero means a new number, which is right unless the same file is opened
	// twice.
	FileNum uint64
	// Name of the file in errors.
	Name string
	// IndexBytesMax is the size of the index up to which all of it is held in memory, so that a
	// lookup costs at most one read. The lower level of a larger index goes through Cache. Zero
	// means 8 MiB, the index of about 16 GiB in blocks of 64 KiB; negative means never.
	IndexBytesMax int64
}

// IterOptions are bounds and read options of an iterator. The zero value reads the whole table and
// fills the cache.
type IterOptions struct {
	// Lower and Upper restrict the iterator to Lower <= key < Upper. Nil means no bound. The
	// iterator retains the slices.
	Lower, Upper []byte
	// NoCacheFill makes the iterator use cached blocks but leave the cache unchanged, for
	// compactions and long scans.
	NoCacheFill bool
	// ReadAheadBytes is how much is read from the source at a time when the iterator moves forward
	// over blocks that are not cached. Zero means one block. Used only with NoCacheFill. A value
	// that is kept keeps all bytes of its read in memory.
	ReadAheadBytes int
	// Timed makes the iterator measure how long it reads blocks that are not in memory: see Iter.TakeReads.
	Timed bool
	// Loaded, if not nil, is called with the raw length of each data block that the iterator loads.
	Loaded func(raw int)
	// Gate, if not nil, is entered before a data block larger than GateBytes is read, with its
	// stored size, and before it is decompressed, with its raw size if that is larger. If the
	// iterator reads ahead, the second call comes after decompression.
	Gate Gate
}

// GateBytes is the size, stored or decompressed, above which a block must pass the Gate. 128 KiB:
// blocks are 64 KiB, unless a cell is larger.
const GateBytes = 128 << 10

// A Gate bounds the memory of large blocks in use at the same time.
type Gate interface {
	// Enter returns when a block of the given size may be loaded. Its error stops the iterator. It
	// may release blocks of other iterators. It may be called twice for a block, the second time
	// with more bytes.
	Enter(bytes int) error
}
