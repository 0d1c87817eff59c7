package rowfile

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// hadoopCodecs is the package of Hadoop's codecs.
const hadoopCodecs = "org.apache.hadoop.io.compress."

// hadoopDecoder returns a function that decompresses what a codec of Hadoop has compressed, up to blockBytesMax bytes. It is used by one goroutine.
func hadoopDecoder(class string) (func([]byte) ([]byte, error), error) {
	switch strings.TrimPrefix(class, hadoopCodecs) {
	case "DefaultCodec", "DeflateCodec":
		return zlibDecoder(), nil
	case "GzipCodec":
		return streamDecoder(func(in io.Reader) (io.Reader, error) { return gzip.NewReader(in) }), nil
	case "BZip2Codec":
		return streamDecoder(func(in io.Reader) (io.Reader, error) { return bzip2.NewReader(in), nil }), nil
	case "SnappyCodec":
		return hadoopSnappy, nil
	case "ZStandardCodec":
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(blockBytesMax)))
		if err != nil {
			return nil, err
		}
		return func(b []byte) ([]byte, error) {
			out, err := d.DecodeAll(b, nil)
			return out, decodeError(err)
		}, nil
	}
	return nil, fmt.Errorf("codec %.100q: want DefaultCodec, GzipCodec, SnappyCodec, ZStandardCodec or BZip2Codec of Hadoop", class)
}

// decodeError describes an error of a decompressor.
func decodeError(err error) error {
	if err != nil {
		return fmt.Errorf("decompress: %w", orDamaged(err))
	}
	return nil
}

// orDamaged returns an error for compressed data that ends too early.
func orDamaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the compressed data ends too early: the file is damaged, so copy or export it again")
	}
	return err
}

// errBomb returns the error which means that a part of a file has more bytes, decompressed, than are held in memory.
func errBomb() error {
	return fmt.Errorf("more than %d MiB: write the file with smaller blocks", blockBytesMax>>20)
}

// bounded reads decompressed data to its end.
func bounded(in io.Reader, err error) ([]byte, error) {
	var out []byte
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(in, blockBytesMax+1))
	}
	if err == nil && int64(len(out)) > blockBytesMax {
		err = errBomb()
	}
	if err != nil {
		return nil, decodeError(err)
	}
	return out, nil
}

// streamDecoder returns a function that decompresses with a reader.
func streamDecoder(open func(io.Reader) (io.Reader, error)) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) { return bounded(open(bytes.NewReader(b))) }
}

// zlibDecoder reuses a reader: a file that is compressed by records has one stream for each value.
func zlibDecoder() func([]byte) ([]byte, error) {
	var z io.ReadCloser
	return func(b []byte) ([]byte, error) {
		var err error
		if z == nil {
			z, err = zlib.NewReader(bytes.NewReader(b))
		} else {
			err = z.(zlib.Resetter).Reset(bytes.NewReader(b), nil)
		}
		if err != nil {
			z = nil
			return nil, decodeError(err)
		}
		return bounded(z, nil)
	}
}

// hadoopSnappy decompresses what Hadoop's block compressors write: the length of a part, and as many bytes in chunks, each with the length of the compressed
// bytes. Lengths have 4 bytes, big-endian.
func hadoopSnappy(b []byte) ([]byte, error) {
	var out []byte
	for len(b) > 0 {
		left, err := cutUint32(&b)
		if err != nil {
			return nil, err
		}
		if int64(len(out))+left > blockBytesMax {
			return nil, decodeError(errBomb())
		}
		for left > 0 {
			chunk, err := snappyChunk(&b, left)
			if err != nil {
				return nil, decodeError(err)
			}
			out, left = append(out, chunk...), left-int64(len(chunk))
		}
	}
	return out, nil
}

// snappyChunk cuts a chunk off b, and decompresses it to at most limit bytes.
func snappyChunk(b *[]byte, limit int64) ([]byte, error) {
	n, err := cutUint32(b)
	if err != nil {
		return nil, err
	}
	if n > int64(len(*b)) {
		return nil, orDamaged(io.EOF)
	}
	raw := (*b)[:n]
	*b = (*b)[n:]
	out, err := unsnappy(raw, limit)
	if err == nil && len(out) == 0 {
		err = errors.New("a chunk without bytes")
	}
	return out, err
}

// unsnappy decompresses a block of Snappy to at most limit bytes. A block of a few bytes may promise any length: 3 bytes make at most 64.
func unsnappy(raw []byte, limit int64) ([]byte, error) {
	size, err := snappy.DecodedLen(raw)
	if err != nil {
		return nil, err
	}
	if int64(size) > limit || size > 32*len(raw) {
		return nil, fmt.Errorf("%d bytes of Snappy that promise %d, where up to %d are expected", len(raw), size, limit)
	}
	return snappy.Decode(nil, raw)
}

func cutUint32(b *[]byte) (int64, error) {
	if len(*b) < 4 {
		return 0, orDamaged(io.EOF)
	}
	v := binary.BigEndian.Uint32(*b)
	*b = (*b)[4:]
	return int64(v), nil
}
