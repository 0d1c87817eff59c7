package tablet

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/steledb/stele/table"
)

// bytesByGroup returns the bytes read of each group's files since the last call.
func (e *env) bytesByGroup() map[string]int64 {
	of, _ := e.reads.take()
	stats, err := e.TabletStats(testTable)
	if err != nil {
		e.t.Fatal(err)
	}
	by := map[string]int64{}
	for _, t := range stats {
		for _, f := range t.Files {
			for id, n := range of {
				if id.String() == f.Blob {
					by[f.Group] += n
				}
			}
		}
	}
	return by
}

func (e *env) compact(major bool) {
	e.t.Helper()
	if err := e.Compact(context.Background(), testTable, major); err != nil {
		e.t.Fatal(err)
	}
}

// scanFamily reads all of a family, and returns its number of cells.
func (e *env) scanFamily(name string) (cells int) {
	e.t.Helper()
	p, err := table.Compile(table.FamilyRegex(name))
	if err != nil {
		e.t.Fatal(err)
	}
	_, err = e.Scan(context.Background(), testTable, Range{}, p, func(_ []byte, c []table.Cell) error {
		cells += len(c)
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return cells
}

// pages fills a table with rows of a small and a large family.
func (e *env) pages(rows int) {
	for i := range rows {
		e.mustApply(fmt.Sprintf("page%04d", i), set("language", "", 1, "EN"), set("contents", "", 1, string(noise(4000))))
	}
}

// move moves a family to a group, which is created if necessary.
func (e *env) move(family, group string) {
	e.t.Helper()
	s, err := e.schema.Apply(table.FamilySpec{Name: family, Group: group})
	if err == nil {
		err = e.SetSchema(s)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	e.schema = s
}

// A family moves to another locality group while it is served: at once for new writes, at the next
// major compaction for older entries, and no read sees a difference.
func TestFamilyMovesOnline(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: -1, FilesMerge: 2}, "language", "contents")
	e.pages(100)
	e.compact(false)
	read := func() []string { return e.read("page0007", nil) }
	want := read()
	check := func(when string) {
		t.Helper()
		if got := read(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %q, want %q", when, got, want)
		}
		if n, m := e.scanFamily("language"), e.scanFamily("contents"); n != 100 || m != 100 {
			t.Fatalf("%s: %d and %d cells", when, n, m)
		}
	}
	e.move("contents", "pages")
	check("moved")
	e.mustApply("page0008", set("contents", "", 1, "new"))
	e.compact(false) // merges what it can, and must keep deletions
	check("after a minor compaction")
	e.close()
	e.open()
	check("after a restart")

	// A deletion is now in the new group only, what it covers in the old one.
	e.mustApply("page0007", table.DeleteFamily("contents"))
	e.mustApply("page0009", table.DeleteRow())
	e.mustApply("page0009", set("language", "", 1, "EN"), set("contents", "", 1, "again"))
	want = want[1:]
	for range 3 {
		e.mustApply("page0010", set("language", "", 1, "EN"))
		e.compact(false)
		if got := read(); !reflect.DeepEqual(got, want) {
			t.Fatalf("a deleted page reappeared: %q", got)
		}
	}
	e.compact(true)
	if got := read(); !reflect.DeepEqual(got, want) {
		t.Fatalf("after a major compaction: %q", got)
	}
	if got := e.read("page0009", nil); !reflect.DeepEqual(got, []string{"contents:@1=again", "language:@1=EN"}) {
		t.Fatalf("row that was deleted and written again: %q", got)
	}
	e.reads.take()
	if n := e.scanFamily("language"); n != 100 {
		t.Fatalf("%d cells of language", n)
	}
	if by := e.bytesByGroup(); by["pages"] != 0 || by[table.DefaultGroup] > 16<<10 {
		t.Errorf("moved, a scan of the languages reads %d bytes of its own group and %d of the pages", by[table.DefaultGroup], by["pages"])
	}
	checkOffline(t, e)
}
