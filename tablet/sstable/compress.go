package sstable

import (
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sstable/twopass"
)

const (
	// zstdEncoders is how many blocks are compressed at a time. A minor and a
	// merging compaction come to 100 MB/s each and more, whatever the cores.
	zstdEncoders = 2
	// ZstdMemory is what they keep, in bytes: 3.5 MiB each, of which 2 MiB are
	// two windows.
	ZstdMemory = zstdEncoders * 7 << 19
)

// zstdEncoder and zstdDecoder are shared: both are safe for concurrent use
// when whole blocks are given. The encoder keeps zstdEncoders states, the
// decoder one a core, and not one a file. Checksums are ours, so theirs is off.
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(zstdEncoders),
		// 1 MiB: the largest ordinary block. A larger one holds a single
		// value.
		zstd.WithWindowSize(1<<20))
	if err != nil {
		panic("BUG: zstd encoder options: " + err.Error())
	}
	return e
})

// zstdDecoder never makes more than it is given room for (the cap limit),
// nor takes a window beyond the largest block.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil,
		zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(blockRawMax),
		zstd.WithDecoderMaxWindow(512<<20),
		zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic("BUG: zstd decoder options: " + err.Error())
	}
	return d
})

// compressor makes the stored form of blocks.
type compressor struct {
	want  table.Compression
	two   *twopass.Encoder // if want is two-pass
	spare []byte
}

// release gives up a buffer that one huge block has left.
func (c *compressor) release() { c.spare = reuse(c.spare) }

// stored returns raw, or a compressed form of it if that is smaller by an
// eighth or more. The result is good until the next call.
func (c *compressor) stored(raw []byte, k kind) ([]byte, table.Compression) {
	c.spare = c.spare[:0]
	want := c.want
	if want == table.CompressionTwoPass && k != kindData {
		want = table.CompressionZstd
	}
	switch want {
	case table.CompressionS2:
		if n := s2.MaxEncodedLen(len(raw)); cap(c.spare) < n {
			c.spare = make([]byte, n)
		}
		c.spare = s2.Encode(c.spare[:cap(c.spare)], raw)
	case table.CompressionZstd:
		c.spare = zstdEncoder().EncodeAll(raw, c.spare[:0])
	case table.CompressionTwoPass:
		c.spare = c.two.Encode(c.spare[:0], raw)
	default:
		return raw, table.CompressionNone
	}
	if len(c.spare) >= len(raw) || len(c.spare) > len(raw)-len(raw)/8 {
		return raw, table.CompressionNone
	}
	return c.spare, want
}
