package keyheat

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/heat"
)

// minute returns a column with operations of two tables, and adds those of table 7 to sums.
func minute(r *rand.Rand, at int64, sums *heat.Sums) *column {
	c := &column{minute: at}
	for table := uint64(7); table < 9; table++ {
		t := heat.New(table, nil, nil)
		for range 1 + r.IntN(300) {
			row, n := fmt.Appendf(nil, "row%03d", r.IntN(200)), r.Int64N(100)
			t.Write(row, n, time.Duration(n)*time.Microsecond, nil)
			if table == 7 {
				sums.Add(heat.Sums{Writes: 1, WriteBytes: n, WriteMicros: n})
			}
		}
		c.add(t.Take())
	}
	c.reduce()
	return c
}

// sumOf returns what a store has of table 7 in a period.
func sumOf(t *testing.T, s *store, p period) (sums heat.Sums) {
	t.Helper()
	err := s.read(p.layer(), p.from, p.to, func(c *column) {
		for _, x := range c.tables {
			if x.table != 7 {
				t.Errorf("table %d", x.table)
			}
			for _, b := range x.buckets {
				sums.Add(b.Sums)
			}
		}
	}, 7)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// TestLayers (KH1, KH2): for two weeks and more, each layer has the sum of the minutes, with restarts at any time, in bounded files.
func TestLayers(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	fs := vfs.NewMem(vfs.MemOptions{})
	s := open(t, fs, nil)
	const first = 1_000_000 * 60 / 60 * 60
	var byMinute []heat.Sums
	const minutes = 15*24*60 + 17
	for i := range int64(minutes) {
		var sums heat.Sums
		if i%7 == 0 || i > minutes-300 {
			if err := s.add(minute(r, first+i, &sums)); err != nil {
				t.Fatal(err)
			}
		}
		byMinute = append(byMinute, sums)
		if r.IntN(2000) == 0 {
			s = open(t, fs, nil)
		}
	}
	for _, p := range []period{{minutes - 240, minutes, 1}, {minutes - 2*24*60, minutes, 15}, {minutes - 14*24*60, minutes, 60}} {
		p.from -= p.from % p.interval
		var want heat.Sums
		for i := p.from; i < minutes; i++ {
			want.Add(byMinute[i])
		}
		p.from, p.to = p.from+first, p.to+first
		if got := sumOf(t, s, p); got != want {
			t.Errorf("by %d minutes: %+v, want %+v", p.interval, got, want)
		}
	}
	names, err := fs.ReadDir("heat")
	if err != nil || len(names) > 6 {
		t.Errorf("%v, %v", names, err)
	}
	for _, n := range names {
		if size, _, err := fs.Stat("heat/" + n); err != nil || size > segmentBytesMax {
			t.Errorf("%s: %d bytes, %v", n, size, err)
		}
	}
}

func open(t *testing.T, fs vfs.FS, log *bytes.Buffer) *store {
	t.Helper()
	if log == nil {
		log = &bytes.Buffer{}
	}
	s, err := openStore(fs, "heat", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDamage: a damaged file keeps what is before the damage, and later minutes follow that.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	for range 100 {
		fs := vfs.NewMem(vfs.MemOptions{})
		s := open(t, fs, nil)
		var sums [20]heat.Sums
		for i := range int64(10) {
			if err := s.add(minute(r, i, &sums[i])); err != nil {
				t.Fatal(err)
			}
		}
		f, err := fs.Open("heat/minutes.0")
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		switch at := r.Int64N(size); {
		case r.IntN(2) == 0:
			_ = f.Truncate(at)
		default:
			b := make([]byte, 1)
			_, _ = f.ReadAt(b, at)
			b[0] ^= 1 << r.IntN(8)
			_, _ = f.WriteAt(b, at)
		}
		_ = f.Close()
		var log bytes.Buffer
		s = open(t, fs, &log)
		kept := s.layers[0].last
		if kept < 9 && !strings.Contains(log.String(), "damaged") && kept >= 0 && kept != 9 {
			if size, _, _ := fs.Stat("heat/minutes.0"); size != s.layers[0].size {
				t.Errorf("%d of 10 minutes kept, without a line in the log", kept+1)
			}
		}
		var want heat.Sums
		for i := range kept + 1 {
			want.Add(sums[i])
		}
		for i := int64(10); i < 20; i++ {
			if err := s.add(minute(r, i, &sums[i])); err != nil {
				t.Fatal(err)
			}
			want.Add(sums[i])
		}
		if got := sumOf(t, open(t, fs, nil), period{0, 60, 1}); got != want {
			t.Fatalf("%+v, want %+v: %d minutes kept", got, want, kept+1)
		}
	}
}

// TestEncryption: with a master key no row is in a file, and files of another key are replaced.
func TestEncryption(t *testing.T) {
	fs, r, sums := vfs.NewMem(vfs.MemOptions{}), rand.New(rand.NewPCG(testseed.New(t), 1)), heat.Sums{}
	steps := []struct {
		keys []blobfs.MasterKey
		last int64 // minute that the files have
	}{{[]blobfs.MasterKey{{1}}, -1}, {[]blobfs.MasterKey{{1}}, 0}, {[]blobfs.MasterKey{{2}}, -1}, {[]blobfs.MasterKey{{3}, {2}}, 2}}
	for i, step := range steps {
		s := open(t, encrypted(fs, step.keys), nil)
		if s.layers[0].last != step.last {
			t.Errorf("start %d: the last minute is %d, want %d", i, s.layers[0].last, step.last)
		}
		if err := s.add(minute(r, int64(i), &sums)); err != nil {
			t.Fatal(err)
		}
		if b, err := vfs.ReadFile(fs, "heat/minutes.0"); err != nil || bytes.Contains(b, []byte("row")) {
			t.Errorf("start %d: a row is in the file: %v", i, err)
		}
	}
}

// TestGrid (KH1): the ranges of a result ascend without gaps, and their sum is that of the parts.
func TestGrid(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	for range 50 {
		p := period{from: 600, to: 660, interval: 1}
		g := newGrid(p)
		var want heat.Sums
		for range 1 + r.IntN(3) {
			own := &part{columns: map[int64]*column{}}
			for i := range int64(30) {
				own.add(minute(r, 610+i, &want), 7, p)
			}
			for i := range r.IntN(50) {
				own.samples = append(own.samples, tablet.RowSample{Row: fmt.Appendf(nil, "row%03d", 4*i), Bytes: 100})
			}
			var e wire.Encoder
			own.append(&e, formLatest)
			got := &part{}
			d := wire.NewDecoder(e.Bytes())
			if err := got.decode(&d); err != nil {
				t.Fatal(err)
			}
			g.parts = append(g.parts, got)
		}
		rows := 1 + r.IntN(api.KeyHeatRowsMax)
		k := g.result(&api.KeyHeatRequest{Table: "t", Rows: rows})
		if len(k.Ends) > rows || len(k.Writes) != 60*len(k.Ends) {
			t.Fatalf("%d ranges of %d", len(k.Ends), rows)
		}
		var got heat.Sums
		for i := range k.Writes {
			got.Add(heat.Sums{Reads: k.Reads[i], Writes: k.Writes[i], ReadBytes: k.ReadBytes[i], WriteBytes: k.WriteBytes[i], ReadMicros: k.ReadMicros[i], WriteMicros: k.WriteMicros[i]})
		}
		for i := range k.Ends[1:] {
			if !bytes.Equal(k.Ends[i], k.Starts[i+1]) || bytes.Compare(k.Starts[i], k.Ends[i]) >= 0 {
				t.Errorf("range %d from %q to %q, then from %q", i, k.Starts[i], k.Ends[i], k.Starts[i+1])
			}
		}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		k = g.result(&api.KeyHeatRequest{Table: "t", Prefix: []byte("row1")})
		for i := range k.Ends {
			if string(k.Starts[i]) < string(heat.Below([]byte("row1"))) || len(k.Ends[i]) == 0 || string(k.Ends[i]) > "row2" {
				t.Errorf("with a prefix from %q to %q", k.Starts[i], k.Ends[i])
			}
		}
	}
}

// TestForms: a node of an earlier version gets the values that it knows, and its values, and those of a later one, are understood.
func TestForms(t *testing.T) {
	c := &column{minute: 5, tables: []*tableHeat{{table: 7, buckets: []heat.Bucket{{End: []byte("r"), Sums: heat.Sums{Reads: 1, Writes: 2, ReadBytes: 3, WriteBytes: 4, ReadMicros: 5, WriteMicros: 6}}}, hot: []heat.Hot{{Row: []byte("h"), Reads: 9, Users: []heat.UserOps{{Name: "ann", Ops: 8}}}}}}}
	for f, want := range map[form]string{
		formCounts: "\x92\x05\x91\x95\x07\x91\x96\xc4\x00\xc4\x01r\x01\x02\x03\x04\x91\x93\xc4\x01h\x09\x00\x90\x90",
		formFull:   "\x92\x05\x91\x95\x07\x91\x98\xc4\x00\xc4\x01r\x01\x02\x03\x04\x05\x06\x91\x94\xc4\x01h\x09\x00\x91\x92\xa3ann\x08\x90\x90",
	} {
		var e wire.Encoder
		c.append(&e, f)
		if string(e.Bytes()) != want {
			t.Errorf("form %d: %q, want %q", f, e.Bytes(), want)
		}
	}
	const later = "\x93\x05\x91\x96\x07\x91\x99\xc4\x00\xc4\x01r\x01\x02\x03\x04\x05\x06\x91\x01\x91\x95\xc4\x01r\x01\x02\x91\x93\xa3ann\x08\xc0\xc0\x90\x90\xc0\xc0"
	for b, micros := range map[string]int64{"\x92\x05\x91\x95\x07\x91\x96\xc4\x00\xc4\x01r\x01\x02\x03\x04\x90\x90\x90": 0, later: 5} {
		var got column
		d := wire.NewDecoder([]byte(b))
		if err := got.decode(&d); err != nil || len(d.Rest()) != 0 || len(got.tables) != 1 || got.tables[0].buckets[0].WriteBytes != 4 || got.tables[0].buckets[0].ReadMicros != micros {
			t.Errorf("%q: %+v, %v, %d bytes left", b, got.tables, err, len(d.Rest()))
		}
		d = wire.NewDecoder([]byte(b))
		if got = (column{}); got.decode(&d, 8) != nil || len(d.Rest()) != 0 || len(got.tables) != 0 {
			t.Errorf("%q without table 7: %+v, %d bytes left", b, got.tables, len(d.Rest()))
		}
		for n := range len(b) {
			d = wire.NewDecoder([]byte(b[:n]))
			if (&column{}).decode(&d) == nil {
				t.Errorf("%q is accepted", b[:n])
			}
		}
	}
}

// TestSelection: of a range of rows the result has what was read and written there. Parts of a bucket, whose rows are not known one by one, have the share of
// their data.
func TestSelection(t *testing.T) {
	p := period{from: 600, to: 601, interval: 1}
	own := &part{columns: map[int64]*column{600: {minute: 600, tables: []*tableHeat{{table: 7, buckets: []heat.Bucket{
		{Start: nil, End: []byte("c"), Sums: heat.Sums{Reads: 1000, ReadMicros: 5000}},
		{Start: []byte("c"), End: []byte("d"), Sums: heat.Sums{Writes: 7}},
		{Start: []byte("d"), Sums: heat.Sums{Reads: 100}},
	}}}}}}
	for _, row := range []string{"a", "b", "b5", "c", "d", "e", "f", "g", "h"} {
		own.samples = append(own.samples, tablet.RowSample{Row: []byte(row), Bytes: 10})
	}
	g := newGrid(p)
	g.parts = []*part{own}
	for _, c := range []struct {
		start, end, prefix    string
		reads, writes, micros int64
	}{
		{"", "", "", 1100, 7, 5000}, {"", "c", "", 1000, 0, 5000}, {"c", "d", "", 0, 7, 0}, {"a", "b", "", 250, 0, 1250}, {"b", "d", "", 1000, 7, 5000},
		{"e", "f", "", 25, 0, 0}, {"d", "", "", 100, 0, 0}, {"h", "", "", 100, 0, 0}, {"", "", "b", 500, 0, 2500}, {"a", "b3", "b", 250, 0, 1250}, {"x", "y", "", 0, 0, 0}, {"c", "c", "", 0, 0, 0},
		{"d", "c", "", 0, 0, 0},
	} {
		k := g.result(&api.KeyHeatRequest{Table: "t", Start: []byte(c.start), End: []byte(c.end), Prefix: []byte(c.prefix)})
		var got heat.Sums
		for i := range k.Ends {
			got.Add(heat.Sums{Reads: k.Reads[i], Writes: k.Writes[i], ReadMicros: k.ReadMicros[i]})
			if string(k.Starts[i]) < c.start || c.end != "" && (len(k.Ends[i]) == 0 || string(k.Ends[i]) > c.end) {
				t.Errorf("%+v: a range from %q to %q", c, k.Starts[i], k.Ends[i])
			}
		}
		if got != (heat.Sums{Reads: c.reads, Writes: c.writes, ReadMicros: c.micros}) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestChangeOf: changes of tablets are recognized by their ranges.
func TestChangeOf(t *testing.T) {
	before := []tablet.Loaded{{End: []byte("m")}, {Start: []byte("m"), End: []byte("t")}}
	for _, c := range []struct{ start, end, want string }{
		{"", "m", ""}, {"", "c", "split"}, {"c", "m", ""}, {"", "t", "merge"}, {"t", "", "load"}, {"m", "n", "split"},
	} {
		if got := changeOf(before, &tablet.Loaded{Start: []byte(c.start), End: []byte(c.end)}); got != c.want {
			t.Errorf("from %q to %q: %q, want %q", c.start, c.end, got, c.want)
		}
	}
}

// TestPeriod: a period has at most so many intervals, of a layer that goes back so far.
func TestPeriod(t *testing.T) {
	now := time.UnixMilli(1795254000000)
	for _, c := range []struct {
		since    time.Duration
		until    int64
		interval int64
	}{{0, 0, 1}, {4 * time.Hour, 0, 1}, {5 * time.Hour, 0, 15}, {48 * time.Hour, 0, 15}, {14 * 24 * time.Hour, 0, 60}, {time.Hour, now.Add(-50 * time.Hour).UnixMilli(), 60}} {
		p := periodOf(&api.KeyHeatRequest{Since: c.since, UntilMS: c.until}, now)
		if p.interval != c.interval || p.check() != nil {
			t.Errorf("%v until %d: %+v, %v", c.since, c.until, p, p.check())
		}
	}
	if (period{from: 1, to: 1e9, interval: 1}).check() == nil {
		t.Error("a period of any length")
	}
}

// TestMinuteThatEnds (KH1): a request between the end of a minute and the moment when its column is in the file, and one after that, have it once.
func TestMinuteThatEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 2))
	none := func() *tablet.Server { return nil }
	s := New(Config{Name: "n1", Users: none, Metadata: none})
	st := open(t, vfs.NewMem(vfs.MemOptions{}), nil)
	now := time.Now()
	var want, got heat.Sums
	s.mu.store, s.mu.current = st, minute(r, minuteOf(now)-1, &want)
	p := periodOf(&api.KeyHeatRequest{}, now)
	look := func(when string) {
		t.Helper()
		got = heat.Sums{}
		if err := s.each(p, func(c *column) {
			for _, x := range c.tables {
				for _, b := range x.buckets {
					if x.table == 7 {
						got.Add(b.Sums)
					}
				}
			}
		}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", when, got, err, want)
		}
	}
	look("before the end")
	ended := s.endMinute(now)
	look("before it is written")
	if err := st.add(ended); err != nil {
		t.Fatal(err)
	}
	look("before it is forgotten")
	s.mu.ended = nil
	look("afterwards")
}
