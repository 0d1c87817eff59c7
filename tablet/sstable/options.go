package sstable

import (
	"fmt"

	"github.com/steledb/stele/table"
)

// Limits of the format. A file that claims more is corrupt.
const (
	// KeyBytesMax is the longest key. 1 MiB: a row key of 64 KiB and a
	// qualifier of 16 KiB fit several times over, however they are escaped.
	KeyBytesMax = 1 << 20
	// EntryBytesMax is the largest sum of a key and its value. 256 MiB is
	// the largest row mutation; the rest is room for its key.
	EntryBytesMax = 256<<20 + KeyBytesMax
	// PropertyBytesMax is the largest sum of the names and values given to
	// Finish. They are held in memory while the table is open.
	PropertyBytesMax = 1 << 20

	// blockRawMax bounds what a reader allocates for one block: an entry of
	// its own, its shared lengths and its restarts.
	blockRawMax = EntryBytesMax + 1<<20
)

// Options say how a file is written. Readers need none of them: the file
// tells. The zero value is good.
type Options struct {
	// BlockBytes is the size that data blocks are cut at, before
	// compression. Zero means 64 KiB; 1 KiB to 1 MiB. An entry that is
	// larger has a block of its own.
	BlockBytes int
	// Compression of the blocks. Zero means s2. A block that does not
	// shrink by an eighth is stored as it is. With two-pass all but the
	// data blocks are compressed by zstd.
	Compression table.Compression
	// RestartInterval is the number of entries from one whole key to the
	// next. Zero means 16; 1 to 1024.
	RestartInterval int
	// FilterPrefixes appends to dst the lengths of those prefixes of key
	// that the filter must know, each at least 1 and at most len(key). It
	// must depend on the key alone. Nil means no filter.
	FilterPrefixes func(key []byte, dst []int) []int
	// FilterName is kept in the file and says which prefixes those are, so
	// that a reader knows what it may ask Table.MayContain. At most 255
	// bytes.
	FilterName string

	// LearnBytes is how much of data blocks is held back at once for two-pass
	// compression to learn from. Zero means 16 MiB.
	LearnBytes int

	// Cache is that of the readers, which Writer.WasCached is about. Nil means that nothing of the file will be in it.
	Cache *Cache

	// Worked, if not nil, is told of each piece of work how many bytes it was on: a data block, raw, that was written, or that two-pass
	// compression has learnt from.
	Worked func(bytes int)

	// Zero means the constant of the same name. Tests learn from less.
	learnLeast int
}

const (
	defaultBlockBytes      = 64 << 10
	defaultRestartInterval = 16
	defaultLearnBytes      = 16 << 20
)

// Validate returns an error that wraps ErrBadOption and names the option
// that is out of range, or nil.
func (o Options) Validate() error {
	switch {
	case o.BlockBytes != 0 && (o.BlockBytes < 1<<10 || o.BlockBytes > 1<<20):
		return fmt.Errorf("%w: block size of %d bytes, must be 1024 to 1048576", ErrBadOption, o.BlockBytes)
	case o.Compression > table.CompressionTwoPass:
		return fmt.Errorf("%w: compression %d", ErrBadOption, o.Compression)
	case o.RestartInterval < 0 || o.RestartInterval > 1024:
		return fmt.Errorf("%w: restart interval %d, must be 1 to 1024", ErrBadOption, o.RestartInterval)
	case o.LearnBytes < 0:
		return fmt.Errorf("%w: %d bytes to learn from, must not be negative", ErrBadOption, o.LearnBytes)
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
	if o.learnLeast == 0 {
		o.learnLeast = learnLeast
	}
	if o.RestartInterval == 0 {
		o.RestartInterval = defaultRestartInterval
	}
	return o
}

// OpenOptions say how a file is read. The zero value is good.
type OpenOptions struct {
	// Cache holds the blocks of all tables of a server. Nil means that each
	// look-up reads from the source.
	Cache *Cache
	// FileNum tells this file from all others that ever were in Cache; below
	// 1<<63, or Writer.FileNum. Zero means a number that no other table has: right
	// unless the same file is opened twice.
	FileNum uint64
	// Name of the file for errors.
	Name string
	// IndexBytesMax is the size of the index up to which all of it is held
	// in memory, so that every look-up costs one read at most. The lower
	// level of a larger index goes through Cache. Zero means 8 MiB, the
	// index of some 16 GiB in blocks of 64 KiB; negative means never.
	IndexBytesMax int64
}

// IterOptions bound an iterator and say how it reads. The zero value reads
// the whole table and fills the cache.
type IterOptions struct {
	// Lower and Upper restrict the iterator to Lower <= key < Upper. Nil is
	// no bound. The iterator keeps the slices.
	Lower, Upper []byte
	// NoCacheFill makes the iterator use blocks that are cached but leave
	// the cache as it is: for compactions and long scans.
	NoCacheFill bool
	// ReadAheadBytes is how much is read from the source at once when the
	// iterator moves forward over blocks that are not cached. Zero means
	// one block. Only used with NoCacheFill. Values that are kept keep all
	// that was read with them in memory.
	ReadAheadBytes int
	// Loaded, if not nil, is told the raw length of each data block that the iterator comes to.
	Loaded func(raw int)
	// Gate, if not nil, is asked before a data block above GateBytes is taken into memory, by what is stored, and before
	// it is decompressed, or, if the iterator reads ahead, after that.
	Gate Gate
}

// GateBytes is how large a block is, stored or decompressed, of which a Gate is asked. 128 KiB: blocks are of 64 KiB, unless a cell is larger.
const GateBytes = 128 << 10

// A Gate bounds the memory that large blocks take which are in use at the same time.
type Gate interface {
	// Enter returns when a block of so many bytes may be taken into memory. The iterator stops
	// with its error. It may have other iterators let go of blocks. It may be asked twice of a block, with more bytes then.
	Enter(bytes int) error
}
