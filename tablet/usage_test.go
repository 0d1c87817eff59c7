package tablet

import (
	"context"
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
)

// usage returns the usage of the test's table, and its families by name. It checks that the parts
// add up.
func (e *env) usage() (Usage, map[string]FamilyUsage) {
	e.t.Helper()
	all := e.Usage(0)
	if len(all) != 1 || all[0].Table != testTable || all[0].ID != 1 {
		e.t.Fatalf("usage of %+v", all)
	}
	u, by, sum := all[0], map[string]FamilyUsage{}, FamilyUsage{}
	for _, f := range u.Families {
		by[f.Name] = f
		sum.DiskBytes += f.DiskBytes
		sum.MemtableBytes += f.MemtableBytes
		sum.InMemoryBytes += f.InMemoryBytes
	}
	if sum.DiskBytes != u.DiskBytes || sum.MemtableBytes != u.MemtableBytes || sum.InMemoryBytes != u.InMemoryBytes {
		e.t.Fatalf("families come to %+v, the table to %+v", sum, u)
	}
	return u, by
}

// about reports whether got is within a tenth of want.
func about(got, want int64) bool { return got*10 >= want*9 && got*10 <= want*11 }

// TestUsageByFamily: the families of one file are counted separately, in memtables and on disk,
// also in files that do not record their sizes, of dropped families, and across a restart.
func TestUsageByFamily(t *testing.T) {
	e := newEnv(t, Config{CacheBytes: -1}, "small", "large", "empty", "alone:group=own")
	const rows = 100
	for i := range rows {
		e.mustApply(fmt.Sprintf("row%04d", i), set("small", "q", 1, string(noise(100))), set("large", "q", 1, string(noise(900))),
			set("alone", "q", 1, string(noise(500))))
	}
	check := func(when string, undivided bool) {
		t.Helper()
		u, by := e.usage()
		small, large, alone := by["small"], by["large"], by["alone"]
		if !about(small.DiskBytes, rows*140) || !about(large.DiskBytes, rows*940) || !about(alone.DiskBytes, rows*540) || by["empty"].DiskBytes != 0 {
			t.Errorf("%s: on disk %+v", when, by)
		}
		if small.Files != 1 || large.Files != 1 || alone.Files != 1 || by["empty"].Files != 0 || u.Files != 2 || u.Tablets != 1 || alone.Group != "own" {
			t.Errorf("%s: files %+v", when, by)
		}
		if u.MemtableBytes != 0 || u.UndividedBytes != 0 != undivided {
			t.Errorf("%s: %+v", when, u)
		}
	}
	_, by := e.usage()
	if m := by["small"].MemtableBytes; m < rows*120 || m > rows*260 || by["large"].MemtableBytes < 4*m || by["alone"].MemtableBytes < 2*m || by["empty"].MemtableBytes != 0 {
		t.Errorf("in the memtable: %+v", by)
	}
	e.mustApply("row0000", table.DeleteRow())
	e.compact(true)
	check("written out", false)
	e.close()
	e.open()
	check("opened again", false)

	// Files of earlier versions: in proportion to the others of the group.
	v, _, err := e.tabletOfTest().views.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer v.release()
	forget := func(f *file, families bool) {
		f.weights, f.weightsKnown = nil, false
		if families {
			f.families, f.familiesKnown = nil, false
		}
	}
	g := v.group(table.DefaultGroup)
	forget(g.files[0], false)
	u, by := e.usage()
	if u.UndividedBytes != g.files[0].bytes || !about(by["small"].DiskBytes, by["large"].DiskBytes) || by["empty"].DiskBytes != 0 {
		t.Errorf("of a file that lists its families alone: %+v", u)
	}
	forget(g.files[0], true)
	if _, by = e.usage(); !about(by["small"].DiskBytes, by["large"].DiskBytes) || !about(by["empty"].DiskBytes, by["large"].DiskBytes) {
		t.Errorf("of a file that lists nothing: %+v", by)
	}
	for i := range rows {
		e.mustApply(fmt.Sprintf("row%04d", i), set("small", "q", 2, string(noise(100))), set("large", "q", 2, string(noise(900))))
	}
	e.compact(false)
	if _, by = e.usage(); !about(by["small"].DiskBytes, 2*rows*140) || !about(by["large"].DiskBytes, 2*rows*940) || by["empty"].DiskBytes > 1 {
		t.Errorf("beside a file that has a list: %+v", by)
	}

	// Data of a dropped family.
	s := *e.schema
	s.Families = nil
	for _, f := range e.schema.Families {
		if f.Name != "alone" {
			s.Families = append(s.Families, f)
		}
	}
	if err := e.SetSchema(&s); err != nil {
		t.Fatal(err)
	}
	if _, by = e.usage(); !about(by[""].DiskBytes, rows*540) {
		t.Errorf("of a dropped family: %+v", by)
	}
	e.compact(true)
	if _, by = e.usage(); by[""] != (FamilyUsage{}) {
		t.Errorf("compacted, of a dropped family: %+v", by)
	}
}

// TestUsageAfterSplit: files and memtables that two tablets share are counted once.
func TestUsageAfterSplit(t *testing.T) {
	f := newCluster(t, Config{}, 1, "f:", "g:")
	s := f.servers[0]
	for i := range 200 {
		if _, err := applySync(s.Server, fmt.Sprintf("row%03d", i), set("f", "q", 1, string(noise(1000))), set("g", "q", 1, string(noise(1000)))); err != nil {
			t.Fatal(err)
		}
		if i == 149 {
			if err := s.Compact(t.Context(), testTable, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := s.Usage(1)[0]
	if _, _, err := s.Split(context.Background(), lastTablet, []byte("row049")); err != nil {
		t.Fatal(err)
	}
	after := s.Usage(1)[0]
	if after.Tablets != 2 || !about(after.DiskBytes+after.MemtableBytes, before.DiskBytes+before.MemtableBytes) {
		t.Errorf("%+v before the split, %+v after it", before, after)
	}
	if x := s.Sizes()[0]; x.ID != 1 || x.Table != testTable || x.DiskBytes != after.DiskBytes || x.MemtableBytes != after.MemtableBytes {
		t.Errorf("in short %+v, %+v", x, after)
	}
	for _, x := range after.Families {
		if !about(2*x.DiskBytes, after.DiskBytes) {
			t.Errorf("family %s has %d of %d bytes", x.Name, x.DiskBytes, after.DiskBytes)
		}
	}
}

// TestUsageOfInMemoryGroup: pinned memory is reported.
func TestUsageOfInMemoryGroup(t *testing.T) {
	w := newPinWorld(t, 0)
	w.fill(100, 1000)
	w.compact(true)
	w.read()
	w.settled()
	u := w.s.Usage(0)[0]
	for _, f := range u.Families {
		if f.Name == "m" && (f.InMemoryBytes < 100*200 || f.InMemoryBytes != u.InMemoryBytes) || f.Name == "f" && f.InMemoryBytes != 0 {
			t.Errorf("in memory: %+v", f)
		}
	}
}

// TestFamilyOfKeys: each kind of key yields its family.
func TestFamilyOfKeys(t *testing.T) {
	row := ikey.AppendRow(nil, []byte("r\x00w"))
	fam := ikey.AppendFamily(row, "f", 7<<24|1)
	col := ikey.AppendColumn(fam, []byte("q\x00"))
	for i, key := range [][]byte{ikey.AppendCell(col, 1, 2), ikey.AppendDeleteColumn(col, 3), ikey.AppendDeleteFamily(fam, 4)} {
		if id := ikey.FamilyOf(key); id != 7<<24|1 {
			t.Errorf("key %d is of family %d", i, id)
		}
	}
	if id := ikey.FamilyOf(ikey.AppendDeleteRow(row, 5)); id != 0 {
		t.Errorf("a deletion of a row is of family %d", id)
	}
}

// TestSharedMemtable: a memtable that two tablets share counts half for each.
func TestSharedMemtable(t *testing.T) {
	m := newMem(nil)
	if n := m.ownBytes(); n != 0 {
		t.Errorf("an empty one uses %d bytes", n)
	}
	col := ikey.AppendColumn(ikey.AppendFamily(ikey.AppendRow(nil, []byte("r")), "f", 1), []byte("q"))
	if _, err := m.Add(ikey.AppendCell(col, 1, 1), make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	whole := m.ownBytes()
	if p := m.part(nil, []byte("m")); whole < 1<<20 || m.ownBytes() != whole/2 || p.ownBytes() != whole/2 || len(p.sums.list()) != 1 {
		t.Errorf("%d bytes, of which the parts have %d and %d", whole, m.ownBytes(), p.ownBytes())
	}
	half := view{active: newMem(nil), frozen: []*mem{m}}
	if n := half.memtableBytes(); n != whole/2 {
		t.Errorf("a tablet with half of %d bytes has %d", whole, n)
	}
}

// TestSizesAddUp: however often a tablet is split, the bytes and cells of its children on disk add
// up to those of the files.
func TestSizesAddUp(t *testing.T) {
	f := newCluster(t, Config{}, 1, "f:")
	s := f.servers[0]
	for i := range 200 {
		if _, err := applySync(s.Server, fmt.Sprintf("row%03d", i), set("f", "q", 1, string(noise(1000)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	check := func(tablets int) {
		t.Helper()
		all, err := s.TabletStats(testTable)
		if err != nil || len(all) != tablets {
			t.Fatalf("%d tablets, not %d, %v", len(all), tablets, err)
		}
		var disk, entries int64
		for _, x := range all {
			for _, file := range x.Files {
				disk, entries = disk+file.Bytes, entries+file.Entries
			}
		}
		if files := f.blobBytes(); disk != files || entries > 200 || entries < 200-int64(tablets) {
			t.Errorf("%d tablets have %d bytes and %d cells on disk, their files %d and 200", tablets, disk, entries, files)
		}
		if u := s.Usage(1)[0]; u.DiskBytes != disk {
			t.Errorf("%d tablets use %d bytes on disk, they have %d", tablets, u.DiskBytes, disk)
		}
	}
	check(1)
	split := func(r Ref, row string) (lower Ref) {
		t.Helper()
		lower, _, err := s.Split(t.Context(), r, []byte(row))
		if err != nil {
			t.Fatal(err)
		}
		return lower
	}
	upTo120 := split(lastTablet, "row120")
	check(2)
	upTo003 := split(upTo120, "row003") // from here on several tablets share a data block
	check(3)
	split(upTo003, "row001")
	check(4)
	split(upTo003, "row002")
	check(5)
}

// blobBytes returns the size of all SSTables of the first server's tablets.
func (f *cluster) blobBytes() (n int64) {
	seen := map[string]bool{}
	for _, sv := range *f.servers[0].Server.served.tables.Load() {
		for _, t := range sv.tablets {
			t.meta.mu.Lock()
			m := cloneMeta(t.meta.current)
			t.meta.mu.Unlock()
			for _, g := range m.Groups {
				for _, x := range g.Files {
					if id := x.Handle.ID.String(); !seen[id] {
						seen[id] = true
						n += x.Handle.Length
					}
				}
			}
		}
	}
	return n
}
