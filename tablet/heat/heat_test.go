package heat

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/steledb/stele/internal/testseed"
)

// read notes a read of a single row.
func read(t *Tablet, row []byte, n int64) {
	var r Reader
	r.Start(time.Time{}, nil)
	r.Begin(t)
	r.Read(row, n)
	r.End()
}

// check checks that buckets ascend and are within a tablet (HM3), and returns their sum.
func check(t *testing.T, buckets []Bucket, start, end string) (sums Sums) {
	t.Helper()
	at := start
	for i, b := range buckets {
		last := len(b.End) == 0
		if string(b.Start) < at || !last && string(b.End) <= string(b.Start) || last && i < len(buckets)-1 || end != "" && (last || string(b.End) > end) {
			t.Fatalf("bucket %d of %d is from %q to %q, after %q, in a tablet from %q to %q", i, len(buckets), b.Start, b.End, at, start, end)
		}
		at = string(b.End)
		sums.Add(b.Sums)
	}
	return sums
}

// TestSum (HM1, HM3): while goroutines note, others take and the tablet is retired, no operation is lost or counted twice.
func TestSum(t *testing.T) {
	const workers, notes = 4, 20_000
	tablet := New(7, []byte("b"), []byte("y"))
	var retired Retired
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range notes {
				row := fmt.Appendf(nil, "row%05d", r.IntN(1+i))
				read(tablet, row, 3)
				tablet.Write(row, 5, 7*time.Microsecond, nil)
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	var sums Sums
	add := func(p *Part) {
		if p != nil && p.Table != 7 {
			t.Errorf("table %d", p.Table)
		}
		if p != nil {
			sums.Add(check(t, p.Buckets, "b", "y"))
			if len(p.Buckets) > bucketsMax {
				t.Errorf("%d buckets", len(p.Buckets))
			}
		}
	}
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
			add(tablet.Take())
		}
	}
	read(tablet, []byte("c"), 1)
	retired.Add(tablet)
	for _, p := range retired.Take() {
		add(p)
	}
	read(tablet, []byte("d"), 1) // by a request that had begun
	for _, p := range retired.Take() {
		add(p)
	}
	if want := (Sums{workers*notes + 2, workers * notes, 3*workers*notes + 2, 5 * workers * notes, sums.ReadMicros, 7 * workers * notes}); sums != want {
		t.Errorf("sum %+v, want %+v", sums, want)
	}
	if got := append(retired.Take(), retired.Take()...); len(got) != 0 {
		t.Errorf("%d parts later", len(got))
	}
}

// TestMemory (HM2): whatever the rows are, a tablet takes a bounded part of memory, and few operations are kept exactly.
func TestMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	tablet := New(1, nil, nil)
	for i := range 200_000 {
		row := bytes.Repeat([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, 1+r.IntN(200))
		var reader Reader
		reader.Start(time.Time{}, User(row))
		reader.Begin(tablet)
		reader.Read(row, int64(r.IntN(4<<20)))
		reader.End()
		tablet.Write(row, int64(r.IntN(4<<20)), 7*time.Microsecond, User(row))
	}
	size := int(unsafe.Sizeof(*tablet))
	for _, s := range []*side{&tablet.reads, &tablet.writes} {
		size += cap(s.rows) * int(unsafe.Sizeof(sample{}))
		for _, x := range s.rows {
			size += cap(x.row)
			if len(x.user.Value()) > userMax {
				t.Errorf("a name of %d bytes", len(x.user.Value()))
			}
		}
		if len(s.rows) < 8 {
			t.Errorf("%d samples", len(s.rows))
		}
	}
	for _, l := range tablet.large {
		size += int(unsafe.Sizeof(l)) + cap(l.Row)
	}
	if size > TabletBytesMax || len(tablet.large) != largeMax {
		t.Errorf("%d bytes, %d large rows", size, len(tablet.large))
	}
	p := tablet.Take()
	for i := range p.Large[1:] {
		if p.Large[i].Bytes < p.Large[i+1].Bytes {
			t.Error("large rows are not in order")
		}
	}
}

// TestHotRow: a row with much of the load has a bucket of its own, and is named. Estimates are right on average: one of a sample of 100
// rows is off by a sixth often enough.
func TestHotRow(t *testing.T) {
	const tablets, hotReads = 64, 15_000
	inBuckets, named := int64(0), int64(0)
	for range tablets {
		tablet := New(1, nil, nil)
		for i := range 2 * hotReads {
			read(tablet, fmt.Appendf(nil, "user%04d", i%1000), 10)
			if i%2 == 0 {
				read(tablet, []byte("user0500"), 10)
			}
		}
		p := tablet.Take()
		check(t, p.Buckets, "", "")
		at := slices.IndexFunc(p.Buckets, func(b Bucket) bool { return string(b.End) == "user0500" })
		if at < 0 || !bytes.Equal(p.Buckets[at].Start, Below([]byte("user0500"))) {
			t.Fatalf("bucket %d of %+v", at, p.Buckets)
		}
		if len(p.Hot) != 1 || string(p.Hot[0].Row) != "user0500" || p.Hot[0].Writes != 0 {
			t.Fatalf("hot: %+v", p.Hot)
		}
		inBuckets, named = inBuckets+p.Buckets[at].Reads, named+p.Hot[0].Reads
	}
	for _, sum := range []int64{inBuckets, named} {
		if mean := sum / tablets; mean < hotReads*9/10 || mean > hotReads*11/10 {
			t.Errorf("%d reads of the row on average, want about %d", mean, hotReads)
		}
	}
}

// TestTimes (HM1): the time of each read and write is in the bucket of its row. That of a scan is shared by its rows in the tablet.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tablet := New(1, nil, nil)
		for range 3 {
			for row, took := range map[string]time.Duration{"fast": 10 * time.Microsecond, "slow": 40 * time.Millisecond} {
				var r Reader
				r.Start(time.Now(), nil)
				time.Sleep(took) // for a latch, before the tablet is known
				r.Begin(tablet)
				r.Read([]byte(row), 1)
				r.End()
				time.Sleep(time.Second) // the answer
				r.End()
				tablet.Write([]byte(row), 1, 2*took, nil)
			}
		}
		got := map[string]Sums{}
		for _, b := range tablet.Take().Buckets {
			got[string(b.End)] = b.Sums
		}
		for row, micros := range map[string]int64{"fast": 30, "slow": 120_000} {
			if s := got[row]; s.Reads != 3 || s.Writes != 3 || s.ReadMicros != micros || s.WriteMicros != 2*micros {
				t.Errorf("%s: %+v, want %d µs", row, s, micros)
			}
		}
		other := New(1, nil, nil)
		var r Reader
		r.Start(time.Now(), nil)
		for _, of := range []*Tablet{tablet, other} {
			r.Begin(of)
			for i := range 10 {
				time.Sleep(time.Millisecond)
				r.Read(fmt.Appendf(nil, "row%d", i), 1)
			}
		}
		time.Sleep(5 * time.Millisecond)
		r.End()
		for of, want := range map[*Tablet]int64{tablet: 10_000, other: 15_000} {
			p := of.Take()
			if sums := check(t, p.Buckets, "", ""); sums.ReadMicros != want || p.Buckets[3].ReadMicros != want/10 {
				t.Errorf("a scan: %+v, of which a row has %d, want %d", sums, p.Buckets[3].ReadMicros, want)
			}
		}
		tablet.Write([]byte("r"), 1, 700*time.Nanosecond, nil)
		first := check(t, tablet.Take().Buckets, "", "")
		tablet.Write([]byte("r"), 1, 700*time.Nanosecond, nil)
		if second := check(t, tablet.Take().Buckets, "", ""); first.WriteMicros != 0 || second.WriteMicros != 1 {
			t.Errorf("of 1.4 µs, %d and then %d are returned", first.WriteMicros, second.WriteMicros)
		}
	})
}

// TestUsers: of a hot row the users with the most operations are named, at most so many, with estimates; also after minutes are added up.
func TestUsers(t *testing.T) {
	tablet := New(1, nil, nil)
	var parts [][]Hot
	for range 40 {
		for i := range 4000 {
			var r Reader
			var by Caller
			switch {
			case i%2 == 0:
				by = User("ann")
			case i%4 == 1:
				by = User("bob")
			case i%8 == 3:
				by = User(fmt.Sprintf("%d%s", i%80, strings.Repeat("x", 100)))
			}
			r.Start(time.Time{}, by)
			r.Begin(tablet)
			r.Read([]byte("hot"), 1)
			r.End()
			tablet.Write(fmt.Appendf(nil, "row%d", i), 1, 1, User("writer"))
		}
		p := tablet.Take()
		if len(p.Hot) != 1 || len(p.Hot[0].Users) > UsersMax {
			t.Fatalf("%+v", p.Hot)
		}
		parts = append(parts, p.Hot)
	}
	hot := MergeHot(1, parts...)[0]
	if len(hot.Users) != UsersMax || hot.Users[0].Name != "ann" || hot.Users[1].Name != "bob" || len(hot.Users[2].Name) != userMax {
		t.Fatalf("%+v", hot)
	}
	for i, want := range []float64{40 * 2000, 40 * 1000} {
		if got := float64(hot.Users[i].Ops); got < want*.85 || got > want*1.15 {
			t.Errorf("%s: %v operations, want about %v", hot.Users[i].Name, got, want)
		}
	}
	if first := parts[0][0].Users[0].Ops; first > 4000 {
		t.Errorf("adding up changed a part: %d", first)
	}
}

// TestFewOperations: few operations are recorded as they were.
func TestFewOperations(t *testing.T) {
	tablet := New(1, nil, nil)
	for i := range 10 {
		tablet.Write(fmt.Appendf(nil, "r%d", i), int64(i), 7*time.Microsecond, nil)
	}
	p := tablet.Take()
	if len(p.Buckets) != 11 {
		t.Fatalf("%d buckets", len(p.Buckets))
	}
	for i, b := range p.Buckets[:10] {
		if b.Writes != 1 || b.WriteBytes != int64(i) {
			t.Errorf("bucket %d: %+v", i, b)
		}
	}
	if tablet.Take() != nil || (*Tablet)(nil).Take() != nil {
		t.Error("taken twice")
	}
}

// TestLongRows: rows and bounds that differ only beyond RowMax lose nothing.
func TestLongRows(t *testing.T) {
	long := strings.Repeat("x", RowMax)
	tablet := New(1, []byte(long+"a"), []byte(long+"b"))
	for range 100 {
		read(tablet, []byte(long+"aa"), 1)
	}
	p := tablet.Take()
	if got := check(t, p.Buckets, "", ""); got.Reads != 100 {
		t.Errorf("%+v in %+v", got, p.Buckets)
	}
	if got := check(t, Merge(4, p.Buckets, p.Buckets), "", ""); got.Reads != 200 {
		t.Errorf("merged: %+v", got)
	}
}

// TestMerge (HM1, HM3): merged buckets have the same sum, however many are joined, and busy ones stay apart.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	for range 300 {
		var all [][]Bucket
		var want Sums
		for range 1 + r.IntN(4) {
			tablet := New(1, nil, nil)
			for range r.IntN(500) {
				read(tablet, fmt.Appendf(nil, "%03d", r.IntN(300)), r.Int64N(1000))
				tablet.Write(fmt.Appendf(nil, "%03d", r.IntN(10)), 1, 7*time.Microsecond, nil)
			}
			if p := tablet.Take(); p != nil {
				want.Add(check(t, p.Buckets, "", ""))
				if r.IntN(2) == 0 {
					for i := range p.Buckets[:len(p.Buckets)/2] { // a gap
						want.Reads -= p.Buckets[i].Reads
						want.Writes -= p.Buckets[i].Writes
						want.ReadBytes -= p.Buckets[i].ReadBytes
						want.WriteBytes -= p.Buckets[i].WriteBytes
						want.ReadMicros -= p.Buckets[i].ReadMicros
						want.WriteMicros -= p.Buckets[i].WriteMicros
					}
					p.Buckets = p.Buckets[len(p.Buckets)/2:]
				}
				all = append(all, p.Buckets)
			}
		}
		most := 1 + r.IntN(40)
		got := Merge(most, all...)
		if sums := check(t, got, "", ""); sums != want || len(got) > most {
			t.Fatalf("%d buckets of at most %d: %+v, want %+v", len(got), most, sums, want)
		}
	}
	quiet, busy := Sums{Reads: 1}, Sums{Reads: 100}
	got := Merge(3, []Bucket{{nil, []byte("a"), quiet}, {[]byte("a"), []byte("b"), quiet}, {[]byte("b"), []byte("c"), busy}, {[]byte("c"), []byte("d"), quiet}, {[]byte("d"), nil, quiet}})
	if len(got) != 3 || string(got[1].Start) != "b" || got[1].Reads != 100 {
		t.Errorf("%+v", got)
	}
	hot := MergeHot(2, []Hot{{[]byte("a"), 1, 1, nil}, {[]byte("b"), 5, 0, nil}}, []Hot{{[]byte("a"), 3, 3, nil}, {[]byte("c"), 1, 0, nil}})
	if len(hot) != 2 || string(hot[0].Row) != "a" || hot[0].Reads != 4 || hot[0].Writes != 4 {
		t.Errorf("%+v", hot)
	}
}

// BenchmarkNote: what an operation on a row costs.
func BenchmarkNote(b *testing.B) {
	rows := make([][]byte, 1000)
	for i := range rows {
		rows[i] = fmt.Appendf(nil, "user%06d", i)
	}
	for name, tablet := range map[string]*Tablet{"with": New(1, nil, nil), "without": nil} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				read(tablet, rows[i%len(rows)], 100)
			}
		})
	}
}
