package backup

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Table is a table of a manifest.
type Table struct {
	Schema  *table.Schema
	Tablets int64
	Bytes   int64 // of the tablets' files
	offset  int64 // of the first tablet's frame
}

const (
	manifestVersion = 1
	// frameMax bounds a frame and the footer, in bytes. A row of METADATA has at most a few MiB.
	frameMax = 64 << 20
	// readBytes is the size of a read of the manifest.
	readBytes   = 64 << 10
	lengthBytes = 4
)

// errBadManifest means that a manifest is damaged, or of a later format.
var errBadManifest = errors.New("manifest of a backup is damaged")

// Writer writes a manifest: for each table its tablets and then EndTable, and Finish at the end.
type Writer struct {
	w      io.Writer
	at     int64
	tables []Table
	open   Table
	// next is where the next tablet of the table must start. ended is set after its last tablet.
	next  []byte
	ended bool
	files map[blobfs.ID]bool // of the table
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, files: map[blobfs.ID]bool{}} }

// Add adds the next tablet of a table. The error is that of the writer, or that the tablets have a gap or overlap (BF1).
func (w *Writer) Add(m *tablet.Meta) error {
	if w.ended || string(m.Start) != string(w.next) || len(m.End) > 0 && string(m.End) <= string(m.Start) {
		return fmt.Errorf("tablet %d does not continue the tablet before it in a backup", m.ID)
	}
	w.next, w.ended = m.End, len(m.End) == 0
	if w.open.Tablets == 0 {
		w.open.offset = w.at
	}
	w.open.Tablets++
	for _, g := range m.Groups {
		for i := range g.Files {
			h := &g.Files[i].Handle
			if !w.files[h.ID] { // tablets share files after a split
				w.files[h.ID] = true
				w.open.Bytes += h.Length
			}
		}
	}
	b := tablet.EncodeMeta(m)
	if err := w.write(binary.BigEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
		return err
	}
	return w.write(b)
}

// EndTable ends a table, whose tablets were added. The error is that rows are missing.
func (w *Writer) EndTable(s *table.Schema) error {
	if !w.ended {
		return fmt.Errorf("table %q of a backup lacks its last rows", s.Name)
	}
	w.open.Schema = s
	w.tables = append(w.tables, w.open)
	w.open, w.next, w.ended = Table{}, nil, false
	clear(w.files)
	return nil
}

// Finish writes the footer, and returns the tables.
func (w *Writer) Finish() ([]Table, error) {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(2)
	e.Uint(manifestVersion)
	e.Array(len(w.tables))
	for i := range w.tables {
		t := &w.tables[i]
		s := wire.GetEncoder()
		table.AppendSchema(s, t.Schema)
		e.Array(4)
		e.Bin(s.Bytes())
		s.Release()
		e.Int(t.offset)
		e.Int(t.Tablets)
		e.Int(t.Bytes)
	}
	n := len(e.Bytes())
	if n > frameMax {
		return nil, fmt.Errorf("backup of %d tables: their schemas have %d bytes, at most %d: make several backups", len(w.tables), n, frameMax)
	}
	if err := w.write(e.Bytes()); err != nil {
		return nil, err
	}
	return w.tables, w.write(binary.BigEndian.AppendUint32(nil, uint32(n)))
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	w.at += int64(n)
	return err
}

// Manifest reads a manifest.
type Manifest struct {
	Tables []Table
	r      io.ReaderAt
	end    int64 // of the frames
}

// Open opens the manifest in a blob. done ends its use.
func Open(ctx context.Context, store *blobfs.Store, h blobfs.Handle) (m *Manifest, done func(), err error) {
	blob, err := store.OpenBlob(ctx, h)
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = blob.Close() } // read only: nothing to lose
	if m, err = OpenManifest(blob, blob.Size()); err != nil {
		done()
		return nil, nil, err
	}
	return m, done, nil
}

// OpenManifest reads the footer of a manifest of that size, in bytes. It uses r later, too.
func OpenManifest(r io.ReaderAt, size int64) (*Manifest, error) {
	var length [lengthBytes]byte
	if size < lengthBytes {
		return nil, fmt.Errorf("%w: it has %d bytes", errBadManifest, size)
	}
	if err := readAt(r, length[:], size-lengthBytes); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(length[:]))
	if n > frameMax || n > size-lengthBytes {
		return nil, fmt.Errorf("%w: a footer of %d bytes", errBadManifest, n)
	}
	m := &Manifest{r: r, end: size - lengthBytes - n}
	b := make([]byte, n)
	if err := readAt(r, b, m.end); err != nil {
		return nil, err
	}
	if err := m.decode(b); err != nil {
		return nil, fmt.Errorf("%w: footer: %w", errBadManifest, err)
	}
	return m, nil
}

func readAt(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	return fmt.Errorf("read the manifest of a backup: %w", err)
}

func (m *Manifest) decode(b []byte) error {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return fmt.Errorf("%d of %d bytes are a message: %v", n, len(b), err)
	}
	d := wire.NewDecoder(b)
	values := d.Array()
	if v := d.Uint(); d.Err() == nil && (v != manifestVersion || values < 2) {
		return fmt.Errorf("%d values of version %d, want version %d", values, v, manifestVersion)
	}
	for range d.ArrayMax(api.BackupTablesMax) {
		n := d.Array()
		sd := wire.NewDecoder(d.Bytes())
		t := Table{offset: d.Int(), Tablets: d.Int(), Bytes: d.Int()}
		for range n - 4 {
			d.Skip()
		}
		if err := d.Err(); err != nil {
			return err
		}
		var err error
		if t.Schema, err = table.DecodeSchema(&sd, nil); err != nil {
			return err
		}
		if t.offset < 0 || t.offset > m.end || t.Tablets < 1 {
			return fmt.Errorf("table %q has %d tablets at offset %d", t.Schema.Name, t.Tablets, t.offset)
		}
		m.Tables = append(m.Tables, t)
	}
	return d.Err()
}

// Tablets calls each for the tablets of the table with that index in Tables, in order, and stops at its error.
func (m *Manifest) Tablets(index int, each func(i int64, m *tablet.Meta) error) error {
	t := &m.Tables[index]
	r := bufio.NewReaderSize(io.NewSectionReader(m.r, t.offset, m.end-t.offset), readBytes)
	var next []byte
	for i := range t.Tablets {
		x, _, err := readTablet(r)
		if err != nil {
			return fmt.Errorf("tablet %d of table %q in a backup: %w", i, t.Schema.Name, err)
		}
		last := i == t.Tablets-1
		if string(x.Start) != string(next) || last != (len(x.End) == 0) {
			return fmt.Errorf("%w: tablet %d of table %q does not continue the tablet before it", errBadManifest, i, t.Schema.Name)
		}
		next = x.End
		if err := each(i, x); err != nil {
			return err
		}
	}
	return nil
}

// TabletsFrom calls each for the tablets of all tables from offset on, which is 0 or one that an earlier call has passed to each, and stops at
// its error. at is the offset of the tablet.
func (m *Manifest) TabletsFrom(offset int64, each func(at int64, t *tablet.Meta) error) error {
	if offset < 0 || offset > m.end {
		return fmt.Errorf("%w: there is no tablet at %d", errBadManifest, offset)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(m.r, offset, m.end-offset), readBytes)
	for offset < m.end {
		t, n, err := readTablet(r)
		if err != nil {
			return fmt.Errorf("tablet at %d of a backup: %w", offset, err)
		}
		if err := each(offset, t); err != nil {
			return err
		}
		offset += n
	}
	return nil
}

// readTablet reads a frame, which has n bytes.
func readTablet(r *bufio.Reader) (m *tablet.Meta, frame int64, err error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBadManifest, err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > frameMax {
		return nil, 0, fmt.Errorf("%w: a frame of %d bytes", errBadManifest, n)
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n))) // it allocates what there is, not the length
	if err == nil && len(b) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBadManifest, err)
	}
	m, err = tablet.DecodeMeta(b)
	return m, lengthBytes + int64(n), err
}
