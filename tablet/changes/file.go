package changes

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/sstable"
)

const seqLen = 8

// BodyMax is the maximum length of a record's body, in bytes. 100 MiB: a change must fit into one answer, of at most 128 MiB.
const BodyMax = 100 << 20

// ErrBadRecord means that an entry of a change file is not a record. This is corruption, or a bug.
var ErrBadRecord = errors.New("malformed record of a change file")

// Writer writes one change file.
type Writer struct {
	w     *sstable.Writer
	file  File
	key   []byte
	value []byte
}

// NewWriter returns a Writer to w. It calls worked, if not nil, with the bytes of each block.
func NewWriter(w io.Writer, worked func(bytes int)) *Writer {
	return &Writer{w: sstable.NewWriter(w, sstable.Options{Worked: worked})}
}

// Add adds the next record, in order of sequence numbers and, for equal ones, of rows.
func (w *Writer) Add(r *Record) error {
	part, err := logbody.RowPart(r.Body)
	if err != nil {
		return err
	}
	w.key = append(binary.BigEndian.AppendUint64(w.key[:0], r.First), part...)
	w.value = append(binary.AppendUvarint(w.value[:0], uint64(r.Time)), r.Body...)
	f := &w.file
	if f.Records == 0 {
		f.MinSeq, f.MinTime, f.MaxTime = r.First, r.Time, r.Time
	}
	f.MaxSeq, f.MinTime, f.MaxTime = max(f.MaxSeq, r.First), min(f.MinTime, r.Time), max(f.MaxTime, r.Time)
	f.Records++
	return w.w.Add(w.key, w.value)
}

// Records returns the number of records added.
func (w *Writer) Records() int64 { return w.file.Records }

// Finish ends the file. The caller makes it durable and sets its handle.
func (w *Writer) Finish() (File, error) {
	m, err := w.w.Finish(nil)
	if err != nil {
		return File{}, err
	}
	w.file.RawBytes = int64(m.RawBytes)
	return w.file, nil
}

// Source yields records in order of sequence numbers.
type Source interface {
	// Next reports whether there is a next record.
	Next() bool
	// Record returns the record that Next moved to. It is valid until the following call of Next.
	Record() *Record
	// Err returns why Next returned false, or nil after the last record.
	Err() error
}

// memory is a Source of records in memory.
type memory struct {
	start, end []byte
	left       []Record
	at         *Record
}

// InMemory returns a Source of the records of the rows start < row <= end, an empty one meaning no bound.
func InMemory(records []Record, start, end []byte) Source {
	return &memory{start: start, end: end, left: records}
}

func (m *memory) Next() bool {
	for len(m.left) > 0 {
		m.at, m.left = &m.left[0], m.left[1:]
		if holds(m.start, m.end, m.at) {
			return true
		}
	}
	return false
}

func (m *memory) Record() *Record { return m.at }
func (m *memory) Err() error      { return nil }

// LaterInMemory is InMemory for Merge. There is a record.
func LaterInMemory(records []Record, start, end []byte) Later {
	return Later{MinSeq: records[0].First, Open: func() (Source, error) { return InMemory(records, start, end), nil }}
}

// holds reports whether a record's row is within bounds.
func holds(start, end []byte, r *Record) bool {
	if len(start) == 0 && len(end) == 0 {
		return true
	}
	return Holds(start, end, ikey.RowKey(rowPart(r)))
}

// Blob is a change file's blob.
type Blob interface {
	sstable.Source
	io.Closer
}

// Reader is a Source of a change file.
type Reader struct {
	blob       Blob
	it         *sstable.Iter
	start, end []byte
	from       []byte // key to begin at; nil once begun
	at         Record
	err        error
}

// Open returns the records of the part f of a change file with sequence numbers of at least next. It owns the blob. ahead is
// how many bytes it reads at once. It calls gate, if not nil, before it loads a block of a large record.
func Open(ctx context.Context, blob Blob, f *File, next uint64, ahead int, gate func(bytes int) error) (*Reader, error) {
	t, err := sstable.Open(ctx, blob, sstable.OpenOptions{Name: f.Handle.ID.String()})
	if err != nil {
		blob.Close()
		return nil, err
	}
	it := t.NewIter(sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: ahead})
	if gate != nil {
		it.SetGate(enter(gate))
	}
	return &Reader{blob: blob, it: it, start: f.Start, end: f.End, from: binary.BigEndian.AppendUint64(nil, next)}, nil
}

// enter implements sstable.Gate.
type enter func(bytes int) error

func (f enter) Enter(bytes int) error { return f(bytes) }

// Next implements Source.
func (r *Reader) Next() bool {
	for r.step() {
		key, value := r.it.Key(), r.it.Value()
		time, n := binary.Uvarint(value)
		if len(key) <= seqLen || n <= 0 {
			if r.err = r.it.Err(); r.err == nil {
				r.err = fmt.Errorf("%w: key %.64x", ErrBadRecord, key)
			}
			return false
		}
		r.at = Record{First: binary.BigEndian.Uint64(key), Time: int64(time), Body: value[n:]}
		if holds(r.start, r.end, &r.at) {
			return true
		}
	}
	return false
}

func (r *Reader) step() bool {
	if r.err != nil {
		return false
	}
	if r.from != nil {
		from := r.from
		r.from = nil
		return r.it.SeekGE(from)
	}
	return r.it.Next()
}

// Record implements Source.
func (r *Reader) Record() *Record { return &r.at }

// Err implements Source.
func (r *Reader) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.it.Err()
}

// Close closes the file.
func (r *Reader) Close() error {
	err := r.it.Close()
	return errors.Join(err, r.blob.Close())
}

// Younger is a Source of the records of another one that are not older than Before, in µs. Seq and Time are the largest of those that it
// left out.
type Younger struct {
	Source
	Before int64
	Seq    uint64
	Time   int64
}

// Next implements Source.
func (y *Younger) Next() bool {
	for y.Source.Next() {
		r := y.Record()
		if r.Time >= y.Before {
			return true
		}
		y.Seq, y.Time = max(y.Seq, r.First), max(y.Time, r.Time)
	}
	return false
}

// Close closes the source.
func (y *Younger) Close() error { return closeSource(y.Source) }

// Merge is a Source that merges others. Those with later records are opened only when their turn comes.
type Merge struct {
	open  []Source
	later []Later // sorted by MinSeq
	at    int     // index in open of the current record; -1 before the first
	err   error

	// seq and row are those of the current record.
	seq uint64
	row []byte
}

// Later is a Source that Merge opens when it has reached MinSeq.
type Later struct {
	MinSeq uint64
	Open   func() (Source, error)
}

// NewMerge returns the records of the sources, and a record that several have once: a sorted run may repeat records of another one.
func NewMerge(later []Later) *Merge {
	slices.SortStableFunc(later, func(a, b Later) int {
		switch {
		case a.MinSeq < b.MinSeq:
			return -1
		case a.MinSeq > b.MinSeq:
			return 1
		}
		return 0
	})
	return &Merge{later: later, at: -1}
}

// Next implements Source.
func (m *Merge) Next() bool {
	for m.step() {
		r := m.Record()
		row := rowPart(r)
		if r.First != m.seq || !bytes.Equal(row, m.row) {
			m.seq, m.row = r.First, append(m.row[:0], row...)
			return true
		}
	}
	return false
}

func (m *Merge) step() bool {
	if m.err != nil {
		return false
	}
	if m.at >= 0 {
		m.advance(m.at)
	}
	for {
		m.at = m.least()
		if m.err != nil || len(m.later) == 0 || m.at >= 0 && m.open[m.at].Record().First < m.later[0].MinSeq {
			break
		}
		src, err := m.later[0].Open()
		m.later = m.later[1:]
		if err != nil {
			m.err = err
			break
		}
		m.open = append(m.open, src)
		m.advance(len(m.open) - 1)
	}
	return m.err == nil && m.at >= 0
}

// advance moves a source, and removes it after its last record.
func (m *Merge) advance(i int) {
	src := m.open[i]
	if src.Next() {
		return
	}
	m.open = slices.Delete(m.open, i, i+1)
	m.err = errors.Join(m.err, src.Err(), closeSource(src))
}

// least returns the index of the source with the least record, or -1.
func (m *Merge) least() int {
	at := -1
	for i, src := range m.open {
		if at < 0 || less(src.Record(), m.open[at].Record()) {
			at = i
		}
	}
	return at
}

// less orders records by sequence number and row.
func less(a, b *Record) bool {
	if a.First != b.First {
		return a.First < b.First
	}
	return string(rowPart(a)) < string(rowPart(b))
}

// Record implements Source.
func (m *Merge) Record() *Record { return m.open[m.at].Record() }

// Err implements Source.
func (m *Merge) Err() error { return m.err }

// Close closes the sources that are open.
func (m *Merge) Close() error {
	var err error
	for _, src := range m.open {
		err = errors.Join(err, closeSource(src))
	}
	m.open, m.later, m.at = nil, nil, -1
	return err
}

func closeSource(s Source) error {
	if c, ok := s.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
