package tablet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/tablet/changes"
	"github.com/steledb/stele/tablet/tombstone"
)

// Meta is a tablet's METADATA row, with all that is needed to load it (paper §5.3: "the list of
// SSTables that comprise a tablet and a set of redo points").
type Meta struct {
	ID    uint64
	Table uint64 // id of the table

	// Start and End bound the tablet's rows: Start < row <= End as in METADATA, an empty Start or
	// End meaning no bound.
	Start, End []byte

	// Redo is the redo point: every entry of the tablet with a sequence number at or below it is in
	// Groups. Later entries are in the commit log.
	Redo uint64

	// Stamped is the last server timestamp assigned up to Redo, in µs.
	Stamped int64

	// LastMajor is when the last major compaction of the whole tablet began.
	LastMajor time.Time

	// Groups holds the files of each locality group that has any.
	Groups []GroupMeta

	// Cleared holds the range tombstones. They hide entries of Groups, and those in the commit log.
	Cleared tombstone.List

	// Changes has the change files of a table with a change stream. They hold the records up to Redo.
	Changes *changes.Set

	// Parts are the parts of bulk imports that were committed lately, oldest first.
	Parts []CommittedPart
}

// PartID identifies a part of a bulk import. Clients choose it at random.
type PartID [16]byte

// CommittedPart is a part of a bulk import whose files are, or were, in Groups.
type CommittedPart struct {
	ID   PartID
	Time time.Time // of the commit
}

// GroupMeta holds the files of one locality group, sorted by MinSeq. They hold the entries of each
// row in order of their sequence numbers, oldest first.
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

	// Start and End limit the file to the entries of rows with Start < row <= End, an empty one
	// meaning no bound. A split sets them, and a merge keeps them.
	Start, End []byte
	// Shared means that the metadata of another tablet, or a backup, may name the blob too, so that this
	// tablet's server must not delete it.
	Shared bool
}

// same reports whether f and g are the same part of the same SSTable.
func (f *FileMeta) same(g *FileMeta) bool {
	return f.Handle.ID == g.Handle.ID && string(f.Start) == string(g.Start) && string(f.End) == string(g.End)
}

// bounded reports whether the file is limited to a part of its blob.
func (f *FileMeta) bounded() bool { return len(f.Start) > 0 || len(f.End) > 0 }

// holds reports whether row is within the file's bounds.
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

// checkSequence asserts that the file has a range of sequence numbers.
func (f *FileMeta) checkSequence() {
	invariant.Check(f.MinSeq > 0 && f.MinSeq <= f.MaxSeq, "a file has entries %d to %d", int64(f.MinSeq), int64(f.MaxSeq))
}

// checkAfter asserts that m may replace old, the metadata of the same tablet: the redo point and the
// timestamps only increase.
func (m *Meta) checkAfter(old *Meta) {
	invariant.Check(m.Redo >= old.Redo, "redo point %d is replaced by %d", int64(old.Redo), int64(m.Redo))
	invariant.Check(m.Stamped >= old.Stamped, "timestamp %d is replaced by %d", old.Stamped, m.Stamped)
	if invariant.On {
		m.checkBounds()
	}
}

// checkBounds asserts that the bounds of files are within those of the tablet.
func (m *Meta) checkBounds() {
	for i := range m.Groups {
		for j := range m.Groups[i].Files {
			f := &m.Groups[i].Files[j]
			below := len(f.Start) > 0 && string(f.Start) < string(m.Start)
			above := len(f.End) > 0 && compareEnds(f.End, m.End) > 0
			within := !below && !above || planted.On(planted.SplitWithoutBounds)
			invariant.Check(within, "file %d of a group of tablet %d has rows outside it", int64(j), int64(m.ID))
		}
	}
}

// inRange reports whether start < row <= end, where empty means no bound.
func inRange(start, end, row []byte) bool {
	return (len(start) == 0 || string(row) > string(start)) && (len(end) == 0 || string(row) <= string(end))
}

// Narrow sets the tablet's start to start, the end of the preceding METADATA row. A split writes
// only the lower tablet's row, so m may be an upper row that still describes the undivided tablet.
// Its files are then bounded by start and marked as shared with the lower tablet.
//
// The error means that m begins above start, so that no tablet would have the rows between.
func (m *Meta) Narrow(start []byte) error {
	if string(start) == string(m.Start) {
		return nil
	}
	if string(start) < string(m.Start) || len(m.End) > 0 && string(start) >= string(m.End) {
		return fmt.Errorf("%w: tablet %d has rows from %.64q to %.64q, but the preceding tablet ends at %.64q", errBadMeta, m.ID, m.Start, m.End, start)
	}
	m.Start = append([]byte(nil), start...)
	m.clip(m.Start, nil)
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

// clip removes the tombstones and changes outside of the rows start < row <= end. A clear keeps its number for all parts of the tablet (CS1): readers
// may be above it.
func (m *Meta) clip(start, end []byte) {
	if m.Changes == nil && m.Cleared.Last() > m.Redo {
		m.Changes = m.knownChanges()
	}
	m.Cleared, m.Changes = m.Cleared.Clip(start, end), m.Changes.Within(start, end)
}

// lastSeq returns a sequence number that is at or above those of the files, of the tombstones, and of the clears that readers of changes may have seen.
func (m *Meta) lastSeq() uint64 {
	seq := max(m.Redo, m.Cleared.Last())
	if m.Changes != nil {
		seq = max(seq, m.Changes.LastClear)
	}
	return seq
}

func cloneMeta(m *Meta) *Meta {
	n := *m
	n.Groups = make([]GroupMeta, len(m.Groups))
	for i, g := range m.Groups {
		n.Groups[i] = GroupMeta{Name: g.Name, Files: append([]FileMeta(nil), g.Files...)}
	}
	return &n
}

// replaceFiles is view.replace for metadata.
func (m *Meta) replaceFiles(name string, removed []*file, added *FileMeta) {
	at := 0
	for at < len(m.Groups) && m.Groups[at].Name < name {
		at++
	}
	if at == len(m.Groups) || m.Groups[at].Name != name {
		m.Groups = append(m.Groups, GroupMeta{})
		copy(m.Groups[at+1:], m.Groups[at:])
		m.Groups[at] = GroupMeta{Name: name}
	}
	var files []FileMeta
	placed := false
	for _, f := range m.Groups[at].Files {
		gone := false
		for i, r := range removed {
			if f.same(&r.meta) {
				gone = true
				if i == 0 && added != nil {
					files, placed = append(files, *added), true
				}
			}
		}
		if !gone {
			files = append(files, f)
		}
	}
	if !placed && added != nil {
		files = append(files, *added)
	}
	m.Groups[at].Files = files
}

// AddFile adds a file to a group, behind those with lower sequence numbers.
func (m *Meta) AddFile(group string, f *FileMeta) {
	m.replaceFiles(group, nil, f)
	for i := range m.Groups {
		if g := &m.Groups[i]; g.Name == group {
			slices.SortStableFunc(g.Files, func(a, b FileMeta) int { return cmp.Compare(a.MinSeq, b.MinSeq) })
		}
	}
}

// metaVersion is the first element of an encoded Meta. Later versions append fields; readers skip
// unknown ones.
const metaVersion = 1

// Limits of DecodeMeta.
const (
	metaGroupsMax = 1 << 10
	metaFilesMax  = 1 << 16
	metaClearsMax = 1 << 16
	metaPartsMax  = 1 << 16
)

var errBadMeta = errors.New("malformed tablet metadata")

// EncodeMeta encodes m as one MessagePack value:
//
//	[version, id, table, start, end, redo, stamped, last major µs,
//	 [[group, [[handle, min seq, max seq, entries, raw bytes, row deletions,
//	            start, end, shared]…]]…],
//	 [[cleared from, cleared before, seq]…], changes, [[part id, committed µs]…]]
//
// changes is encoded as by package changes, and nil for a tablet without a change stream. Empty values at the end are left out.
func EncodeMeta(m *Meta) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(m.values())
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
	if m.values() > 9 {
		appendCleared(e, m.Cleared)
	}
	switch {
	case m.Changes != nil:
		m.Changes.Append(e)
	case m.values() > 11:
		e.Nil()
	}
	if m.values() > 11 {
		appendParts(e, m.Parts)
	}
	return append([]byte(nil), e.Bytes()...)
}

// values returns the number of values that EncodeMeta writes.
func (m *Meta) values() int {
	switch {
	case len(m.Parts) > 0:
		return 12
	case m.Changes != nil:
		return 11
	case len(m.Cleared) > 0:
		return 10
	}
	return 9
}

func appendCleared(e *wire.Encoder, l tombstone.List) {
	e.Array(len(l))
	for i := range l {
		e.Array(3)
		e.Bin(l[i].Start)
		e.Bin(l[i].End)
		e.Uint(l[i].Seq)
	}
}

func decodeCleared(d *wire.Decoder) (l tombstone.List) {
	for range d.ArrayMax(metaClearsMax) {
		if d.Err() != nil {
			break
		}
		n := d.Array()
		r := tombstone.Range{}
		r.Start = append(r.Start, d.Bytes()...)
		r.End = append(r.End, d.Bytes()...)
		r.Seq = d.Uint()
		l = append(l, r)
		for range n - 3 {
			d.Skip()
		}
	}
	return l
}

func appendParts(e *wire.Encoder, parts []CommittedPart) {
	e.Array(len(parts))
	for i := range parts {
		e.Array(2)
		e.Bin(parts[i].ID[:])
		e.Int(parts[i].Time.UnixMicro())
	}
}

func decodeParts(d *wire.Decoder) (parts []CommittedPart) {
	for range d.ArrayMax(metaPartsMax) {
		if d.Err() != nil {
			break
		}
		n := d.Array()
		p := CommittedPart{}
		if copy(p.ID[:], d.Bytes()) < len(p.ID) && d.Err() == nil {
			d.Fail(errBadMeta)
		}
		p.Time = time.UnixMicro(d.Int())
		parts = append(parts, p)
		for range n - 2 {
			d.Skip()
		}
	}
	return parts
}

// DecodeMeta decodes the result of EncodeMeta.
func DecodeMeta(b []byte) (*Meta, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("%w: message ends after %d of %d bytes: %v", errBadMeta, n, len(b), err)
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
	if n >= 10 && d.Err() == nil {
		m.Cleared = decodeCleared(&d)
	}
	if n >= 11 && d.Err() == nil && !d.IsNil() {
		m.Changes = changes.Decode(&d)
	}
	if n >= 12 && d.Err() == nil {
		m.Parts = decodeParts(&d)
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
		if n >= 9 { // older versions lack these fields
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

// Clip limits the metadata of a snapshot, which it changes, to the rows start < row <= end, an empty one meaning no bound. The files are
// bounded as after a split, and those without rows there are removed.
func (m *Meta) Clip(start, end []byte) {
	if string(start) > string(m.Start) {
		m.Start = append([]byte(nil), start...)
	}
	if len(end) > 0 && compareEnds(end, m.End) < 0 {
		m.End = append([]byte(nil), end...)
	}
	m.Cleared, m.Changes = m.Cleared.Clip(m.Start, m.End), m.Changes.Within(m.Start, m.End)
	for i := range m.Groups {
		var files []FileMeta
		for _, f := range m.Groups[i].Files {
			if f.within(m.Start, m.End) {
				files = append(files, f)
			}
		}
		m.Groups[i].Files = files
	}
}

// Bytes returns the size of the files. Those that are divided between tablets count as a whole.
func (m *Meta) Bytes() (n int64) {
	for i := range m.Groups {
		for j := range m.Groups[i].Files {
			n += m.Groups[i].Files[j].Handle.Length
		}
	}
	return n
}

// shareable reports whether a file is not marked as shared.
func (m *Meta) shareable() bool {
	for i := range m.Groups {
		for j := range m.Groups[i].Files {
			if !m.Groups[i].Files[j].Shared {
				return true
			}
		}
	}
	return false
}

// share marks all files as shared.
func (m *Meta) share() {
	for i := range m.Groups {
		for j := range m.Groups[i].Files {
			m.Groups[i].Files[j].Shared = true
		}
	}
}

// EachBlob calls f for the handle of each file and change file.
func (m *Meta) EachBlob(f func(h blobfs.Handle) error) error {
	for i := range m.Groups {
		for j := range m.Groups[i].Files {
			if err := f(m.Groups[i].Files[j].Handle); err != nil {
				return err
			}
		}
	}
	if m.Changes == nil {
		return nil
	}
	for i := range m.Changes.Files {
		if err := f(m.Changes.Files[i].Handle); err != nil {
			return err
		}
	}
	return nil
}

// joinChanges returns the change files of two tablets that are merged.
func joinChanges(lower, upper *Meta) *changes.Set {
	if lower.Changes == nil && upper.Changes == nil {
		return nil
	}
	return changes.Join(lower.knownChanges(), upper.knownChanges(), lower.Start, lower.End, upper.End)
}

// knownChanges returns the tablet's change files, or a set without any that begins at the redo point. Earlier clears may be missing in that one.
func (m *Meta) knownChanges() *changes.Set {
	switch {
	case m.Changes != nil:
		return m.Changes
	case m.Redo == 0:
		return changes.New(0, 0).Forget(max(m.Cleared.Last(), 1), m.Stamped)
	}
	return changes.New(m.Redo, m.Stamped).Forget(max(m.Cleared.Last(), m.Redo), m.Stamped)
}
