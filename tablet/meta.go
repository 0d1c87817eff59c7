package tablet

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
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

// GroupMeta is the files of one locality group, oldest first. The sequence
// numbers in one file are all above those in the file before it.
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
//	 [[group, [[handle, min seq, max seq, entries, raw bytes, row deletions]…]]…]]
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
			e.Array(6)
			blobfs.AppendHandle(e, f.Handle)
			e.Uint(f.MinSeq)
			e.Uint(f.MaxSeq)
			e.Int(f.Entries)
			e.Int(f.RawBytes)
			e.Int(f.RowDeletions)
		}
	}
	return append([]byte(nil), e.Bytes()...)
}

// DecodeMeta reads what EncodeMeta wrote.
func DecodeMeta(b []byte) (*Meta, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("%w: %d of %d bytes are a message: %w", errBadMeta, n, len(b), err)
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
		g.Files = append(g.Files, FileMeta{
			Handle: blobfs.DecodeHandle(d),
			MinSeq: d.Uint(), MaxSeq: d.Uint(),
			Entries: d.Int(), RawBytes: d.Int(), RowDeletions: d.Int(),
		})
		for range n - 6 {
			d.Skip()
		}
	}
	for range fields - 2 {
		d.Skip()
	}
	return g
}
