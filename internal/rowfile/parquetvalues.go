package rowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errParquetShort means that a page has fewer bytes than its values need.
var errParquetShort = errors.New("a page ends within its values: the file is damaged, so copy or export it again")

// parquetValues are the values of a page that have not been read.
type parquetValues interface {
	next() (parquetScalar, error)
}

// plainValues have the encoding PLAIN.
type plainValues struct {
	b    []byte
	node *parquetNode
}

func (p *plainValues) next() (v parquetScalar, err error) {
	n := 8
	switch p.node.kind {
	case parquetFixedBytes:
		n = p.node.size
	case parquetByteArray:
		if len(p.b) < 4 {
			return v, errParquetShort
		}
		if uint64(binary.LittleEndian.Uint32(p.b)) > uint64(len(p.b)-4) {
			return v, errParquetShort
		}
		n = int(binary.LittleEndian.Uint32(p.b))
		p.b = p.b[4:]
	}
	if n > len(p.b) {
		return v, errParquetShort
	}
	v.bytes = p.b[:n:n]
	p.b = p.b[n:]
	if p.node.kind == parquetInt64 {
		v.number, v.bytes = int64(binary.LittleEndian.Uint64(v.bytes)), nil
	}
	return v, nil
}

// dictionaryValues are numbers of values in the dictionary.
type dictionaryValues struct {
	numbers    parquetHybrid
	dictionary []parquetScalar
}

func newDictionaryValues(b []byte, dictionary []parquetScalar) (parquetValues, error) {
	if len(b) == 0 { // all values are null
		return &dictionaryValues{}, nil
	}
	if b[0] > 32 {
		return nil, fmt.Errorf("numbers of %d bits in the dictionary", b[0])
	}
	return &dictionaryValues{parquetHybrid{b: b[1:], width: int(b[0])}, dictionary}, nil
}

func (d *dictionaryValues) next() (v parquetScalar, err error) {
	i, err := d.numbers.next()
	if err == nil && uint(i) >= uint(len(d.dictionary)) {
		err = fmt.Errorf("value %d of a dictionary of %d: the file is damaged, so copy or export it again", i, len(d.dictionary))
	}
	if err != nil {
		return v, err
	}
	return d.dictionary[i], nil
}

// parquetHybrid reads integers in runs of equal ones, or packed with a number of bits each. Those of no bits are 0.
type parquetHybrid struct {
	b     []byte
	width int
	run   int // integers that are left of a run of equal ones
	value int
	packs parquetBits // a packed run
	left  int         // integers of it
}

func (h *parquetHybrid) next() (int, error) {
	if h.width == 0 {
		return 0, nil
	}
	for h.run == 0 && h.left == 0 {
		if err := h.nextRun(); err != nil {
			return 0, err
		}
	}
	if h.run > 0 {
		h.run--
		return h.value, nil
	}
	h.left--
	v, err := h.packs.next(h.width)
	return int(v), err
}

// nextRun reads the head of a run.
func (h *parquetHybrid) nextRun() error {
	head, n := binary.Uvarint(h.b)
	if n <= 0 || head>>1 > 1<<32 {
		return errParquetShort
	}
	h.b = h.b[n:]
	if head&1 == 0 {
		size := (h.width + 7) / 8
		if len(h.b) < size {
			return errParquetShort
		}
		h.run, h.value = int(head>>1), 0
		for i := range size {
			h.value |= int(h.b[i]) << (8 * i)
		}
		h.b = h.b[size:]
		return nil
	}
	size := min(int(head>>1)*h.width, len(h.b)) // the last run may have less than 8 integers
	h.packs, h.left = parquetBits{b: h.b[:size]}, int(head>>1)*8
	h.b = h.b[size:]
	return nil
}

// parquetBits reads integers that are packed, the least significant bits first.
type parquetBits struct {
	b   []byte
	bit uint // of the first byte
}

// next reads an integer of up to 64 bits.
func (p *parquetBits) next(width int) (v uint64, err error) {
	for got := 0; got < width; {
		if len(p.b) == 0 {
			return 0, errParquetShort
		}
		n := min(8-int(p.bit), width-got)
		v |= uint64(p.b[0]>>p.bit&(1<<n-1)) << got
		got += n
		if p.bit += uint(n); p.bit == 8 {
			p.b, p.bit = p.b[1:], 0
		}
	}
	return v, nil
}

// deltaInts have the encoding DELTA_BINARY_PACKED: blocks of miniblocks, each of which has differences of as many bits.
type deltaInts struct {
	b       []byte
	last    int64
	first   bool
	total   int // integers that are left
	perMini int
	minis   int
	least   int64  // difference of the block
	widths  []byte // of the miniblocks that are left of the block
	packs   parquetBits
	width   int
	left    int // integers that are left of the miniblock
}

// newDeltaInts returns the integers, and how many they are.
func newDeltaInts(b []byte) (*deltaInts, int, error) {
	d := &deltaInts{b: b, first: true}
	block, err := d.uvarint()
	if err == nil {
		d.minis, err = d.uvarint()
	}
	if err == nil {
		d.total, err = d.uvarint()
	}
	if err == nil {
		d.last, err = d.varint()
	}
	if err == nil && (block == 0 || block > 1<<20 || d.minis == 0 || d.minis > block || block%d.minis != 0) {
		err = fmt.Errorf("blocks of %d integers in %d parts", block, d.minis)
	}
	if err != nil {
		return nil, 0, err
	}
	d.perMini = block / d.minis
	return d, d.total, nil
}

func (d *deltaInts) uvarint() (int, error) {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > 1<<40 {
		return 0, errParquetShort
	}
	d.b = d.b[n:]
	return int(v), nil
}

func (d *deltaInts) varint() (int64, error) {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		return 0, errParquetShort
	}
	d.b = d.b[n:]
	return v, nil
}

func (d *deltaInts) next() (int64, error) {
	if d.total == 0 {
		return 0, errParquetShort
	}
	d.total--
	if d.first {
		d.first = false
		return d.last, nil
	}
	if d.left == 0 {
		if err := d.nextMini(); err != nil {
			return 0, err
		}
	}
	d.left--
	delta, err := d.packs.next(d.width)
	d.last += int64(delta) + d.least
	return d.last, err
}

// nextMini begins a miniblock.
func (d *deltaInts) nextMini() (err error) {
	if len(d.widths) == 0 {
		if d.least, err = d.varint(); err != nil {
			return err
		}
		if len(d.b) < d.minis {
			return errParquetShort
		}
		d.widths, d.b = d.b[:d.minis], d.b[d.minis:]
	}
	d.width, d.widths = int(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return fmt.Errorf("integers of %d bits", d.width)
	}
	d.left = d.perMini
	size := min((d.perMini*d.width+7)/8, len(d.b))
	d.packs = parquetBits{b: d.b[:size]}
	d.b = d.b[size:]
	return nil
}

// rest reads on to the end of the integers, and returns what is behind them.
func (d *deltaInts) rest() ([]byte, error) {
	for d.total > 0 {
		if _, err := d.next(); err != nil {
			return nil, err
		}
	}
	return d.b, nil
}

// deltaValues are integers.
type deltaValues struct{ *deltaInts }

func (d deltaValues) next() (v parquetScalar, err error) {
	v.number, err = d.deltaInts.next()
	return v, err
}

// deltaBytes have the encoding DELTA_LENGTH_BYTE_ARRAY, or DELTA_BYTE_ARRAY if they have prefixes: as many bytes of the value before are those of the next.
type deltaBytes struct {
	prefixes *deltaInts // or nil
	lengths  *deltaInts
	b        []byte
	last     []byte
}

func newDeltaBytes(b []byte, prefixes bool) (parquetValues, error) {
	d := &deltaBytes{}
	var err error
	if prefixes {
		if d.prefixes, b, err = deltaIntsBefore(b); err != nil {
			return nil, err
		}
	}
	d.lengths, d.b, err = deltaIntsBefore(b)
	return d, err
}

// deltaIntsBefore returns integers, and what is behind them.
func deltaIntsBefore(b []byte) (ints *deltaInts, rest []byte, err error) {
	ints, n, err := newDeltaInts(b)
	if err != nil {
		return nil, nil, err
	}
	if n > 8*len(b)+1<<20 { // those of no bits take memory nowhere, but time
		return nil, nil, fmt.Errorf("%d integers in %d bytes", n, len(b))
	}
	end, _, err := newDeltaInts(b)
	if err == nil {
		rest, err = end.rest()
	}
	return ints, rest, err
}

func (d *deltaBytes) next() (v parquetScalar, err error) {
	n, err := d.lengths.next()
	if err != nil {
		return v, err
	}
	if n < 0 || n > int64(len(d.b)) {
		return v, errParquetShort
	}
	v.bytes = d.b[:n:n]
	d.b = d.b[n:]
	if d.prefixes == nil {
		return v, nil
	}
	if n, err = d.prefixes.next(); err != nil {
		return v, err
	}
	if n < 0 || n > int64(len(d.last)) {
		return v, errParquetShort
	}
	v.bytes = append(d.last[:n:n], v.bytes...) // in memory of its own, since last is full
	d.last = v.bytes[:len(v.bytes):len(v.bytes)]
	return v, nil
}
