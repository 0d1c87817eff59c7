package rowfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/steledb/stele/table"
)

// avroSchema is that of the files that the Dataflow template "Cloud Bigtable to Cloud Storage Avro" writes.
const avroSchema = `{"name":"BigtableRow","type":"record","namespace":"com.google.cloud.teleport.bigtable","fields":[` +
	`{"name":"key","type":"bytes"},{"name":"cells","type":{"type":"array","items":{"name":"BigtableCell","type":"record","fields":[` +
	`{"name":"family","type":"string"},{"name":"qualifier","type":"bytes"},` +
	`{"name":"timestamp","type":"long","logicalType":"timestamp-micros"},{"name":"value","type":"bytes"}]}}}]}`

const avroMagic = "Obj\x01"

// avroHeaderMax bounds the metadata of a file, which has its schema.
const avroHeaderMax = 1 << 20

// avroReader reads an Avro container file. The container is read here, and not by package ocf, so that errors have the offset, and so that no
// cell takes memory before it is needed: 4 bytes of a hostile file are a cell.
type avroReader struct {
	in     *offsetReader
	sync   [16]byte
	decode func(block []byte) ([]byte, error)
	row    *avroRow
	at     int64      // where the block begins
	left   int64      // records of the block
	block  avroBuffer // what is left of it
	cells  avroCells  // those of the record
	names  interner
}

// offsetReader counts the bytes that have been read.
type offsetReader struct {
	*bufio.Reader
	n int64
}

func (r *offsetReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += int64(n)
	return n, err
}

func (r *offsetReader) ReadByte() (byte, error) {
	b, err := r.Reader.ReadByte()
	if err == nil {
		r.n++
	}
	return b, err
}

// take reads n bytes. For those that are not in the file, it allocates no more than readAhead, or 64 times what has been read.
func (r *offsetReader) take(n int64) ([]byte, error) {
	b := make([]byte, min(n, readAhead))
	_, err := io.ReadFull(r, b)
	for int64(len(b)) < n && err == nil {
		more := make([]byte, min(n, 64*int64(len(b))))
		copy(more, b)
		_, err = io.ReadFull(r, more[len(b):])
		b = more
	}
	return b, orTruncated(err)
}

// newAvroReader reads the header of a file. Errors: *FileError.
func newAvroReader(in *bufio.Reader) (*avroReader, error) {
	r := &avroReader{in: &offsetReader{Reader: in}}
	if err := r.header(); err != nil {
		return nil, &FileError{Offset: r.in.n, Err: err}
	}
	return r, nil
}

func (r *avroReader) header() error {
	magic, err := r.in.take(int64(len(avroMagic)))
	if err == nil && string(magic) != avroMagic {
		return fmt.Errorf("the file begins with %q, not with %q: it is not an Avro container file", magic, avroMagic)
	} else if err != nil {
		return err
	}
	meta, err := r.metadata()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(r.in, r.sync[:]); err != nil {
		return orTruncated(err)
	}
	schema, err := avro.Parse(string(meta["avro.schema"]))
	if err != nil {
		return fmt.Errorf("its schema: %w", err)
	}
	if r.row, err = newAvroRow(schema.Root()); err != nil {
		return fmt.Errorf("its schema: %w", err)
	}
	r.decode, err = avroDecoder(string(meta["avro.codec"]))
	return err
}

// metadata reads the map of the header.
func (r *avroReader) metadata() (map[string][]byte, error) {
	meta := map[string][]byte{}
	left := int64(avroHeaderMax)
	for {
		n, err := binary.ReadVarint(r.in)
		if err == nil && n < 0 { // the size of this part of the map follows
			n = -n
			_, err = binary.ReadVarint(r.in)
		}
		if err != nil || n == 0 {
			return meta, orTruncated(err)
		}
		for ; n != 0; n-- {
			var pair [2][]byte
			for i := range pair {
				if pair[i], err = r.metadatum(&left); err != nil {
					return nil, err
				}
			}
			meta[string(pair[0])] = pair[1]
		}
	}
}

// metadatum reads a key or a value of the header; left is how many bytes it may have.
func (r *avroReader) metadatum(left *int64) ([]byte, error) {
	size, err := binary.ReadVarint(r.in)
	if err != nil {
		return nil, orTruncated(err)
	}
	if *left -= 16; size < 0 || size > *left {
		return nil, fmt.Errorf("the header has more than %d KiB of metadata", avroHeaderMax>>10)
	}
	*left -= size
	return r.in.take(size)
}

// avroDecoder returns the function that decompresses a block.
func avroDecoder(codec string) (func([]byte) ([]byte, error), error) {
	var c ocf.Codec
	switch codec {
	case "", "null":
		return func(b []byte) ([]byte, error) { return b, nil }, nil
	case "deflate":
		return flateDecoder(), nil // faster than that of package ocf
	case "snappy":
		c = ocf.SnappyCodec()
	case "zstandard":
		var err error
		if c, err = ocf.ZstdCodec(nil, nil); err != nil { // it starts no goroutine, so that it need not be closed
			return nil, err
		}
	default:
		return nil, fmt.Errorf("codec %.32q: want null, deflate, snappy or zstandard", codec)
	}
	bounded := c.(ocf.BoundedDecompressor)
	return func(b []byte) ([]byte, error) {
		b, err := bounded.DecompressBounded(b, blockBytesMax)
		if err != nil {
			return nil, fmt.Errorf("a block that is not valid, or has more than %d MiB decompressed: %w", blockBytesMax>>20, err)
		}
		return b, nil
	}, nil
}

// flateDecoder reuses a reader.
func flateDecoder() func([]byte) ([]byte, error) {
	z := flate.NewReader(nil)
	return func(b []byte) ([]byte, error) {
		return bounded(z, z.(flate.Resetter).Reset(bytes.NewReader(b), nil))
	}
}

// record implements recordReader.
func (r *avroReader) record() ([]byte, error) {
	for r.left == 0 {
		if err := r.nextBlock(); errors.Is(err, io.EOF) {
			return nil, io.EOF
		} else if err != nil {
			return nil, &FileError{Offset: r.at, Err: err}
		}
	}
	r.left--
	key, err := r.row.record(&r.block, &r.cells)
	if err == nil && r.left == 0 && len(r.block.b) > 0 {
		err = fmt.Errorf("its block has %d bytes behind its last record", len(r.block.b))
	}
	if err != nil {
		r.left = 0
		return nil, &FileError{Offset: r.at, Record: -1, Err: err}
	}
	return key, nil
}

// nextBlock reads a block. Errors: io.EOF where one may begin.
func (r *avroReader) nextBlock() error {
	r.at = r.in.n
	if _, err := r.in.Peek(1); err != nil {
		return err
	}
	count, err := binary.ReadVarint(r.in)
	if err != nil {
		return orTruncated(err)
	}
	size, err := binary.ReadVarint(r.in)
	switch {
	case err != nil:
		return orTruncated(err)
	case count < 0 || size < 0:
		return fmt.Errorf("a block with %d records and %d bytes", count, size)
	case size > blockBytesMax:
		return errTooLarge("a block", size)
	}
	raw, err := r.in.take(size)
	if err != nil {
		return err
	}
	var sync [16]byte
	if _, err := io.ReadFull(r.in, sync[:]); err != nil {
		return orTruncated(err)
	}
	if sync != r.sync {
		return errors.New("the sync marker behind the block is not that of the file: the file is damaged, so copy or export it again")
	}
	if count == 0 {
		return nil
	}
	if r.block.b, err = r.decode(raw); err != nil {
		return err
	}
	if count > int64(len(r.block.b)) { // each record has at least a length
		return fmt.Errorf("a block with %d records in %d bytes", count, len(r.block.b))
	}
	r.left = count
	return nil
}

// hidden implements recordReader.
func (r *avroReader) hidden() bool { return false }

// entry implements recordReader.
func (r *avroReader) entry(e *entry) error {
	err := r.cells.next(&e.cell, &r.names)
	if err != nil && !errors.Is(err, io.EOF) {
		r.left = 0
		return &FileError{Offset: r.at, Record: -1, Err: err}
	}
	return err
}

// avroCells are the cells of a record that have not been read.
type avroCells struct {
	row   *avroRow
	b     avroBuffer // from the array on; nil if there is none
	items int64      // of the part of the array
}

// next reads a cell. Errors: io.EOF behind the last one.
func (c *avroCells) next(cell *table.Cell, names *interner) error {
	if c.items == 0 && c.b.b != nil {
		n, err := c.b.items()
		if err != nil {
			return err
		}
		c.items = n
	}
	if c.items == 0 {
		c.b.b = nil
		return io.EOF
	}
	c.items--
	return c.row.cell(&c.b, cell, names)
}
