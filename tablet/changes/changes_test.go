package changes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/tombstone"
)

// record returns a record that sets f:q of a row, deletes the family g and adds to h:n.
func record(t testing.TB, seq uint64, row string) Record {
	t.Helper()
	body := logbody.AppendStreamed(logbody.AppendRow(nil, []byte(row)))
	for _, m := range []table.Mutation{table.Set("f", []byte("q\x00"), table.ServerTimestamp, []byte("v")), table.DeleteFamily("g"), table.Add("h", []byte("n"), 5, 3)} {
		f := &table.Family{Name: m.Family, ID: uint32(m.Family[0])}
		var err error
		if body, _, _, err = logbody.AppendMutation(body, nil, &m, f); err != nil {
			t.Fatal(err)
		}
	}
	return Record{First: seq, Time: int64(seq) * 10, Body: body}
}

// blob is a change file in memory.
type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

// ReadChecked implements sstable.Source.
func (b blob) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	if _, err := b.ReadAt(p, off); err != nil && err != io.EOF {
		return err
	}
	return ok(p)
}

func write(t *testing.T, records ...Record) (blob, File) {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	for i := range records {
		if err := w.Add(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	f, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return blob{bytes.NewReader(out.Bytes())}, f
}

func read(t *testing.T, s Source) (got []string) {
	t.Helper()
	for s.Next() {
		row, err := logbody.Row(s.Record().Body)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s", s.Record().First, row))
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return got
}

// TestMerge: files and buffers are merged by sequence number, within their bounds and from a position on. Records of different rows with
// the same number are all there.
func TestMerge(t *testing.T) {
	b1, f1 := write(t, record(t, 3, "a"), record(t, 5, "c"), record(t, 9, "b"))
	if f1.MinSeq != 3 || f1.MaxSeq != 9 || f1.MinTime != 30 || f1.MaxTime != 90 || f1.Records != 3 {
		t.Errorf("file %+v", f1)
	}
	b2, f2 := write(t, record(t, 4, "y"), record(t, 5, "x"))
	f1.End = []byte("b")
	var buffer Buffer
	for _, r := range []Record{record(t, 12, "a"), record(t, 10, "x"), record(t, 12, "a"), record(t, 12, "x")} {
		buffer.Add(r)
	}
	buffer.Sort()
	open := func(b blob, f File) Later {
		return Later{MinSeq: f.MinSeq, Open: func() (Source, error) { return Open(context.Background(), b, &f, 4, 1<<10, nil) }}
	}
	m := NewMerge([]Later{
		{MinSeq: 10, Open: func() (Source, error) { return InMemory(buffer.From(0), nil, nil), nil }},
		open(b2, f2), open(b1, f1),
	})
	if got, want := read(t, m), []string{"4 y", "5 x", "9 b", "10 x", "12 a", "12 x"}; !slices.Equal(got, want) {
		t.Errorf("merged %v, want %v", got, want)
	}
	double := NewMerge([]Later{LaterInMemory(buffer.From(11), nil, nil), LaterInMemory(buffer.From(0), nil, nil)})
	if got := read(t, double); !slices.Equal(got, []string{"10 x", "12 a", "12 x"}) {
		t.Errorf("records that two sources have: %v", got)
	}
	if got := read(t, InMemory(buffer.From(11), []byte("a"), nil)); !slices.Equal(got, []string{"12 x"}) {
		t.Errorf("above row a: %v", got)
	}
}

func TestDecodeRecord(t *testing.T) {
	r := record(t, 7, "row\x00")
	c, err := r.Decode(func(name []byte, id uint32) bool { return true })
	want := Change{Row: []byte("row\x00"), Seq: 7, Time: 70, Mutations: []table.Mutation{table.Set("f", []byte("q\x00"), 70, []byte("v")), table.DeleteFamily("g"),
		table.Merge("h", []byte("n"), 5, table.Integer(3))}, FamilyIDs: []uint32{'f', 'g', 'h'}}
	if err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("change %+v, %v", c, err)
	}
	if c, err = r.Decode(func(name []byte, id uint32) bool { return string(name) == "g" && id == 'g' }); err != nil || len(c.Mutations) != 1 {
		t.Errorf("of family g: %+v, %v", c, err)
	}
	for n := range r.Body {
		damaged := Record{First: 1, Body: r.Body[:n]}
		_, _ = damaged.Decode(func([]byte, uint32) bool { return true }) // no panic
	}
	key := logbody.AppendRecordKey(ikey.AppendRow(nil, []byte("row")), 70, 7)
	if at, seq, ok := logbody.RecordKey(key); !ok || at != 70 || seq != 7 {
		t.Errorf("record key %d %d %v", at, seq, ok)
	}
	if _, _, ok := logbody.RecordKey(ikey.AppendDeleteRow(ikey.AppendRow(nil, []byte("row")), 7)); ok {
		t.Error("the deletion of a row is taken for a record")
	}
}

// TestSet (CS3): floors rise for the rows of dropped files only, also after splits and merges, and survive encoding.
func TestSet(t *testing.T) {
	file := func(id byte, start, end string, seq uint64) File {
		f := File{Handle: blobfs.Handle{ID: blobfs.ID{id}, Length: 10}, MinSeq: seq, MaxSeq: seq + 5, MinTime: int64(seq), MaxTime: int64(seq + 5), Records: 2}
		f.Start, f.End = []byte(start), []byte(end)
		return f
	}
	floor := func(s *Set, start, end string) uint64 {
		seq, _ := s.Floor([]byte(start), []byte(end))
		return seq
	}
	low := New(0, 0).Replace(nil, []File{file(1, "", "m", 10), file(2, "", "m", 20)})
	up := New(3, 3).Replace(nil, []File{file(3, "m", "", 12)})
	s := Join(low, up, nil, []byte("m"), nil)
	if len(s.Files) != 3 || floor(s, "", "m") != 0 || floor(s, "m", "") != 3 || floor(s, "a", "z") != 3 {
		t.Errorf("joined %+v", s)
	}
	gone, rest := s.Expired(17, 10)
	if len(gone) != 1 || floor(rest, "", "m") != 15 || floor(rest, "m", "") != 3 || s.Bytes() != 30 || rest.Bytes() != 20 {
		t.Errorf("expired %+v, rest %+v", gone, rest)
	}
	if gone, rest = s.Expired(0, 1); len(gone) != 2 || len(rest.Files) != 1 {
		t.Errorf("more than one file: %+v", gone)
	}
	if gone, _ := s.Expired(0, 10); gone != nil {
		t.Errorf("expired %+v", gone)
	}
	half := s.Within([]byte("c"), []byte("p"))
	if len(half.Files) != 3 || !half.Files[0].Shared || string(half.Files[0].Start) != "c" || string(half.Files[0].End) != "m" || string(half.Files[1].End) != "p" {
		t.Errorf("half %+v", half)
	}
	if n := s.Within([]byte("p"), nil); len(n.Files) != 1 {
		t.Errorf("upper part %+v", n)
	}
	half = &Set{Floors: half.Floors}
	e := wire.GetEncoder()
	defer e.Release()
	half.Append(e)
	d := wire.NewDecoder(e.Bytes())
	if got := Decode(&d); d.Err() != nil || fmt.Sprint(*got) != fmt.Sprint(*half) {
		t.Errorf("decoded %+v, %v, want %+v", got, d.Err(), half)
	}
}

// TestClears: deletions of ranges are divided and joined with their tablets, survive encoding, and are forgotten when they are old or too many.
func TestClears(t *testing.T) {
	clear := func(start, end string, seq uint64) Clear {
		return Clear{Range: tombstone.Range{Start: []byte(start), End: []byte(end), Seq: seq}, Time: int64(seq) * 10}
	}
	s := New(0, 0).Clear(clear("a", "c", 1)).Clear(clear("b", "x", 2)).Clear(clear("y", "z", 3))
	low, up := s.Within(nil, []byte("m")), s.Within([]byte("m"), nil)
	if len(low.Clears) != 2 || string(low.Clears[1].End) != "m\x00" || len(up.Clears) != 2 || string(up.Clears[0].Start) != "m\x00" {
		t.Errorf("divided into %+v and %+v", low, up)
	}
	if one := Join(low, up, nil, []byte("m"), nil); fmt.Sprint(*one) != fmt.Sprint(*s) {
		t.Errorf("joined %+v, want %+v", one, s)
	}
	other := New(0, 0)
	for i := range uint64(clearsMax - 1) {
		other = other.Clear(clear("p", "q", 10+i))
	}
	if one := Join(low, other, nil, []byte("m"), nil); len(one.Clears) != clearsMax || one.Clears[0].Seq != 2 || one.LastClear != 10+clearsMax-2 {
		t.Errorf("%d joined, the first is %+v", len(one.Clears), one.Clears[0])
	} else if seq, _ := one.ClearFloor(nil, nil); seq != 1 {
		t.Errorf("forgotten up to %d, want 1", seq)
	}
	_, s = s.Expired(15, 10)
	if seq, time := s.ClearFloor(nil, nil); len(s.Clears) != 2 || seq != 1 || time != 10 || s.LastClear != 3 {
		t.Errorf("after the first one %+v", s)
	}
	e := wire.GetEncoder()
	defer e.Release()
	s.Append(e)
	d := wire.NewDecoder(e.Bytes())
	if got := Decode(&d); d.Err() != nil || fmt.Sprint(*got) != fmt.Sprint(*s) {
		t.Errorf("decoded %+v, %v, want %+v", got, d.Err(), s)
	}
	for n := range e.Bytes() {
		damaged := wire.NewDecoder(e.Bytes()[:n])
		_ = Decode(&damaged) // no panic
	}
	for i := range uint64(clearsMax) {
		s = s.Raise(nil, nil, 1, 1).Share().Clear(clear("a", "b", 10+i))
	}
	forgotten := func() uint64 { seq, _ := s.ClearFloor(nil, nil); return seq }
	if len(s.Clears) != clearsMax || forgotten() != 3 {
		t.Errorf("%d clears are kept, forgotten up to %d", len(s.Clears), forgotten())
	}
	if s = s.Clear(clear("a", strings.Repeat("z", clearBytesMax), 1000)); len(s.Clears) != 0 || forgotten() != 1000 {
		t.Errorf("%d clears are kept, forgotten up to %d", len(s.Clears), forgotten())
	}
}

func TestSignal(t *testing.T) {
	var s Signal
	s.Wake() // nothing waits
	first, second := s.Wait(), s.Wait()
	s.Wake()
	<-first
	<-second
	select {
	case <-s.Wait():
		t.Error("a later wait was woken")
	default:
	}
}
