package changes

import (
	"bytes"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
)

// File is one change file, or the rows of it within bounds.
type File struct {
	Handle           blobfs.Handle
	MinSeq, MaxSeq   uint64 // of the records' first entries
	MinTime, MaxTime int64  // of the records, in µs
	Records          int64
	RawBytes         int64 // of keys and values, before compression

	// Start and End limit the file to the rows Start < row <= End, an empty one meaning no bound. A split sets them.
	Start, End []byte
	// Shared means that the metadata of another tablet may name the blob too.
	Shared bool
}

// within narrows the bounds to start < row <= end. It returns false if nothing is left.
func (f *File) within(start, end []byte) bool {
	if bytes.Compare(start, f.Start) > 0 {
		f.Start = start
	}
	if len(end) > 0 && compareEnds(end, f.End) < 0 {
		f.End = end
	}
	return len(f.End) == 0 || bytes.Compare(f.Start, f.End) < 0
}

// compareEnds compares two end rows, of which an empty one is above all others.
func compareEnds(a, b []byte) int {
	switch {
	case len(a) == 0 && len(b) == 0:
		return 0
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return bytes.Compare(a, b)
}

// Holds reports whether start < row <= end, where empty means no bound.
func Holds(start, end, row []byte) bool {
	return (len(start) == 0 || bytes.Compare(row, start) > 0) && (len(end) == 0 || bytes.Compare(row, end) <= 0)
}

// Floor is the sequence number up to which changes of the rows up to End, and above the floor before, may be missing, and the
// largest time of such a change in µs. An empty End means no bound.
type Floor struct {
	End  []byte
	Seq  uint64
	Time int64
}

// Set is the part of a tablet's metadata about its changes. It is immutable: methods return another one. Nil means that the
// table had no change stream when the metadata was last written.
type Set struct {
	Files  []File  // sorted by MinSeq
	Floors []Floor // sorted by End; the last has no bound
}

// New returns a set without files, and with the same floor for all rows.
func New(seq uint64, time int64) *Set { return &Set{Floors: []Floor{{Seq: seq, Time: time}}} }

// Floor returns the largest floor of the rows start < row <= end.
func (s *Set) Floor(start, end []byte) (seq uint64, time int64) {
	for i := range s.Floors {
		f := &s.Floors[i]
		if len(f.End) > 0 && bytes.Compare(f.End, start) <= 0 {
			continue
		}
		seq, time = max(seq, f.Seq), max(time, f.Time)
		if compareEnds(f.End, end) >= 0 {
			break
		}
	}
	return seq, time
}

// cut returns the floors with one that ends at row at.
func cut(floors []Floor, at []byte) []Floor {
	i, found := slices.BinarySearchFunc(floors, at, func(f Floor, at []byte) int { return compareEnds(f.End, at) })
	if found || len(at) == 0 {
		return floors
	}
	f := floors[i]
	f.End = at
	return slices.Insert(slices.Clone(floors), i, f)
}

// coalesce returns the floors without those that equal the next one.
func coalesce(floors []Floor) (kept []Floor) {
	for i, f := range floors {
		if i+1 < len(floors) && f.Seq == floors[i+1].Seq && f.Time == floors[i+1].Time {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}

// Raise raises the floors of the rows start < row <= end.
func (s *Set) Raise(start, end []byte, seq uint64, time int64) *Set {
	floors := slices.Clone(cut(cut(s.Floors, start), end))
	for i := range floors {
		f := &floors[i]
		if len(f.End) > 0 && bytes.Compare(f.End, start) <= 0 {
			continue
		}
		f.Seq, f.Time = max(f.Seq, seq), max(f.Time, time)
		if compareEnds(f.End, end) >= 0 {
			break
		}
	}
	return &Set{Files: s.Files, Floors: coalesce(floors)}
}

// Replace returns the set without the removed files and with the added ones.
func (s *Set) Replace(removed, added []File) *Set {
	files := slices.DeleteFunc(slices.Clone(s.Files), func(f File) bool {
		return slices.ContainsFunc(removed, func(r File) bool { return r.Handle.ID == f.Handle.ID && bytes.Equal(r.Start, f.Start) })
	})
	files = append(files, added...)
	slices.SortStableFunc(files, compareFiles)
	return &Set{Files: files, Floors: s.Floors}
}

func compareFiles(a, b File) int {
	switch {
	case a.MinSeq < b.MinSeq:
		return -1
	case a.MinSeq > b.MinSeq:
		return 1
	}
	return bytes.Compare(a.Start, b.Start)
}

// Expired returns the files whose records are all older than before, in µs, and the set without them. If there are more than
// filesMax files, the oldest of them count too. They are nil if there are none.
func (s *Set) Expired(before int64, filesMax int) (expired []File, rest *Set) {
	if s == nil {
		return nil, nil
	}
	for i, f := range s.Files {
		if f.MaxTime < before || i < len(s.Files)-filesMax {
			expired = append(expired, f)
		}
	}
	if expired == nil {
		return nil, s
	}
	rest = s.Replace(expired, nil)
	for i := range expired {
		f := &expired[i]
		rest = rest.Raise(f.Start, f.End, f.MaxSeq, f.MaxTime)
	}
	return expired, rest
}

// Within returns the set of a tablet with the rows start < row <= end that is split off, or remains. It marks the files as
// shared with the other tablet.
func (s *Set) Within(start, end []byte) *Set {
	if s == nil {
		return nil
	}
	n := &Set{Floors: s.Floors}
	for _, f := range s.Files {
		if f.within(start, end) {
			f.Shared = true
			n.Files = append(n.Files, f)
		}
	}
	return n
}

// Join returns the set of two tablets that are merged. The lower one has the rows start < row <= at, the upper one those
// above, up to end.
func Join(lower, upper *Set, start, at, end []byte) *Set {
	n := &Set{}
	for _, f := range lower.Files {
		if f.within(start, at) {
			n.Files = append(n.Files, f)
		}
	}
	for _, f := range upper.Files {
		if f.within(at, end) {
			n.Files = append(n.Files, f)
		}
	}
	slices.SortStableFunc(n.Files, compareFiles)
	for _, f := range cut(lower.Floors, at) {
		if compareEnds(f.End, at) <= 0 {
			n.Floors = append(n.Floors, f)
		}
	}
	for _, f := range upper.Floors {
		if compareEnds(f.End, at) > 0 {
			n.Floors = append(n.Floors, f)
		}
	}
	n.Floors = coalesce(n.Floors)
	return n
}

// Bytes returns the size of the files on disk. Those that are divided between tablets count as a whole.
func (s *Set) Bytes() (n int64) {
	if s == nil {
		return 0
	}
	for i := range s.Files {
		n += s.Files[i].Handle.Length
	}
	return n
}

// Limits of Decode.
const (
	filesMax  = 1 << 16
	floorsMax = 1 << 16
)

// Append encodes a set, which is not nil, as one MessagePack value:
//
//	[[[handle, min seq, max seq, min time, max time, records, raw bytes, start, end, shared]…], [[end, seq, time]…]]
func (s *Set) Append(e *wire.Encoder) {
	e.Array(2)
	e.Array(len(s.Files))
	for i := range s.Files {
		f := &s.Files[i]
		e.Array(10)
		blobfs.AppendHandle(e, f.Handle)
		e.Uint(f.MinSeq)
		e.Uint(f.MaxSeq)
		e.Int(f.MinTime)
		e.Int(f.MaxTime)
		e.Int(f.Records)
		e.Int(f.RawBytes)
		e.Bin(f.Start)
		e.Bin(f.End)
		e.Bool(f.Shared)
	}
	e.Array(len(s.Floors))
	for i := range s.Floors {
		e.Array(3)
		e.Bin(s.Floors[i].End)
		e.Uint(s.Floors[i].Seq)
		e.Int(s.Floors[i].Time)
	}
}

// Decode decodes a set. The error is d's.
func Decode(d *wire.Decoder) *Set {
	n, s := d.Array(), &Set{}
	for range d.ArrayMax(filesMax) {
		if d.Err() != nil {
			break
		}
		fields := d.Array()
		f := File{Handle: blobfs.DecodeHandle(d), MinSeq: d.Uint(), MaxSeq: d.Uint(), MinTime: d.Int(), MaxTime: d.Int(), Records: d.Int(), RawBytes: d.Int()}
		f.Start, f.End, f.Shared = bytes.Clone(d.Bytes()), bytes.Clone(d.Bytes()), d.Bool()
		s.Files = append(s.Files, f)
		for range fields - 10 {
			d.Skip()
		}
	}
	for range d.ArrayMax(floorsMax) {
		if d.Err() != nil {
			break
		}
		fields := d.Array()
		s.Floors = append(s.Floors, Floor{End: bytes.Clone(d.Bytes()), Seq: d.Uint(), Time: d.Int()})
		for range fields - 3 {
			d.Skip()
		}
	}
	for range n - 2 {
		d.Skip()
	}
	if d.Err() == nil && len(s.Floors) == 0 {
		s.Floors = []Floor{{}}
	}
	return s
}
