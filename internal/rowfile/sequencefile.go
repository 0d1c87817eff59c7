package rowfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const sequenceMagic = "SEQ"

// sequenceVersion is the only version of sequence files that is read: that of Hadoop since 0.9.
const sequenceVersion = 6

// Bounds of the header of a sequence file.
const (
	sequenceTextMax     = 64 << 10 // of a name, or an entry of the metadata
	sequenceMetadataMax = 1000
)

// sequenceFile reads the pairs of a Hadoop sequence file: not compressed, or by records or blocks.
//
//	+-----+---------+-----------+-------------+------------+--------+-------+----------+------+
//	| SEQ | version | key class | value class | compressed | blocks | codec | metadata | sync |
//	+-----+---------+-----------+-------------+------------+--------+-------+----------+------+
//	   3       1        text         text           1          1     text, if             16
//	                                                                compressed
//
// A text is a variable-length integer and as many bytes. The metadata are the number of pairs of texts, in 4 bytes, and these. Then follow records,
//
//	+--------+------------+-----+-------+
//	| length | key length | key | value |
//	+--------+------------+-----+-------+
//	    4          4
//
// with a sync marker before some of them: -1 as the length, and the 16 bytes. In a file that is compressed by blocks, a sync marker is before each block: the
// number of its records, and their key lengths, keys, value lengths and values, each as the length of the compressed bytes, and these. All integers are
// big-endian; those within blocks have a variable length.
type sequenceFile struct {
	in         *offsetReader
	keyClass   string
	valueClass string
	blocks     bool
	decode     func([]byte) ([]byte, error) // nil if the file is not compressed
	sync       [16]byte
	at         int64 // where the record or block begins
	block      sequenceBlock
}

// sequenceBlock is what is left of a block.
type sequenceBlock struct {
	left                              int64
	keyLengths, keys, lengths, values []byte
}

// newSequenceFile reads the header. Errors: *FileError.
func newSequenceFile(in *bufio.Reader) (*sequenceFile, error) {
	f := &sequenceFile{in: &offsetReader{Reader: in}}
	if err := f.header(); err != nil {
		return nil, &FileError{Offset: f.in.n, Err: err}
	}
	return f, nil
}

func (f *sequenceFile) header() error {
	first, err := f.in.take(4)
	if err != nil {
		return err
	}
	if string(first[:3]) != sequenceMagic {
		return fmt.Errorf("the file begins with %q, not with %q: it is not a Hadoop sequence file", first[:3], sequenceMagic)
	}
	if first[3] != sequenceVersion {
		return fmt.Errorf("version %d of sequence files, want %d: write it with Hadoop 1 or later", first[3], sequenceVersion)
	}
	var flags []byte
	if f.keyClass, err = f.text(); err == nil {
		if f.valueClass, err = f.text(); err == nil {
			flags, err = f.in.take(2)
		}
	}
	if err != nil {
		return err
	}
	f.blocks = flags[1] != 0
	if flags[0] != 0 {
		codec, err := f.text()
		if err == nil {
			f.decode, err = hadoopDecoder(codec)
		}
		if err != nil {
			return err
		}
	} else if f.blocks {
		return errors.New("blocks that are not compressed")
	}
	if err := f.metadata(); err != nil {
		return err
	}
	_, err = io.ReadFull(f.in, f.sync[:])
	return orTruncated(err)
}

// metadata skips the metadata, which is the user's.
func (f *sequenceFile) metadata() error {
	b, err := f.in.take(4)
	if err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(b)
	if n > sequenceMetadataMax {
		return fmt.Errorf("the header has %d entries of metadata, more than %d", n, sequenceMetadataMax)
	}
	for range 2 * n {
		if _, err := f.text(); err != nil {
			return err
		}
	}
	return nil
}

// text reads a text of the header.
func (f *sequenceFile) text() (string, error) {
	n, err := hadoopVarint(f.in)
	if err != nil {
		return "", err
	}
	if n < 0 || n > sequenceTextMax {
		return "", fmt.Errorf("a text of %d bytes in the header, more than %d KiB", n, sequenceTextMax>>10)
	}
	b, err := f.in.take(n)
	return string(b), err
}

// hadoopVarint reads an integer of variable length as org.apache.hadoop.io.WritableUtils writes it. The first byte is the integer, from -112 to 127, or else
// the number of bytes that follow.
func hadoopVarint(in io.ByteReader) (int64, error) {
	b, err := in.ReadByte()
	first := int8(b)
	if err != nil || first >= -112 {
		return int64(first), orTruncated(err)
	}
	n, negative := -112-int(first), first < -120
	if negative {
		n = -120 - int(first)
	}
	v := uint64(0)
	for range n {
		if b, err = in.ReadByte(); err != nil {
			return 0, orTruncated(err)
		}
		v = v<<8 | uint64(b)
	}
	if negative {
		v = ^v
	}
	return int64(v), nil
}

// next returns the next pair, whose memory is not reused. Errors: io.EOF, *FileError.
func (f *sequenceFile) next() (key, value []byte, err error) {
	if f.blocks {
		key, value, err = f.nextOfBlock()
	} else {
		key, value, err = f.nextRecord()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &FileError{Offset: f.at, Err: err}
	}
	return key, value, err
}

// mark reads what is before a record or block: a sync marker, or the length of a record.
func (f *sequenceFile) mark() (length int64, sync bool, err error) {
	f.at = f.in.n
	if _, err := f.in.Peek(1); err != nil {
		return 0, false, err
	}
	b, err := f.in.take(4)
	if err != nil {
		return 0, false, err
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n != -1 {
		return int64(n), false, nil
	}
	marker, err := f.in.take(16)
	if err == nil && [16]byte(marker) != f.sync {
		err = errors.New("a sync marker is not that of the file: the file is damaged, so copy or export it again")
	}
	return 0, true, err
}

func (f *sequenceFile) nextRecord() (key, value []byte, err error) {
	length, sync, err := f.mark()
	for sync && err == nil {
		length, sync, err = f.mark()
	}
	if err != nil {
		return nil, nil, err
	}
	b, err := f.in.take(4)
	if err != nil {
		return nil, nil, err
	}
	keyLength := int64(int32(binary.BigEndian.Uint32(b)))
	switch {
	case length < 0 || keyLength < 0 || keyLength > length:
		return nil, nil, fmt.Errorf("a record of %d bytes with a key of %d: the file is damaged, so copy or export it again", length, keyLength)
	case length > blockBytesMax:
		return nil, nil, errTooLarge("a record", length)
	}
	if key, err = f.in.take(keyLength); err == nil {
		value, err = f.in.take(length - keyLength)
	}
	if err == nil && f.decode != nil {
		value, err = f.decode(value)
	}
	return key, value, err
}

func (f *sequenceFile) nextOfBlock() (key, value []byte, err error) {
	b := &f.block
	for b.left == 0 {
		if err := f.nextBlock(); err != nil {
			b.left = 0
			return nil, nil, err
		}
	}
	b.left--
	if key, err = cutPart(&b.keyLengths, &b.keys); err == nil {
		value, err = cutPart(&b.lengths, &b.values)
	}
	if err == nil && b.left == 0 && len(b.keys)+len(b.values) > 0 {
		err = fmt.Errorf("its block has %d bytes behind its last record", len(b.keys)+len(b.values))
	}
	return key, value, err
}

// cutPart cuts the next part off data.
func cutPart(lengths, data *[]byte) ([]byte, error) {
	in := sliceReader{*lengths}
	n, err := hadoopVarint(&in)
	if err != nil || n < 0 || n > int64(len(*data)) {
		return nil, errors.New("the block ends within the record: the file is damaged, so copy or export it again")
	}
	part := (*data)[:n:n]
	*lengths, *data = in.b, (*data)[n:]
	return part, nil
}

// sliceReader reads the bytes of a slice.
type sliceReader struct{ b []byte }

func (r *sliceReader) ReadByte() (byte, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	b := r.b[0]
	r.b = r.b[1:]
	return b, nil
}

// nextBlock reads a block.
func (f *sequenceFile) nextBlock() error {
	_, sync, err := f.mark()
	if err == nil && !sync {
		err = errors.New("no sync marker before a block: the file is damaged, so copy or export it again")
	}
	if err != nil {
		return err
	}
	b := &f.block
	if b.left, err = hadoopVarint(f.in); err != nil {
		return err
	}
	for _, part := range []*[]byte{&b.keyLengths, &b.keys, &b.lengths, &b.values} {
		if *part, err = f.part(); err != nil {
			return err
		}
	}
	if b.left < 0 || b.left > int64(len(b.keyLengths)) { // each length has at least a byte
		return fmt.Errorf("a block with %d records and %d bytes of their lengths", b.left, len(b.keyLengths))
	}
	return nil
}

// part reads a compressed part of a block.
func (f *sequenceFile) part() ([]byte, error) {
	n, err := hadoopVarint(f.in)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return nil, fmt.Errorf("a part of a block with %d bytes", n)
	case n > blockBytesMax:
		return nil, errTooLarge("a block", n)
	}
	b, err := f.in.take(n)
	if err != nil {
		return nil, err
	}
	return f.decode(b)
}
