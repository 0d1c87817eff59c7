package bigtable

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steledb/stele/table"
)

// Sizes of ReadRowsResponse messages, in bytes.
const (
	// messageBytes ends a message behind a row: larger ones gained nothing in scans of rows of 1 KB.
	messageBytes = 256 << 10
	// messageRowBytes is the space that the buffer of a message has for the row that exceeds messageBytes.
	messageRowBytes = 32 << 10
	// splitBytes ends a message within a row, for clients that accept this. Clients receive 4 MiB by
	// default: a message has at most this much and a chunk.
	splitBytes = 1 << 20
	// chunkBytes is the size of the pieces of a large value.
	chunkBytes = 1 << 20
	// firstBytes is the capacity of the first buffer: a point read fits into it. Package mem pools no
	// buffer of 1 KiB or less.
	firstBytes = 4 << 10
)

// Fields of google.bigtable.v2.ReadRowsResponse and of its CellChunk.
const (
	fieldChunks = 1

	chunkRowKey    = 1
	chunkFamily    = 2 // a StringValue
	chunkQualifier = 3 // a BytesValue
	chunkTimestamp = 4
	chunkLabels    = 5
	chunkValue     = 6
	chunkValueSize = 7
	chunkCommitRow = 9

	fieldWrapped = 1 // of StringValue and BytesValue
)

// tagBytes is the size of the tag of each of these fields.
const tagBytes = 1

// chunk is one CellChunk. Its slices belong to the row.
type chunk struct {
	rowKey       []byte // of the first chunk of a row
	family       string
	qualifier    []byte
	hasFamily    bool
	hasQualifier bool
	timestamp    int64
	labels       []string
	value        []byte
	valueSize    int // of all but the last chunk of a value
	commit       bool
}

// size returns the size of the encoded chunk, without the tag and length that precede it.
func (c *chunk) size() int {
	n := bytesSize(len(c.rowKey)) + bytesSize(len(c.value))
	if c.hasFamily {
		n += tagBytes + protowire.SizeBytes(bytesSize(len(c.family)))
	}
	if c.hasQualifier {
		n += tagBytes + protowire.SizeBytes(bytesSize(len(c.qualifier)))
	}
	if c.timestamp != 0 {
		n += tagBytes + protowire.SizeVarint(uint64(c.timestamp))
	}
	for _, l := range c.labels {
		n += tagBytes + protowire.SizeBytes(len(l))
	}
	if c.valueSize != 0 {
		n += tagBytes + protowire.SizeVarint(uint64(c.valueSize))
	}
	if c.commit {
		n += tagBytes + 1
	}
	return n
}

// bytesSize returns the size of a field of n bytes, which is absent if it is empty.
func bytesSize(n int) int {
	if n == 0 {
		return 0
	}
	return tagBytes + protowire.SizeBytes(n)
}

// append appends the encoded chunk, without the tag and length that precede it.
func (c *chunk) append(b []byte) []byte {
	b = appendBytes(b, chunkRowKey, c.rowKey)
	if c.hasFamily {
		b = appendLength(b, chunkFamily, bytesSize(len(c.family)))
		b = appendBytes(b, fieldWrapped, c.family)
	}
	if c.hasQualifier {
		b = appendLength(b, chunkQualifier, bytesSize(len(c.qualifier)))
		b = appendBytes(b, fieldWrapped, c.qualifier)
	}
	b = appendVarint(b, chunkTimestamp, uint64(c.timestamp))
	for _, l := range c.labels {
		b = append(appendLength(b, chunkLabels, len(l)), l...)
	}
	b = appendBytes(b, chunkValue, c.value)
	b = appendVarint(b, chunkValueSize, uint64(c.valueSize))
	if c.commit {
		b = appendVarint(b, chunkCommitRow, 1)
	}
	return b
}

// appendLength appends the tag and the length of a field of bytes.
func appendLength(b []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// appendBytes appends a field of bytes unless it is empty.
func appendBytes[T string | []byte](b []byte, field protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return append(appendLength(b, field, len(v)), v...)
}

// appendVarint appends an integer unless it is 0.
func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// sender sends rows as ReadRowsResponse messages. It encodes them into buffers of a pool, and
// allocates nothing for a cell.
type sender struct {
	stream grpc.ServerStream
	pool   mem.BufferPool
	// whole means that no row is divided among messages.
	whole bool
	// memory is what messages use until they are written; nil: nothing.
	memory *rowMemory

	buffer *[]byte // nil, or that of the next message; its length is that of the message
	chunk  chunk   // memory for one
	last   []byte  // the key of the last row, or one behind it that was sent; nil: none
	// rows and cells count what was added.
	rows, cells int64
}

// add adds a row, and sends full messages. Errors: those of the stream.
func (s *sender) add(row *table.Row) error {
	last := len(row.Cells) - 1
	if last < 0 {
		return nil
	}
	s.chunk.rowKey = row.Key
	if s.whole { // a buffer that grows takes three times the memory
		s.grow(encodedBytes(row))
	}
	var before *table.Cell
	for i := range row.Cells {
		cell := &row.Cells[i]
		if err := s.addCell(cell, before, i == last); err != nil {
			return err
		}
		before = cell
	}
	s.last = row.Key
	s.rows++
	s.cells += int64(len(row.Cells))
	if s.length() >= messageBytes {
		return s.flush()
	}
	return nil
}

// cellHeadBytes bounds the bytes of a cell in a message without its names, labels and value.
const cellHeadBytes = 48

// encodedBytes bounds the bytes of a row in a message, approximately.
func encodedBytes(row *table.Row) int {
	n := len(row.Key)
	for i := range row.Cells {
		c := &row.Cells[i]
		n += cellHeadBytes + len(c.Value)
		if i == 0 || c.Family != row.Cells[i-1].Family {
			n += len(c.Family)
		}
		if i == 0 || string(c.Qualifier) != string(row.Cells[i-1].Qualifier) {
			n += len(c.Qualifier)
		}
	}
	return n
}

// addCell adds a cell that follows another one of its row, or nil. A chunk names the family and the
// qualifier only if they differ from those of the chunk before it.
func (s *sender) addCell(cell, before *table.Cell, last bool) error {
	c := &s.chunk
	c.hasFamily = before == nil || before.Family != cell.Family
	c.hasQualifier = c.hasFamily || string(before.Qualifier) != string(cell.Qualifier)
	c.family, c.qualifier, c.timestamp, c.labels = cell.Family, cell.Qualifier, cell.Timestamp, cell.Labels
	value := cell.Value
	for len(value) > chunkBytes {
		c.value, c.valueSize, c.commit = value[:chunkBytes], len(cell.Value), false
		if err := s.addChunk(); err != nil {
			return err
		}
		value = value[chunkBytes:]
		c.hasFamily, c.hasQualifier, c.timestamp, c.labels = false, false, 0, nil
	}
	c.value, c.valueSize, c.commit = value, 0, last
	return s.addChunk()
}

// addChunk appends s.chunk to the message.
func (s *sender) addChunk() error {
	if !s.whole && s.length() >= splitBytes {
		if err := s.flush(); err != nil {
			return err
		}
	}
	n := s.chunk.size()
	s.grow(tagBytes + protowire.SizeBytes(n))
	*s.buffer = s.chunk.append(appendLength(*s.buffer, fieldChunks, n))
	s.chunk.rowKey = nil
	return nil
}

func (s *sender) length() int {
	if s.buffer == nil {
		return 0
	}
	return len(*s.buffer)
}

// grow makes capacity for n further bytes.
func (s *sender) grow(n int) {
	switch {
	case s.buffer == nil && s.rows == 0:
		s.buffer = s.empty(max(n, firstBytes))
	case s.buffer == nil:
		s.buffer = s.empty(max(n, messageBytes+messageRowBytes))
	case cap(*s.buffer)-len(*s.buffer) < n:
		old := s.buffer
		s.buffer = s.empty(max(len(*old)+n, 2*cap(*old)))
		*s.buffer = append(*s.buffer, *old...)
		s.pool.Put(old)
	}
}

// empty returns an empty buffer of the pool with a capacity.
func (s *sender) empty(capacity int) *[]byte {
	b := s.pool.Get(capacity)
	*b = (*b)[:0]
	return b
}

// flush sends the message if there is one.
func (s *sender) flush() error {
	if s.length() == 0 {
		return nil
	}
	e := s.memory.current().message(s.buffer, s.pool)
	s.buffer = nil
	return s.stream.SendMsg(e)
}

// release returns an unsent message to the pool.
func (s *sender) release() {
	if s.buffer != nil {
		s.pool.Put(s.buffer)
		s.buffer = nil
	}
}
