package changes

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/tombstone"
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
	// Clears are the deletions of ranges of rows, in order of their times. They are in no file.
	Clears []Clear
	// ClearFloors are up to where clears may be missing; sorted as Floors are. Nil means nowhere.
	ClearFloors []Floor
	// LastClear is the largest sequence number of a clear of these rows, or of a tablet that had them: all later entries and clears have larger ones.
	LastClear uint64
}

// Clear is a deletion of a range of rows. Its sequence number is its own: each change is before it or after it.
type Clear struct {
	tombstone.Range
	Time int64 // in µs
}

// Precedes reports whether the clear comes before a record. Those with one number are of different tablets that were merged, in the order of rows; but
// clears of earlier versions have the number of the record before them.
func (c *Clear) Precedes(r *Record) bool {
	if c.Seq != r.First {
		return c.Seq < r.First
	}
	row := ikey.RowKey(rowPart(r))
	return len(c.End) > 0 && bytes.Compare(c.End, row) <= 0
}

// Bounds of the clears of a set. The row of METADATA has them.
const (
	clearsMax     = 256
	clearBytesMax = 64 << 10
)

// Clear returns the set with another deletion, later than all others.
func (s *Set) Clear(c Clear) *Set {
	n := *s
	n.Clears, n.LastClear = append(slices.Clone(s.Clears), c), max(s.LastClear, c.Seq)
	n.bound()
	return &n
}

// bound removes the oldest deletions of a set that has too many.
func (s *Set) bound() {
	bytes := 0
	for i := range s.Clears {
		bytes += len(s.Clears[i].Start) + len(s.Clears[i].End)
	}
	for len(s.Clears) > clearsMax || bytes > clearBytesMax {
		bytes -= len(s.Clears[0].Start) + len(s.Clears[0].End)
		s.forget()
	}
}

// forget removes the oldest deletion.
func (s *Set) forget() {
	c := s.Clears[0]
	s.Clears, s.ClearFloors = s.Clears[1:], raise(s.ClearFloors, nil, nil, c.Seq, c.Time)
}

// Forget returns the set with the remark that clears up to a sequence number, with times up to time, may be missing. Zero is no time.
func (s *Set) Forget(seq uint64, time int64) *Set {
	if time == 0 {
		return s
	}
	n := *s
	n.ClearFloors, n.LastClear = raise(s.ClearFloors, nil, nil, seq, time), max(s.LastClear, seq)
	return &n
}

// ClearsFrom returns the deletions of the rows start < row <= end with sequence numbers of at least next, in the order of these and of rows.
func (s *Set) ClearsFrom(start, end []byte, next uint64) []Clear {
	all := slices.DeleteFunc(s.clearsWithin(start, end), func(c Clear) bool { return c.Seq < next })
	slices.SortStableFunc(all, func(a, b Clear) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), bytes.Compare(a.Start, b.Start)) })
	return all
}

// Ended returns what is left of the set of a table without a change stream, whose redo point is redo. It is nil, unless a clear has a larger
// number: positions of readers may be above that one, and a later stream begins there.
func (s *Set) Ended(redo uint64, time int64) *Set {
	if s == nil || s.LastClear <= redo {
		return nil
	}
	return New(s.LastClear, time).Forget(s.LastClear, max(time, 1))
}

// with returns the set with other files and floors.
func (s *Set) with(files []File, floors []Floor) *Set {
	n := *s
	n.Files, n.Floors = files, floors
	return &n
}

// clearsWithin returns the deletions of the rows start < row <= end.
func (s *Set) clearsWithin(start, end []byte) (all []Clear) {
	for _, c := range s.Clears {
		if c.Range = c.Clip(start, end); len(c.End) == 0 || bytes.Compare(c.Start, c.End) < 0 {
			all = append(all, c)
		}
	}
	return all
}

// New returns a set without files, and with the same floor for all rows.
func New(seq uint64, time int64) *Set { return &Set{Floors: []Floor{{Seq: seq, Time: time}}} }

// Floor returns the largest floor of the rows start < row <= end.
func (s *Set) Floor(start, end []byte) (seq uint64, time int64) { return floorOf(s.Floors, start, end) }

// ClearFloor returns the sequence number up to which clears of the rows start < row <= end may be missing, and the largest time of such a clear in µs.
func (s *Set) ClearFloor(start, end []byte) (seq uint64, time int64) {
	return floorOf(s.ClearFloors, start, end)
}

func floorOf(floors []Floor, start, end []byte) (seq uint64, time int64) {
	for i := range floors {
		f := &floors[i]
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
	return s.with(s.Files, raise(s.Floors, start, end, seq, time))
}

// raise is Set.Raise of floors. Nil ones are zero.
func raise(floors []Floor, start, end []byte, seq uint64, time int64) []Floor {
	if floors == nil {
		floors = []Floor{{}}
	}
	floors = slices.Clone(cut(cut(floors, start), end))
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
	return coalesce(floors)
}

// Replace returns the set without the removed files and with the added ones.
func (s *Set) Replace(removed, added []File) *Set {
	files := slices.DeleteFunc(slices.Clone(s.Files), func(f File) bool {
		return slices.ContainsFunc(removed, func(r File) bool { return r.Handle.ID == f.Handle.ID && bytes.Equal(r.Start, f.Start) })
	})
	files = append(files, added...)
	slices.SortStableFunc(files, compareFiles)
	return s.with(files, s.Floors)
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

// mergeableMax bounds the files of Mergeable, in bytes.
const mergeableMax = 8 << 20

// Mergeable returns the newest files, which a minor compaction rewrites with its own records: as long as each is no larger than all that are
// newer, new records of the given size included. Those that are older than before, in µs, are dropped instead.
func (s *Set) Mergeable(bytes, before int64) []File {
	if s == nil {
		return nil
	}
	at := len(s.Files)
	for at > 0 && s.Files[at-1].RawBytes <= min(bytes, mergeableMax) && s.Files[at-1].MaxTime >= before {
		at--
		bytes += s.Files[at].RawBytes
	}
	return slices.Clone(s.Files[at:])
}

// Expired returns the files whose records are all older than before, in µs, and the set without them. If there are more than
// filesMax files, the oldest of them count too. They are nil if there are none.
func (s *Set) Expired(before int64, filesMax int) (expired []File, rest *Set) {
	if s == nil {
		return nil, nil
	}
	if len(s.Clears) > 0 && s.Clears[0].Time < before {
		s = s.with(s.Files, s.Floors)
		for len(s.Clears) > 0 && s.Clears[0].Time < before {
			s.forget()
		}
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
	n := s.with(nil, s.Floors)
	n.Clears = s.clearsWithin(start, end)
	for _, f := range s.Files {
		if f.within(start, end) {
			f.Shared = true
			n.Files = append(n.Files, f)
		}
	}
	return n
}

// Share returns the set with all files marked as shared.
func (s *Set) Share() *Set {
	n := s.with(slices.Clone(s.Files), s.Floors)
	for i := range n.Files {
		n.Files[i].Shared = true
	}
	return n
}

// Shareable reports whether a file is not marked as shared.
func (s *Set) Shareable() bool {
	return slices.ContainsFunc(s.Files, func(f File) bool { return !f.Shared })
}

// Now returns those of files that the set has, as it has them: a file may have been marked as shared since.
func (s *Set) Now(files []File) (now []File) {
	for i := range files {
		for _, f := range s.Files {
			if f.Handle.ID == files[i].Handle.ID && bytes.Equal(f.Start, files[i].Start) {
				now = append(now, f)
			}
		}
	}
	return now
}

// Join returns the set of two tablets that are merged. The lower one has the rows start < row <= at, the upper one those
// above, up to end.
func Join(lower, upper *Set, start, at, end []byte) *Set {
	n := &Set{LastClear: max(lower.LastClear, upper.LastClear), Floors: joinFloors(lower.Floors, upper.Floors, at)}
	if lower.ClearFloors != nil || upper.ClearFloors != nil {
		n.ClearFloors = joinFloors(lower.ClearFloors, upper.ClearFloors, at)
	}
	n.Clears = joinClears(lower.clearsWithin(start, at), upper.clearsWithin(at, end))
	n.bound()
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
	return n
}

// joinClears returns the deletions of two tablets in the order of their times. One that a split divided between them is one again.
func joinClears(lower, upper []Clear) []Clear {
	for _, u := range upper {
		i := slices.IndexFunc(lower, func(l Clear) bool {
			return l.Seq == u.Seq && l.Time == u.Time && len(l.End) > 0 && bytes.Equal(l.End, u.Start)
		})
		if i >= 0 {
			lower[i].End = u.End
		} else {
			lower = append(lower, u)
		}
	}
	slices.SortStableFunc(lower, func(a, b Clear) int { return cmp.Compare(a.Time, b.Time) })
	return lower
}

// joinFloors returns floors that are those of lower up to row at, and those of upper above it. Nil ones are zero.
func joinFloors(lower, upper []Floor, at []byte) (all []Floor) {
	for _, f := range cut(raise(lower, nil, nil, 0, 0), at) {
		if compareEnds(f.End, at) <= 0 {
			all = append(all, f)
		}
	}
	for _, f := range raise(upper, nil, nil, 0, 0) {
		if compareEnds(f.End, at) > 0 {
			all = append(all, f)
		}
	}
	return coalesce(all)
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
//	[[[handle, min seq, max seq, min time, max time, records, raw bytes, start, end, shared]…], [[end, seq, time]…],
//	 [[cleared from, cleared before, seq, time]…], forgotten, forgotten time, [[end, seq, time]…], last clear]
//
// A set without deletions lacks all but the first two. Sets of earlier versions lack the last two: their clear floor is forgotten, which is the largest one here.
func (s *Set) Append(e *wire.Encoder) {
	n := 2
	if len(s.Clears) > 0 || s.ClearFloors != nil || s.LastClear > 0 {
		n = 7
	}
	e.Array(n)
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
	appendFloors(e, s.Floors)
	if n > 2 {
		s.appendClears(e)
	}
}

func appendFloors(e *wire.Encoder, floors []Floor) {
	e.Array(len(floors))
	for i := range floors {
		e.Array(3)
		e.Bin(floors[i].End)
		e.Uint(floors[i].Seq)
		e.Int(floors[i].Time)
	}
}

func decodeFloors(d *wire.Decoder) (floors []Floor) {
	for range d.ArrayMax(floorsMax) {
		if d.Err() != nil {
			break
		}
		fields := d.Array()
		floors = append(floors, Floor{End: bytes.Clone(d.Bytes()), Seq: d.Uint(), Time: d.Int()})
		for range fields - 3 {
			d.Skip()
		}
	}
	return floors
}

func (s *Set) appendClears(e *wire.Encoder) {
	e.Array(len(s.Clears))
	for i := range s.Clears {
		c := &s.Clears[i]
		e.Array(4)
		e.Bin(c.Start)
		e.Bin(c.End)
		e.Uint(c.Seq)
		e.Int(c.Time)
	}
	seq, time := s.ClearFloor(nil, nil)
	e.Uint(seq)
	e.Int(time)
	appendFloors(e, s.ClearFloors)
	e.Uint(s.LastClear)
}

// decodeClears decodes what appendClears has encoded, or, unless floors, an earlier version.
func (s *Set) decodeClears(d *wire.Decoder, floors bool) {
	for range d.ArrayMax(filesMax) {
		if d.Err() != nil {
			break
		}
		fields := d.Array()
		c := Clear{Range: tombstone.Range{Start: bytes.Clone(d.Bytes()), End: bytes.Clone(d.Bytes()), Seq: d.Uint()}, Time: d.Int()}
		s.Clears, s.LastClear = append(s.Clears, c), max(s.LastClear, c.Seq)
		for range fields - 4 {
			d.Skip()
		}
	}
	if seq, time := d.Uint(), d.Int(); seq > 0 {
		s.ClearFloors, s.LastClear = raise(nil, nil, nil, seq, time), max(s.LastClear, seq)
	}
	if floors && d.Err() == nil {
		s.ClearFloors, s.LastClear = decodeFloors(d), d.Uint()
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
	s.Floors = decodeFloors(d)
	read := 2
	if n >= 5 && d.Err() == nil {
		if read = 5; n >= 7 {
			read = 7
		}
		s.decodeClears(d, read == 7)
	}
	for range n - read {
		d.Skip()
	}
	if d.Err() == nil && len(s.Floors) == 0 {
		s.Floors = []Floor{{}}
	}
	return s
}
