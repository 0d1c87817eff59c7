package tablet

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
)

// TestFilesOfRemovedGroup: entries in files of a locality group that was removed with its last
// family are read, and rewritten to the family's current group, and the files are deleted.
func TestFilesOfRemovedGroup(t *testing.T) {
	e := newEnv(t, Config{}, "f:group=g,in-memory", "h")
	for i := range 3 {
		e.mustApply(fmt.Sprint("row", i), set("f", "q", 1, "v"), set("h", "q", 1, "v"))
		e.compact(false)
	}
	spec, err := table.ParseFamilySpec("f:group=default")
	if err != nil {
		t.Fatal(err)
	}
	if e.schema, err = e.schema.Apply(spec); err != nil || e.schema.Group("g") != nil {
		t.Fatalf("the group is there: %v", err)
	}
	if err := e.SetSchema(e.schema); err != nil {
		t.Fatal(err)
	}
	want := []string{"f:q@1=v", "h:q@1=v"}
	check := func() {
		t.Helper()
		for i := range 3 {
			if got := e.read(fmt.Sprint("row", i), nil); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("row %d: got %q, want %q", i, got, want)
			}
		}
	}
	check()
	e.mustApply("row3", table.DeleteRow())
	e.compact(false)
	check()
	e.close()
	e.open()
	check()
	e.compact(true)
	check()
	all, err := e.TabletStats(testTable)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all[0].Files {
		if f.Group != table.DefaultGroup {
			t.Errorf("a file of group %s is left", f.Group)
		}
	}
}

// TestStatsOfSharedFiles: files that tablets share since a split count once in the statistics of
// all tablets.
func TestStatsOfSharedFiles(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	for i := range 300 {
		if _, err := applySync(s.Server, fmt.Sprintf("row%03d", i), table.Set("f", []byte("q"), 1, noise(2000))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	sum := func() (f FileStats) {
		t.Helper()
		all, err := s.TabletStats(testTable)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			for _, x := range all[i].Files {
				f.Bytes, f.RawBytes, f.Entries = f.Bytes+x.Bytes, f.RawBytes+x.RawBytes, f.Entries+x.Entries
			}
		}
		return f
	}
	before := sum()
	if _, _, err := s.Split(t.Context(), lastTablet, nil); err != nil {
		t.Fatal(err)
	}
	after := sum()
	for what, n := range map[string][2]int64{
		"bytes": {before.Bytes, after.Bytes}, "raw bytes": {before.RawBytes, after.RawBytes}, "entries": {before.Entries, after.Entries},
	} {
		if n[1] > n[0] || n[1] < n[0]*9/10 {
			t.Errorf("%d %s before the split, %d after it", n[0], what, n[1])
		}
	}
}
