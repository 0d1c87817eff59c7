package sstable

import (
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sstable/twopass"
)

const (
	// zstdEncoders is how many blocks are compressed concurrently. Minor and merging compactions
	// reach 100 MB/s and more each, with any number of cores.
	zstdEncoders = 2
	// ZstdMemory is the memory of the encoders, in bytes: 3.5 MiB each, of which 2 MiB are two
	// windows.
	ZstdMemory = zstdEncoders * 7 << 19
)

// zstdEncoder and zstdDecoder are shared: both are safe for concurrent use with whole blocks. The
// encoder has zstdEncoders states, the decoder one per core, instead of one per file. Frames have
// our checksum, so zstd's is off.
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(zstdEncoders),
		// 1 MiB: the largest ordinary block. A larger one has a single value.
		zstd.WithWindowSize(1<<20))
	if err != nil {
		panic("BUG: zstd encoder options: " + err.Error())
	}
	return e
})

// zstdDecoder never produces more than the capacity of its output buffer, and rejects windows
// beyond the largest block.
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

// compressor produces the stored form of blocks.
type compressor struct {
	method table.Compression
	two    *twopass.Encoder // if want is two-pass
	spare  []byte
}

// release drops a buffer that a huge block has grown.
func (c *compressor) release() { c.spare = reuse(c.spare) }

// stored returns a compressed form of raw if that is smaller by at least an eighth, otherwise raw.
// The result is valid until the next call.
func (c *compressor) stored(raw []byte, k kind) ([]byte, table.Compression) {
	c.spare = c.spare[:0]
	method := c.method
	if method == table.CompressionTwoPass && k != kindData {
		method = table.CompressionZstd
	}
	switch method {
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
	return c.spare, method
}
