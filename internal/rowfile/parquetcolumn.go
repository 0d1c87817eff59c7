package rowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Bounds of the pages of a column. Only values of cells are large: pages of the column with these have blockBytesMax.
const (
	parquetPageMax       = 64 << 20
	parquetHeaderMax     = 16 << 20 // of a page, with statistics
	parquetDictionaryMax = 4 << 20  // values
)

// Encodings of values.
const (
	parquetPlain           = 0
	parquetPlainDictionary = 2
	parquetRLE             = 3
	parquetDeltaInt        = 5
	parquetDeltaLength     = 6
	parquetDeltaBytes      = 7
	parquetRLEDictionary   = 8
)

// parquetColumn reads the values of a column in a row group.
type parquetColumn struct {
	in         io.ReaderAt
	node       *parquetNode
	codec      int
	at, end    int64 // where the next page is, and the end of the column
	left       int   // values that are left, of all pages
	pageMax    int64
	dictionary []parquetScalar

	page struct {
		left     int // values
		rep, def parquetHybrid
		values   parquetValues
	}
	peeked bool
	zstd   *zstd.Decoder // nil before the first page that needs it

	// the value, since next
	rep, def int
	parquetScalar
}

// parquetScalar is a value of one of the types.
type parquetScalar struct {
	bytes  []byte
	number int64
}

func newParquetColumn(in io.ReaderAt, size int64, node *parquetNode, chunk *parquetChunk) (*parquetColumn, error) {
	c := &parquetColumn{in: in, node: node, codec: chunk.codec, at: int64(chunk.offset), left: chunk.values, pageMax: min(parquetPageMax, blockBytesMax)}
	if d := int64(chunk.dictionary); d > 0 && d < c.at {
		c.at = d
	}
	c.end = c.at + int64(chunk.bytes)
	switch {
	case chunk.external:
		return nil, errors.New("its values are in another file")
	case c.at < 4 || chunk.bytes < 0 || c.end > size || c.end < c.at || c.left < 0:
		return nil, errors.New("its values are not in the file: the file is damaged, so copy or export it again")
	}
	return c, nil
}

// ended reports whether all values have been read.
func (c *parquetColumn) ended() bool { return c.left == 0 && !c.peeked }

// peek returns the repetition level of the next value. Errors: io.EOF behind the last one.
func (c *parquetColumn) peek() (rep int, err error) {
	if !c.peeked {
		if c.left == 0 {
			return 0, io.EOF
		}
		if err := c.levels(); err != nil {
			return 0, err
		}
		c.peeked = true
	}
	return c.rep, nil
}

// next reads the next value. It is empty if it is null.
func (c *parquetColumn) next() (err error) {
	if _, err := c.peek(); errors.Is(err, io.EOF) {
		return errors.New("the row group has more rows than values")
	} else if err != nil {
		return err
	}
	c.peeked = false
	c.parquetScalar = parquetScalar{}
	if c.def == c.node.def {
		c.parquetScalar, err = c.page.values.next()
	}
	return err
}

// levels reads the levels of the next value.
func (c *parquetColumn) levels() (err error) {
	for c.page.left == 0 {
		if err := c.nextPage(); err != nil {
			return err
		}
	}
	c.left--
	c.page.left--
	if c.rep, err = c.page.rep.next(); err == nil {
		c.def, err = c.page.def.next()
	}
	if err == nil && (c.rep > c.node.rep || c.def > c.node.def) {
		err = fmt.Errorf("levels %d and %d, want up to %d and %d", c.rep, c.def, c.node.rep, c.node.def)
	}
	return err
}

// parquetPage is the header of a page.
type parquetPage struct {
	kind               int // 0 data, 2 dictionary, 3 data of version 2
	uncompressed, size int
	crc                uint32
	hasCRC             bool
	values, encoding   int
	levels             int // the encoding of definition levels
	repBytes, defBytes int
	plain              bool // not compressed, though the column is
}

// nextPage reads pages up to one with values.
func (c *parquetColumn) nextPage() error {
	p, err := c.header()
	if err != nil {
		return err
	}
	switch {
	case p.size < 0 || p.uncompressed < 0 || p.values < 0 || int64(p.size) > c.end-c.at:
		return errors.New("a page that is not in the column: the file is damaged, so copy or export it again")
	case int64(max(p.size, p.uncompressed)) > c.pageMax:
		return fmt.Errorf("a page has %d bytes, more than %d MiB: export with smaller pages, in Dataflow's template by the parameter minRowCountForPageSizeCheck", max(p.size, p.uncompressed), c.pageMax>>20)
	}
	raw := make([]byte, p.size)
	if _, err := c.in.ReadAt(raw, c.at); err != nil {
		return orTruncated(err)
	}
	c.at += int64(p.size)
	if p.hasCRC && crc32.ChecksumIEEE(raw) != p.crc {
		return errors.New("the checksum of a page is wrong: the file is damaged, so copy or export it again")
	}
	switch p.kind {
	case 0:
		return c.dataPage(p, raw)
	case 2:
		return c.dictionaryPage(p, raw)
	case 3:
		return c.dataPage2(p, raw)
	}
	return nil // an index, which no values need
}

// header reads the header of the next page. Its length is not known before it is read.
func (c *parquetColumn) header() (*parquetPage, error) {
	for n := int64(1 << 10); ; n *= 16 {
		if n = min(n, c.end-c.at, parquetHeaderMax); n <= 0 {
			return nil, errors.New("pages are missing: the file is damaged, so copy or export it again")
		}
		b := make([]byte, n)
		if _, err := c.in.ReadAt(b, c.at); err != nil {
			return nil, orTruncated(err)
		}
		t := thrift{b: b}
		p, err := parseParquetPage(&t)
		switch {
		case err == nil:
			c.at += n - int64(len(t.b))
			return p, nil
		case !errors.Is(err, errThriftShort) || n == c.end-c.at || n == parquetHeaderMax:
			return nil, fmt.Errorf("the header of a page: %w", err)
		}
	}
}

func parseParquetPage(t *thrift) (*parquetPage, error) {
	p := &parquetPage{}
	err := t.structure(func(id int, kind byte) (known bool, err error) {
		switch {
		case kind == thriftStruct && (id == 5 || id == 7 || id == 8):
			return true, t.structure(func(field int, kind byte) (bool, error) { return p.field(t, id, field, kind) })
		case kind != thriftI32:
			return false, nil
		case id == 1:
			p.kind, err = t.int()
		case id == 2:
			p.uncompressed, err = t.int()
		case id == 3:
			p.size, err = t.int()
		case id == 4:
			var crc int
			crc, err = t.int()
			p.crc, p.hasCRC = uint32(crc), true
		default:
			return false, nil
		}
		return true, err
	})
	return p, err
}

// field reads a field of the header of a data page (5), a dictionary page (7), or a data page of version 2 (8).
func (p *parquetPage) field(t *thrift, of, id int, kind byte) (known bool, err error) {
	if of == 8 && id == 7 {
		p.plain = kind == thriftFalse
		return false, nil
	}
	if kind != thriftI32 {
		return false, nil
	}
	var skipped int
	to := &skipped
	switch {
	case id == 1:
		to = &p.values
	case id == 2 && of != 8 || id == 4 && of == 8:
		to = &p.encoding
	case id == 3 && of == 5:
		to = &p.levels
	case id == 5 && of == 8:
		to = &p.defBytes
	case id == 6 && of == 8:
		to = &p.repBytes
	}
	*to, err = t.int()
	return true, err
}

// dictionaryPage reads the values of the dictionary.
func (c *parquetColumn) dictionaryPage(p *parquetPage, raw []byte) error {
	if c.dictionary != nil || p.values > parquetDictionaryMax || p.uncompressed > parquetPageMax {
		return fmt.Errorf("a second dictionary, or one of more than %d values or %d MiB", parquetDictionaryMax, parquetPageMax>>20)
	}
	b, err := c.decompress(raw, p.uncompressed)
	if err != nil {
		return err
	}
	values := &plainValues{b, c.node}
	c.dictionary = []parquetScalar{}
	for range p.values {
		v, err := values.next()
		if err != nil {
			return err
		}
		c.dictionary = append(c.dictionary, v)
	}
	return nil
}

// dataPage reads a data page of version 1: repetition levels, definition levels and values, compressed together.
func (c *parquetColumn) dataPage(p *parquetPage, raw []byte) error {
	b, err := c.decompress(raw, p.uncompressed)
	if err != nil {
		return err
	}
	if p.levels != parquetRLE && c.node.def > 0 {
		return fmt.Errorf("levels with encoding %d, want RLE", p.levels)
	}
	c.page.rep, c.page.def = parquetHybrid{}, parquetHybrid{}
	for _, l := range []struct {
		to  *parquetHybrid
		max int
	}{{&c.page.rep, c.node.rep}, {&c.page.def, c.node.def}} {
		if l.max == 0 {
			continue
		}
		if len(b) < 4 || int64(binary.LittleEndian.Uint32(b)) > int64(len(b)-4) {
			return errParquetShort
		}
		n := 4 + int(binary.LittleEndian.Uint32(b))
		*l.to = parquetHybrid{b: b[4:n], width: bits.Len(uint(l.max))}
		b = b[n:]
	}
	return c.begin(p, b)
}

// dataPage2 reads a data page of version 2, whose levels are not compressed.
func (c *parquetColumn) dataPage2(p *parquetPage, raw []byte) error {
	if p.repBytes < 0 || p.defBytes < 0 || p.repBytes > len(raw) || p.defBytes > len(raw)-p.repBytes || p.uncompressed < p.repBytes+p.defBytes {
		return errParquetShort
	}
	c.page.rep = parquetHybrid{b: raw[:p.repBytes], width: bits.Len(uint(c.node.rep))}
	c.page.def = parquetHybrid{b: raw[p.repBytes : p.repBytes+p.defBytes], width: bits.Len(uint(c.node.def))}
	b := raw[p.repBytes+p.defBytes:]
	if !p.plain {
		var err error
		if b, err = c.decompress(b, p.uncompressed-p.repBytes-p.defBytes); err != nil {
			return err
		}
	}
	return c.begin(p, b)
}

// begin begins a page, given its values.
func (c *parquetColumn) begin(p *parquetPage, b []byte) (err error) {
	if p.values > c.left {
		return fmt.Errorf("a page with %d values, where the column has %d more", p.values, c.left)
	}
	c.page.left = p.values
	c.page.values, err = c.values(p.encoding, b)
	return err
}

// values returns the values of a page.
func (c *parquetColumn) values(encoding int, b []byte) (parquetValues, error) {
	number := c.node.kind == parquetInt64
	switch {
	case encoding == parquetPlain:
		return &plainValues{b, c.node}, nil
	case encoding == parquetPlainDictionary || encoding == parquetRLEDictionary:
		return newDictionaryValues(b, c.dictionary)
	case encoding == parquetDeltaInt && number:
		d, _, err := newDeltaInts(b)
		return deltaValues{d}, err
	case encoding == parquetDeltaLength && !number:
		return newDeltaBytes(b, false)
	case encoding == parquetDeltaBytes && !number:
		return newDeltaBytes(b, true)
	}
	return nil, fmt.Errorf("encoding %d of its values is not read: write the file with PLAIN or RLE_DICTIONARY", encoding)
}

// decompress decompresses data to as many bytes as the header of a page has, which is bounded.
func (c *parquetColumn) decompress(b []byte, size int) (out []byte, err error) {
	switch c.codec {
	case 0:
		out = b
	case 1:
		out, err = unsnappy(b, int64(size))
	case 2:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			out, err = io.ReadAll(io.LimitReader(z, int64(size)+1))
		}
	case 6:
		out, err = c.unzstd(b, size)
	default:
		return nil, fmt.Errorf("compression codec %d is not read: write the file with SNAPPY, GZIP, ZSTD or without compression", c.codec)
	}
	if err == nil && len(out) != size {
		err = fmt.Errorf("a page that does not have %d bytes: the file is damaged, so copy or export it again", size)
	}
	return out, decodeError(err)
}

// unzstd decompresses data, up to a byte more than size.
func (c *parquetColumn) unzstd(b []byte, size int) (out []byte, err error) {
	if c.zstd == nil {
		c.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(zstdMemoryMax)) // without goroutines, so that it need not be closed
		if err != nil {
			return nil, err
		}
	}
	if err := c.zstd.Reset(bytes.NewReader(b)); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(c.zstd, int64(size)+1))
}
