package tablet

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
)

// Meta is what must be known of a tablet to load it: its METADATA row (paper
// §5.3: "the list of SSTables that comprise a tablet and a set of redo points").
type Meta struct {
	ID    uint64
	Table uint64 // id of the table

	// Start and End bound the tablet's rows: Start < row <= End as in METADATA,
	// an empty Start or End being no bound.
	Start, End []byte

	// Redo is the redo point: every entry of the tablet with a sequence number
	// at or below it is in Groups. The rest is in the commit log.
	Redo uint64

	// Stamped is the last server timestamp given up to Redo, in µs.
	Stamped int64

	// LastMajor is when the last major compaction of the whole tablet began.
	LastMajor time.Time

	// Groups are the files of each locality group that has any.
	Groups []GroupMeta
}

// GroupMeta is the files of one locality group. What they have of any one row is in
// the order of their sequence numbers, oldest first; MinSeq does not go down.
type GroupMeta struct {
	Name  string
	Files []FileMeta
}

// FileMeta is one SSTable.
type FileMeta struct {
	Handle       blobfs.Handle
	MinSeq       uint64
	MaxSeq       uint64
	Entries      int64
	RawBytes     int64 // of keys and values, before compression
	RowDeletions int64 // delete row and delete family entries

	// Start and End bound what counts of the file: its entries of rows with
	// Start < row <= End, an empty one being no bound. They are set when a tablet
	// is split, and stay when it is merged with another.
	Start, End []byte
	// Shared says that the metadata of another tablet may name the blob too, so
	// that it is not for this one's server to delete it.
	Shared bool
}

// same says whether f and g are the same part of the same SSTable.
func (f *FileMeta) same(g *FileMeta) bool {
	return f.Handle.ID == g.Handle.ID && string(f.Start) == string(g.Start) && string(f.End) == string(g.End)
}

// bounded says whether not all that is in the file's blob counts.
func (f *FileMeta) bounded() bool { return len(f.Start) > 0 || len(f.End) > 0 }

// holds says whether what the file has of a row counts.
func (f *FileMeta) holds(row []byte) bool { return inRange(f.Start, f.End, row) }

// within narrows the bounds to start < row <= end. It returns false if nothing is left.
func (f *FileMeta) within(start, end []byte) bool {
	if planted.On(planted.SplitWithoutBounds) {
		return true
	}
	if string(start) > string(f.Start) {
		f.Start = start
	}
	if len(end) > 0 && compareEnds(end, f.End) < 0 {
		f.End = end
	}
	return len(f.End) == 0 || string(f.Start) < string(f.End)
}

// inRange says whether start < row <= end, where empty is no bound.
func inRange(start, end, row []byte) bool {
	return (len(start) == 0 || string(row) > string(start)) && (len(end) == 0 || string(row) <= string(end))
}

// Narrow makes start, the end of the row before in METADATA, the tablet's. A split
// writes the lower tablet's row alone, so the upper's, which m may be, still tells of
// the undivided tablet: from start on its files count, and they are the lower's too.
//
// The error says that m begins above start: rows would be nobody's.
func (m *Meta) Narrow(start []byte) error {
	if string(start) == string(m.Start) {
		return nil
	}
	if string(start) < string(m.Start) || len(m.End) > 0 && string(start) >= string(m.End) {
		return fmt.Errorf("%w: tablet %d has the rows from %.64q to %.64q, the one before it ends at %.64q", errBadMeta, m.ID, m.Start, m.End, start)
	}
	m.Start = append([]byte(nil), start...)
	for i := range m.Groups {
		g := &m.Groups[i]
		var files []FileMeta
		for _, f := range g.Files {
			if f.within(m.Start, nil) {
				f.Shared = true
				files = append(files, f)
			}
		}
		g.Files = files
	}
	return nil
}

// metaVersion is the first element of a coded Meta. Later versions append
// fields; a reader skips those that it does not know.
const metaVersion = 1

// Bounds on what DecodeMeta believes.
const (
	metaGroupsMax = 1 << 10
	metaFilesMax  = 1 << 16
)

var errBadMeta = errors.New("malformed tablet metadata")

// EncodeMeta codes m as one MessagePack value:
//
//	[version, id, table, start, end, redo, stamped, last major µs,
//	 [[group, [[handle, min seq, max seq, entries, raw bytes, row deletions,
//	            start, end, shared]…]]…]]
func EncodeMeta(m *Meta) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(9)
	e.Uint(metaVersion)
	e.Uint(m.ID)
	e.Uint(m.Table)
	e.Bin(m.Start)
	e.Bin(m.End)
	e.Uint(m.Redo)
	e.Int(m.Stamped)
	e.Int(m.LastMajor.UnixMicro())
	e.Array(len(m.Groups))
	for _, g := range m.Groups {
		e.Array(2)
		e.Str(g.Name)
		e.Array(len(g.Files))
		for i := range g.Files {
			f := &g.Files[i]
			e.Array(9)
			blobfs.AppendHandle(e, f.Handle)
			e.Uint(f.MinSeq)
			e.Uint(f.MaxSeq)
			e.Int(f.Entries)
			e.Int(f.RawBytes)
			e.Int(f.RowDeletions)
			e.Bin(f.Start)
			e.Bin(f.End)
			e.Bool(f.Shared)
		}
	}
	return append([]byte(nil), e.Bytes()...)
}

// DecodeMeta reads what EncodeMeta wrote.
func DecodeMeta(b []byte) (*Meta, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("%w: %d of %d bytes are a message: %v", errBadMeta, n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if version := d.Uint(); d.Err() == nil && (n < 9 || version < metaVersion) {
		d.Fail(errBadMeta)
	}
	m := &Meta{ID: d.Uint(), Table: d.Uint()}
	m.Start = append(m.Start, d.Bytes()...)
	m.End = append(m.End, d.Bytes()...)
	m.Redo, m.Stamped = d.Uint(), d.Int()
	m.LastMajor = time.UnixMicro(d.Int())
	for range d.ArrayMax(metaGroupsMax) {
		if d.Err() != nil {
			break
		}
		m.Groups = append(m.Groups, decodeGroup(&d))
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("decode tablet metadata: %w", err)
	}
	return m, nil
}

func decodeGroup(d *wire.Decoder) GroupMeta {
	fields := d.Array()
	g := GroupMeta{Name: d.Str()}
	for range d.ArrayMax(metaFilesMax) {
		if d.Err() != nil {
			break
		}
		n := d.Array()
		f := FileMeta{
			Handle: blobfs.DecodeHandle(d),
			MinSeq: d.Uint(), MaxSeq: d.Uint(),
			Entries: d.Int(), RawBytes: d.Int(), RowDeletions: d.Int(),
		}
		if n >= 9 { // else of a time when tablets were not split
			f.Start = append(f.Start, d.Bytes()...)
			f.End = append(f.End, d.Bytes()...)
			f.Shared = d.Bool()
			n -= 3
		}
		g.Files = append(g.Files, f)
		for range n - 6 {
			d.Skip()
		}
	}
	for range fields - 2 {
		d.Skip()
	}
	return g
}
