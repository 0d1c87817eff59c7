package tablet

import (
	"context"
	"reflect"
	"testing"

	"github.com/steledb/stele/table"
)

func set(fam, qual string, ts int64, value string) table.Mutation {
	return table.Set(fam, []byte(qual), ts, []byte(value))
}

// The paper's Figure 1: a slice of the Webtable.
func TestWebtableRow(t *testing.T) {
	e := newEnv(t, Config{}, "anchor", "contents:versions=3,group=pages")
	const row = "com.cnn.www"
	e.mustApply(row, set("contents", "", 3, "<html>3"), set("contents", "", 5, "<html>5"), set("contents", "", 6, "<html>6"))
	e.mustApply(row, set("anchor", "cnnsi.com", 9, "CNN"), set("anchor", "my.look.ca", 8, "CNN.com"))
	want := []string{"anchor:cnnsi.com@9=CNN", "anchor:my.look.ca@8=CNN.com", "contents:@6=<html>6", "contents:@5=<html>5", "contents:@3=<html>3"}
	check := func(when string) {
		t.Helper()
		if got := e.read(row, nil); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got %q\nwant %q", when, got, want)
		}
	}
	check("in the memtable")
	if err := e.Compact(context.Background(), testTable, false); err != nil {
		t.Fatal(err)
	}
	check("after a minor compaction")
	e.close()
	e.open()
	check("after a restart")
	e.mustApply(row, set("contents", "", 7, "<html>7"))
	want = append(want[:2:2], "contents:@7=<html>7", "contents:@6=<html>6", "contents:@5=<html>5")
	check("a fourth version")
	if err := e.Compact(context.Background(), testTable, true); err != nil {
		t.Fatal(err)
	}
	check("after a major compaction")
	stats, err := e.TabletStats(testTable)
	if err != nil {
		t.Fatal(err)
	}
	var entries []int64
	for _, f := range stats[0].Files {
		entries = append(entries, f.Entries)
	}
	if !reflect.DeepEqual(entries, []int64{2, 3}) { // groups default, pages
		t.Fatalf("entries of the files: %d", entries)
	}
	e.close()
	e.open()
	check("after another restart")
}

// A version that was out of versions=n stays out when what outranked it is
// deleted, whatever was compacted in between (the sticky versions rule).
func TestVersionsStayOut(t *testing.T) {
	steps := []table.Mutation{
		set("f", "q", 10, "ten"), set("f", "q", 20, "twenty"),
		table.DeleteColumnRange("f", []byte("q"), 20, 21),
		set("f", "q", 5, "five"), set("f", "q", 4, "four"),
		table.DeleteColumnRange("f", []byte("q"), 5, 6),
	}
	want := [][]string{{"f:q@10=ten"}, {"f:q@20=twenty"}, nil, {"f:q@5=five"}, {"f:q@5=five"}, nil}
	// Each bit pattern says after which steps the memtable is written out, and
	// whether the files are then merged, without or with the whole past.
	for pattern := range 1 << (len(steps) + 1) {
		e := newEnv(t, Config{FilesMerge: 3}, "f:versions=1")
		for i, m := range steps {
			e.mustApply("r", m)
			if pattern&(1<<i) != 0 {
				if err := e.Compact(context.Background(), testTable, pattern>>len(steps) == 1 && i%2 == 0); err != nil {
					t.Fatal(err)
				}
			}
			if got := e.read("r", nil); !reflect.DeepEqual(got, want[i]) {
				t.Fatalf("pattern %b, step %d: got %q, want %q", pattern, i, got, want[i])
			}
		}
		e.close()
	}
}
