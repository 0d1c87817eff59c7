package tablet

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"

	"github.com/steledb/stele/blobfs"
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

// Files that a compaction has replaced leave the cache to the file that replaces them.
func TestCacheForgetsReplacedFiles(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	for i := range 3 {
		e.mustApply("row", set("f", "q", int64(i+1), "v"))
		if err := e.Compact(context.Background(), testTable, false); err != nil {
			t.Fatal(err)
		}
		e.read("row", nil)
	}
	before := e.Stats().Cache
	if err := e.Compact(context.Background(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if after := e.Stats().Cache; before.Blocks < 3 || after.Blocks != 1 {
		t.Errorf("%d blocks cached, and %d after a major compaction, want 3 and 1", before.Blocks, after.Blocks)
	}
}

// A mutation whose keys would not fit in a memtable is rejected before it is logged.
func TestMutationLargerThanMemory(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	row := string(make([]byte, 64<<10)) // zero bytes count double in keys
	var ms []table.Mutation
	for i := range 30_000 {
		ms = append(ms, set("f", strconv.Itoa(i), 1, ""))
	}
	if _, err := e.apply(row, ms...); !errors.Is(err, table.ErrLimit) {
		t.Fatal(err)
	}
	e.mustApply(row, ms[:100]...)
	e.close()
	e.open()
	if got := e.read(row, nil); len(got) != 100 {
		t.Fatalf("%d cells", len(got))
	}
}

// Increments and appends to one column in one call build on each other, and hold one value of it
// however many there are (I13).
func TestReadModifyWriteOfOneColumn(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("r", set("f", "q", table.ServerTimestamp, string(make([]byte, 1<<20))))
	var rules []table.Rule
	for range 500 {
		rules = append(rules, table.Rule{Op: table.RuleAppend, Family: "f", Qualifier: []byte("q"), Value: []byte("x")})
	}
	row, err := e.ReadModifyWrite(context.Background(), testTable, []byte("r"), rules)
	if err != nil {
		t.Fatal(err)
	}
	if len(row.Cells) != 1 || len(row.Cells[0].Value) != 1<<20+500 {
		t.Fatalf("%d cells", len(row.Cells))
	}
	rules[0].Value = make([]byte, 100<<20)
	if _, err := e.ReadModifyWrite(context.Background(), testTable, []byte("r"), rules); !errors.Is(err, table.ErrLimit) {
		t.Fatal(err)
	}
}

// A metadata change whose outcome stays unknown, and that takes effect later, does not block the
// tablet permanently.
func TestUnclearMetadataChange(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	for i := range 6 {
		e.mustApply("r", set("f", strconv.Itoa(i), 1, "v"))
		e.meta.setFaults(func() (before, after error) { return nil, errors.New("outcome unknown") }, errors.New("no answer"))
		if err := e.Compact(context.Background(), testTable, false); err == nil {
			t.Fatal("the metadata change did not fail")
		}
		e.meta.setFaults(nil, nil)
		for n := 0; ; n++ {
			err := e.Compact(context.Background(), testTable, i%2 == 0)
			if err == nil {
				break
			}
			if n == 3 {
				t.Fatal(err)
			}
		}
		if got := e.read("r", nil); len(got) != i+1 {
			t.Fatalf("round %d: %q", i, got)
		}
	}
	e.close()
	e.open()
	if got := e.read("r", nil); len(got) != 6 {
		t.Fatalf("after a restart: %q", got)
	}
}

// A server with a full disk starts and serves reads, and accepts writes again when there is space.
func TestOpenOnFullDisk(t *testing.T) {
	e := newEnv(t, Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10}, "f")
	for i := range 20 {
		e.mustApply(fmt.Sprintf("r%02d", i), set("f", "q", 1, string(make([]byte, 10<<10))))
	}
	e.crash()
	e.fs.SetCapacity("/d0", 1)
	e.fs.SetCapacity("/d1", 1)
	e.open()
	for i := range 20 {
		if got := e.read(fmt.Sprintf("r%02d", i), nil); len(got) != 1 {
			t.Fatalf("row %d: %q", i, got)
		}
	}
	if _, err := e.apply("more", set("f", "q", 1, "v")); !errors.Is(err, blobfs.ErrDiskFull) {
		t.Fatalf("a write on a full disk: %v", err)
	}
	e.fs.SetCapacity("/d0", 1<<30)
	e.fs.SetCapacity("/d1", 1<<30)
	e.mustApply("more", set("f", "q", 1, "v"))
}

// A version that was out of versions=n stays out when what outranked it is deleted, whatever was
// compacted in between (the sticky versions rule).
func TestVersionsStayOut(t *testing.T) {
	steps := []table.Mutation{
		set("f", "q", 10, "ten"), set("f", "q", 20, "twenty"),
		table.DeleteColumnRange("f", []byte("q"), 20, table.Before(21)),
		set("f", "q", 5, "five"), set("f", "q", 4, "four"),
		table.DeleteColumnRange("f", []byte("q"), 5, table.Before(6)),
	}
	want := [][]string{{"f:q@10=ten"}, {"f:q@20=twenty"}, nil, {"f:q@5=five"}, {"f:q@5=five"}, nil}
	// The bits of pattern select the steps after which the memtable is written out, and whether the
	// files are then merged, without or with the complete history.
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
