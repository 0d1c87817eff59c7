package metadata_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// MD1: keys sort in the order of ranges.
func TestKeysKeepTheOrder(t *testing.T) {
	type tablet struct {
		table uint64
		end   []byte
	}
	compare := func(a, b tablet) int {
		switch {
		case a.table != b.table && a.table < b.table:
			return -1
		case a.table != b.table:
			return 1
		case len(a.end) == 0 && len(b.end) == 0:
			return 0
		case len(a.end) == 0:
			return 1
		case len(b.end) == 0:
			return -1
		}
		return bytes.Compare(a.end, b.end)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	bytesOf := []byte{0, 1, 'a', 0xff}
	random := func() tablet {
		x := tablet{table: []uint64{1, 16, 255, 256, 1 << 40}[rng.IntN(5)]}
		for n := rng.IntN(4); n > 0; n-- {
			x.end = append(x.end, bytesOf[rng.IntN(len(bytesOf))])
		}
		return x
	}
	for range 20_000 {
		a, b := random(), random()
		ka, kb := metadata.Key(nil, a.table, a.end), metadata.Key(nil, b.table, b.end)
		if got, want := bytes.Compare(ka, kb), compare(a, b); got != want {
			t.Fatalf("%d %x and %d %x compare as %d, their keys as %d", a.table, a.end, b.table, b.end, want, got)
		}
		tableID, end, err := metadata.ParseKey(ka)
		if err != nil || tableID != a.table || !bytes.Equal(end, a.end) {
			t.Fatalf("key of %d %x is read as %d %x, %v", a.table, a.end, tableID, end, err)
		}
		// The first tablet at or after a row's seek key is the first one that ends at or after the
		// row.
		if row := b.end; len(row) > 0 && a.table == b.table {
			found := bytes.Compare(ka, metadata.SeekKey(nil, b.table, row)) >= 0
			if has := len(a.end) == 0 || bytes.Compare(row, a.end) <= 0; found != has {
				t.Fatalf("tablet to %x: found for row %x: %v", a.end, row, found)
			}
		}
		start, end := metadata.TableRange(a.table)
		if in := bytes.Compare(kb, start) >= 0 && bytes.Compare(kb, end) < 0; in != (a.table == b.table) {
			t.Fatalf("table %d's range has the key of table %d: %v", a.table, b.table, in)
		}
	}
}

func TestBadKeys(t *testing.T) {
	for _, key := range []string{"", "01234567", "01234567\x02", "01234567\x00", "01234567\x01a"} {
		var bad *metadata.FormatError
		if _, _, err := metadata.ParseKey([]byte(key)); !errors.As(err, &bad) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

// row is a METADATA row in memory.
type row struct {
	t     *testing.T
	key   []byte
	cells []table.Cell
	clock int64
}

// do applies a change as check_and_mutate does, and reports whether it was made.
func (r *row) do(c *metadata.Change) bool {
	r.t.Helper()
	program, err := table.Compile(c.Predicate)
	if err != nil {
		r.t.Fatal(err)
	}
	var eval table.Evaluator
	slices.SortFunc(r.cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	var passed []table.Cell
	if len(r.cells) > 0 {
		if passed, err = eval.Eval(program, c.Key, slices.Clone(r.cells)); err != nil {
			r.t.Fatal(err)
		}
	}
	todo := c.Else
	if len(passed) > 0 {
		todo = c.Then
	}
	schema := metadata.Schema()
	if len(todo) > 0 {
		rm := table.RowMutation{Row: c.Key, Mutations: todo}
		if err := rm.Validate(schema, nil); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, m := range todo {
		r.key = c.Key
		r.clock++
		switch m.Op {
		case table.OpSet:
			r.cells = append(r.cells, table.Cell{Family: m.Family, Qualifier: m.Qualifier, Timestamp: r.clock, Value: m.Value})
		case table.OpDeleteColumn:
			r.cells = slices.DeleteFunc(r.cells, func(x table.Cell) bool { return x.Family == m.Family && bytes.Equal(x.Qualifier, m.Qualifier) })
		case table.OpDeleteRow:
			r.cells = nil
		}
	}
	return c.Matched(len(passed) > 0)
}

func (r *row) read() *metadata.Row {
	r.t.Helper()
	slices.SortFunc(r.cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	got, err := metadata.Decode(&table.Row{Key: r.key, Cells: r.cells})
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// described returns the part of a tablet's description that this package reads.
func described(id, tableID uint64, end string, redo uint64) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(6)
	e.Uint(1)
	e.Uint(id)
	e.Uint(tableID)
	e.Bin(nil)
	e.Bin([]byte(end))
	e.Uint(redo)
	return bytes.Clone(e.Bytes())
}

// TestChanges: a row is created once and changed only at its current generation. A change at an
// older generation fails (I4).
func TestChanges(t *testing.T) {
	r := &row{t: t}
	first := &metadata.Row{Table: 20, End: []byte("m"), Generation: metadata.FirstGeneration(7), Meta: described(7, 20, "m", 1)}
	if !r.do(metadata.Create(first, "created")) {
		t.Fatal("a new row was not made")
	}
	if r.do(metadata.Create(first, "created")) {
		t.Fatal("a row was made twice")
	}
	if got := r.read(); !reflect.DeepEqual(got, first) {
		t.Fatalf("made %+v, read %+v", first, got)
	}
	mine, zombie := *first, *first
	mine.Server, mine.Addr, mine.Meta, mine.Recoveries = "n1.7", "10.0.0.1:7106", described(7, 20, "m", 2), []string{"n0.3", "n2.5"}
	mine.Split = described(9, 20, "g", 2)
	if !r.do(metadata.Replace(&mine, "loaded")) {
		t.Fatal("a row was not changed")
	}
	if got := r.read(); !reflect.DeepEqual(got, &mine) {
		t.Fatalf("changed to %+v, read %+v", mine, got)
	}
	zombie.Server = "n9.1"
	if r.do(metadata.Replace(&zombie, "")) || r.do(metadata.Remove(first)) {
		t.Fatal("a change of an old generation was made")
	}
	mine.Server, mine.Addr, mine.Recoveries, mine.Split = "", "", nil, nil
	if !r.do(metadata.Replace(&mine, "unloaded")) {
		t.Fatal("a row was not changed")
	}
	if got := r.read(); !got.Unassigned() || !reflect.DeepEqual(got, &mine) {
		t.Fatalf("changed to %+v, read %+v", mine, got)
	}
	if !r.do(metadata.Remove(&mine)) || !r.gone() {
		t.Fatal("a row was not removed")
	}
	if r.do(metadata.Replace(&mine, "")) {
		t.Fatal("a row that is gone was changed")
	}
	// The change that created the row does not create it again. Another tablet with that end gets
	// its own row.
	if r.do(metadata.Create(first, "split off")) || !r.gone() {
		t.Fatal("a row that is gone was made again")
	}
	next := &metadata.Row{Table: 20, End: []byte("m"), Generation: metadata.FirstGeneration(8), Meta: described(8, 20, "m", 3)}
	if !r.do(metadata.Create(next, "split off")) {
		t.Fatal("the row of another tablet was not made")
	}
	if got := r.read(); !reflect.DeepEqual(got, next) {
		t.Fatalf("made %+v, read %+v", next, got)
	}
	if !r.do(metadata.Remove(next)) || r.do(metadata.Create(next, "")) || r.do(metadata.Create(first, "")) {
		t.Fatal("a row that is gone was made again")
	}
}

// gone reports whether the row has no cells to read.
func (r *row) gone() bool {
	program, err := table.Compile(metadata.Rows())
	if err != nil {
		r.t.Fatal(err)
	}
	var eval table.Evaluator
	passed, err := eval.Eval(program, r.key, slices.Clone(r.cells))
	return err == nil && len(passed) == 0
}

func TestDecodeRefuses(t *testing.T) {
	r := &row{t: t}
	r.do(metadata.Create(&metadata.Row{Table: 20, Generation: 1, Meta: described(7, 20, "", 1), Split: described(9, 20, "g", 1), Server: "s", Recoveries: []string{"x"}}, ""))
	for i := range r.cells {
		cells := slices.Clone(r.cells)
		cells[i].Value = []byte{0xc1}
		_, err := metadata.Decode(&table.Row{Key: r.key, Cells: cells})
		var bad *metadata.FormatError
		if !errors.As(err, &bad) {
			t.Errorf("a broken %s:%s is read: %v", cells[i].Family, cells[i].Qualifier, err)
		}
	}
	if _, err := metadata.Decode(&table.Row{Key: r.key}); err == nil {
		t.Error("a row without cells is read")
	}
}

// TestRowOfAnotherTablet (MD3): a row that describes a tablet other than that of its key is
// rejected, and the error has its key.
func TestRowOfAnotherTablet(t *testing.T) {
	mine := described(7, 20, "m", 1)
	for what, c := range map[string]struct {
		meta, split []byte
		column      string
		table       uint64
		end         string
	}{
		"table":               {described(7, 21, "m", 1), nil, "files:meta", 21, "m"},
		"end":                 {described(7, 20, "n", 1), nil, "files:meta", 20, "n"},
		"no end":              {described(7, 20, "", 1), nil, "files:meta", 20, ""},
		"table of the split":  {mine, described(9, 21, "g", 1), "files:split", 21, "g"},
		"split at the end":    {mine, described(9, 20, "m", 1), "files:split", 20, "m"},
		"split above the end": {mine, described(9, 20, "z", 1), "files:split", 20, "z"},
		"split without end":   {mine, described(9, 20, "", 1), "files:split", 20, ""},
	} {
		r := &row{t: t}
		r.do(metadata.Create(&metadata.Row{Table: 20, End: []byte("m"), Generation: 1, Meta: c.meta, Split: c.split, Server: "s"}, ""))
		got, err := metadata.Decode(&table.Row{Key: r.key, Cells: r.cells})
		var format *metadata.FormatError
		var other *metadata.MismatchError
		if !errors.As(err, &format) || format.What != c.column || !errors.As(err, &other) || other.Table != c.table || string(other.End) != c.end {
			t.Errorf("%s: %v", what, err)
		}
		if got == nil || got.Table != 20 || string(got.End) != "m" || got.Server != "" || got.Meta != nil {
			t.Errorf("%s: the row is read as %+v", what, got)
		}
	}
	for _, meta := range [][]byte{nil, {1}, described(metadata.RootTabletID, metadata.TableID, "", 1), described(metadata.RootTabletID, 20, string(metadata.RootEnd()), 1)} {
		b := metadata.EncodeRoot(&metadata.Row{Meta: meta, Server: "s"})
		var format *metadata.FormatError
		if _, err := metadata.DecodeRoot(b, 5); !errors.As(err, &format) || format.What != metadata.RootPath {
			t.Errorf("a root tablet of %x: %v", meta, err)
		}
	}
}

func TestRoot(t *testing.T) {
	meta := described(metadata.RootTabletID, metadata.TableID, string(metadata.RootEnd()), 1)
	r := &metadata.Row{Table: metadata.TableID, End: metadata.RootEnd(), Generation: 5, Server: "n1.7", Addr: "h:1", Meta: meta, Recoveries: []string{"n2.3"}}
	b := metadata.EncodeRoot(r)
	if want := "9501a46e312e37a3683a31c41296010201c400c4090000000000000001010191a46e322e33"; hex.EncodeToString(b) != want {
		t.Errorf("root is coded as %x, want %s", b, want)
	}
	got, err := metadata.DecodeRoot(b, 5)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("read %+v, %v", got, err)
	}
	for i := range b {
		if _, err := metadata.DecodeRoot(b[:i], 5); err == nil {
			t.Errorf("%d of %d bytes are read", i, len(b))
		}
	}
}

// Values that later versions append to the file or to the server's column are ignored; another
// version is rejected.
func TestLaterVersions(t *testing.T) {
	r := &metadata.Row{Table: metadata.TableID, End: metadata.RootEnd(), Generation: 5, Server: "n1.7", Addr: "h:1", Recoveries: []string{"n2.3"},
		Meta: described(metadata.RootTabletID, metadata.TableID, string(metadata.RootEnd()), 1)}
	longer := append(metadata.EncodeRoot(r), 0x81, 0x01, 0x02, 0xa1, 'x')
	longer[0] = 0x97
	if got, err := metadata.DecodeRoot(longer, 5); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("a root with two more values is read as %+v, %v", got, err)
	}
	later := metadata.EncodeRoot(r)
	later[1] = 2
	var bad *metadata.FormatError
	if _, err := metadata.DecodeRoot(later, 5); !errors.As(err, &bad) || !strings.Contains(err.Error(), "version 2 is unknown") {
		t.Errorf("a root of version 2: %v", err)
	}
	if _, err := metadata.DecodeRoot(append(metadata.EncodeRoot(r), 0), 5); !errors.As(err, &bad) || !strings.Contains(err.Error(), "1 bytes after the value") {
		t.Errorf("a root with a byte behind it: %v", err)
	}
	for extra, value := range []string{"\x92\xa1s\xa1a", "\x93\xa1s\xa1a\x07", "\x94\xa1s\xa1a\x91\xc0\xa1x"} {
		x := &row{t: t}
		x.do(metadata.Create(&metadata.Row{Table: 20, Generation: 1, Meta: described(7, 20, "", 1), Server: "s"}, ""))
		for i := range x.cells {
			if string(x.cells[i].Qualifier) == "server" {
				x.cells[i].Value = []byte(value)
			}
		}
		if got := x.read(); got.Server != "s" || got.Addr != "a" {
			t.Errorf("a server with %d more values is read as %q at %q", extra, got.Server, got.Addr)
		}
	}
}

// The first key at or after the seek key of a row is its tablet's, even for the longest possible
// end.
func TestSeekAtLongestEnd(t *testing.T) {
	longest := bytes.Repeat([]byte("r"), int(metadata.EndMax))
	for _, c := range []struct {
		row   []byte
		found bool
	}{
		{longest[1:], true},
		{longest, true},
		{append(longest[:len(longest):len(longest)], 0), false},
		{append(longest[:len(longest):len(longest)], "rrr"...), false},
	} {
		key := metadata.SeekKey(nil, 20, c.row)
		if found := bytes.Compare(metadata.Key(nil, 20, longest), key) >= 0; found != c.found {
			t.Errorf("the tablet to an end of %d bytes is found for a row of %d bytes: %v", len(longest), len(c.row), found)
		}
		if limit := table.DefaultLimits().RowKeyBytes + 1; int64(len(key)) > limit {
			t.Errorf("the key for a row of %d bytes has %d", len(c.row), len(key))
		}
	}
}

func TestSchema(t *testing.T) {
	s := metadata.Schema()
	if err := s.Validate(nil); err != nil {
		t.Fatal(err)
	}
	if g := s.Group("location"); !g.InMemory || g.BlockBytes != 8192 {
		t.Errorf("places are in a group with blocks of %d bytes, in memory: %v", g.BlockBytes, g.InMemory)
	}
	if s.Group("files").InMemory {
		t.Error("files are in memory")
	}
	var families []string
	for _, f := range s.Families {
		families = append(families, f.Name+" "+f.Group+" "+f.GC.String())
	}
	if want := []string{"event files versions=64", "files files versions=1", "gone files versions=1 or age=7d", "loc location versions=1", "log files versions=1"}; !slices.Equal(families, want) {
		t.Errorf("families are %q", families)
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		key        []byte
		name, want string
	}{
		{metadata.Key(nil, 1, nil), "", "METADATA to its last row"},
		{metadata.Key(nil, 1, metadata.Key(nil, 16, []byte("m"))), "", `METADATA to the row of table 16 to row "m"`},
		{metadata.Key(nil, 16, nil), "web", "web to its last row"},
		{metadata.Key(nil, 16, []byte("com.cnn\x00")), "web", `web to row "com.cnn\x00"`},
		{metadata.Key(nil, 17, []byte("m")), "", `table 17 to row "m"`},
		{metadata.Key(nil, 17, bytes.Repeat([]byte("m"), 100)), "", `table 17 to row "` + strings.Repeat("m", 80) + `"…`},
		{[]byte("?"), "web", `bad key "?"`},
	} {
		if got := metadata.Describe(c.key, c.name); got != c.want {
			t.Errorf("%q is described as %s, want %s", c.key, got, c.want)
		}
	}
}
