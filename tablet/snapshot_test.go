package tablet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// filesOf returns the files of a tablet's metadata.
func filesOf(m *Meta) (all []FileMeta) {
	for _, g := range m.Groups {
		all = append(all, g.Files...)
	}
	return all
}

// restored serves the rows of a snapshot as another table, and returns what it has.
func (e *env) restored(table uint64, name string, parts ...*Meta) map[string][]string {
	e.t.Helper()
	s := *e.schema
	s.Name, s.ID = name, table
	for i, m := range parts {
		copied := cloneMeta(m)
		copied.ID, copied.Table = 1000*table+uint64(i), table
		e.meta.create(copied)
		if err := e.Load(context.Background(), Load{Meta: copied, Schema: &s}); err != nil {
			e.t.Fatal(err)
		}
	}
	return e.rowsOf(name)
}

func (e *env) rowsOf(name string) map[string][]string {
	e.t.Helper()
	rows := map[string][]string{}
	for next := []byte(nil); ; {
		var err error
		if next, err = e.Scan(context.Background(), name, Range{Start: next}, nil, func(row []byte, cells []table.Cell) error {
			rows[string(row)] = cellStrings(cells)
			return nil
		}); err != nil {
			e.t.Fatal(err)
		}
		if next == nil {
			return rows
		}
	}
}

// TestSnapshot (I6): a snapshot has exactly what was acknowledged before it. Its files stay through all that is done to the table
// later: writes, compactions of all kinds, splits, a crash, a drop. A second snapshot of an unchanged tablet changes nothing.
func TestSnapshot(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	e := newEnv(t, Config{}, "f:versions=3", "g:group=second")
	write := func(n int) {
		for range n {
			row := fmt.Sprintf("row%02d", r.IntN(40))
			switch r.IntN(8) {
			case 0:
				e.mustApply(row, table.Mutation{Op: table.OpDeleteRow})
			case 1:
				e.mustApply(row, table.Mutation{Op: table.OpDeleteFamily, Family: "g"})
			default:
				e.mustApply(row, table.Mutation{Op: table.OpSet, Family: []string{"f", "g"}[r.IntN(2)], Qualifier: []byte("q"), Value: fmt.Appendf(nil, "%d", r.Int()), Timestamp: table.ServerTimestamp})
			}
		}
	}
	type taken struct {
		parts []*Meta
		want  map[string][]string
	}
	var all []taken
	for i := range 6 {
		write(60)
		if i%2 == 1 {
			if err := e.Compact(ctx, testTable, i == 3); err != nil {
				t.Fatal(err)
			}
		}
		if i == 4 {
			if _, _, err := e.Split(ctx, lastTablet, []byte("row20")); err != nil {
				t.Fatal(err)
			}
		}
		x := taken{want: e.rowsOf(testTable)}
		for _, l := range e.Served().Loaded() {
			m, err := e.Snapshot(ctx, l.Ref())
			if err != nil {
				t.Fatal(err)
			}
			again, err := e.Snapshot(ctx, l.Ref())
			if err != nil || string(EncodeMeta(again)) != string(EncodeMeta(m)) {
				t.Errorf("a second snapshot differs: %v", err)
			}
			x.parts = append(x.parts, m)
		}
		all = append(all, x)
	}
	write(50)
	if err := e.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	e.crash()
	e.open()
	write(50)
	if err := e.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	if err := e.DropTable(testTable); err != nil {
		t.Fatal(err)
	}
	e.deletions.Run(ctx)
	for i, x := range all {
		for _, m := range x.parts {
			for _, f := range filesOf(m) {
				if !f.Shared {
					t.Errorf("snapshot %d: file %s is not marked as shared", i, f.Handle.ID)
				}
			}
		}
		if got := e.restored(uint64(100+i), fmt.Sprint("copy", i), x.parts...); !maps.EqualFunc(got, x.want, slices.Equal) {
			t.Errorf("snapshot %d has\n%v, want\n%v", i, got, x.want)
		}
	}
}

// TestClip: the parts of a snapshot have its rows, each one once.
func TestClip(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	for i := range 20 {
		e.mustApply(fmt.Sprintf("row%02d", i), setCell("v"))
		if i%7 == 0 {
			if err := e.Served().find(lastTablet).flush(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := e.rowsOf(testTable)
	m, err := e.Snapshot(context.Background(), lastTablet)
	if err != nil {
		t.Fatal(err)
	}
	var parts []*Meta
	cuts := []string{"", "row00", "row05", "row05x", "row19", ""}
	for i := range len(cuts) - 1 {
		part := cloneMeta(m)
		part.Clip([]byte(cuts[i]), []byte(cuts[i+1]))
		if string(part.Start) != cuts[i] || string(part.End) != cuts[i+1] {
			t.Errorf("part %d has the rows from %q to %q", i, part.Start, part.End)
		}
		parts = append(parts, part)
	}
	if got := e.restored(7, "copy", parts...); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("restored %v, want %v", got, want)
	}
	if len(filesOf(m)) < 3 || len(filesOf(parts[3])) == 0 {
		t.Errorf("%d files", len(filesOf(m)))
	}
}

// TestSnapshotDuringCompaction (I6): a compaction that has read the files before a snapshot and replaces them after it does not delete
// them. Neither does one whose change of the metadata comes between.
func TestSnapshotDuringCompaction(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	for i := range 4 {
		e.mustApply(fmt.Sprint("row", i), setCell("v"))
		if err := e.Served().find(lastTablet).flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	want := e.rowsOf(testTable)
	tab := e.Served().find(lastTablet)
	v, err := tab.views.acquireFiles() // as a compaction does
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.Snapshot(ctx, lastTablet)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Compact(ctx, testTable, true); err != nil {
		t.Fatal(err)
	}
	v.release()
	e.deletions.Run(ctx)
	if len(filesOf(m)) != 4 {
		t.Errorf("the snapshot has %d files", len(filesOf(m)))
	}
	if got := e.restored(7, "copy", m); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("restored %v, want %v", got, want)
	}
}

// TestSnapshotWithoutLease: a server without a lease takes no snapshot, since another one may have accepted writes. A snapshot whose
// change of the metadata fails is none.
func TestSnapshotWithoutLease(t *testing.T) {
	ctx := context.Background()
	var lease error
	e := newEnv(t, Config{Serving: func() error { return lease }}, "f")
	e.mustApply("row", setCell("v"))
	if _, err := e.Snapshot(ctx, lastTablet); err != nil {
		t.Fatal(err)
	}
	lease = api.ErrUnavailable
	if _, err := e.Snapshot(ctx, lastTablet); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("without a lease: %v", err)
	}
	lease = nil
	e.mustApply("row", setCell("w"))
	if err := e.Served().find(lastTablet).flush(ctx); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	e.meta.setFaults(func() (error, error) { return broken, nil }, nil)
	if m, err := e.Snapshot(ctx, lastTablet); !errors.Is(err, broken) {
		t.Errorf("when METADATA cannot be changed: %v, %v", m, err)
	}
	e.meta.setFaults(nil, nil)
	if _, err := e.Snapshot(ctx, Ref{Table: 9}); !errors.Is(err, api.ErrNotServing) {
		t.Errorf("of a tablet that is not served: %v", err)
	}
	if err := e.DropTable(testTable); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Snapshot(ctx, lastTablet); !errors.Is(err, api.ErrNotServing) {
		t.Errorf("of a dropped table: %v", err)
	}
}

// TestFilesAddedInAnyOrder (T5): files that are added to metadata out of order, as a restore to a time does part by part of a tablet that was split, keep
// deleted rows deleted, whatever compactions, splits and merges follow.
func TestFilesAddedInAnyOrder(t *testing.T) {
	ctx := t.Context()
	pick := [2]int{}
	cfg := Config{pick: func(sizes []int64, _ int) (int, int) {
		if from, to := pick[0], pick[1]; to <= len(sizes) && from < to {
			pick = [2]int{}
			return from, to
		}
		return 0, 0
	}}
	e := newEnv(t, cfg, "f:")
	flush := func() {
		t.Helper()
		if err := e.Compact(ctx, testTable, false); err != nil {
			t.Fatal(err)
		}
	}
	e.mustApply("z", setCell("0")) // the upper part is changed first
	flush()
	e.mustApply("a", setCell("secret"))
	e.mustApply("b", setCell("1"))
	flush()
	e.mustApply("a", table.DeleteRow())
	e.mustApply("b", setCell("2"))
	flush()
	m, err := e.Snapshot(ctx, lastTablet)
	if err != nil {
		t.Fatal(err)
	}
	low, up := cloneMeta(m), cloneMeta(m)
	low.Clip(nil, []byte("m"))
	up.Clip([]byte("m"), nil)
	all := m.Groups[0].Files
	restored := cloneMeta(m)
	restored.Groups = []GroupMeta{{Name: m.Groups[0].Name}}
	for _, f := range []FileMeta{all[1], all[2], all[0]} { // the lower part's files, then the upper part's
		restored.AddFile(m.Groups[0].Name, &f)
	}
	s := *e.schema
	s.Name, s.ID = "restored", 7
	restored.ID, restored.Table = 7000, 7
	e.meta.create(restored)
	if err := e.Load(ctx, Load{Meta: restored, Schema: &s}); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(ctx, storage.OnStore(e.store), []*Meta{restored}, func(file string, _ int64, err error) { t.Errorf("check reports %s: %v", file, err) }); err != nil {
		t.Fatal(err)
	}
	if rows := e.rowsOf("restored"); rows["a"] != nil {
		t.Fatalf("restored %q", rows)
	}
	merge := func(from, to int) {
		t.Helper()
		pick = [2]int{from, to}
		if err := e.Compact(ctx, "restored", false); err != nil {
			t.Fatal(err)
		}
	}
	merge(1, 3) // the newer file of the lower part, and that of the upper one
	if _, _, err := e.Split(ctx, Ref{7, ""}, []byte("m")); err != nil {
		t.Fatal(err)
	}
	if err := e.Merge(ctx, Ref{7, "m"}, Ref{7, ""}); err != nil {
		t.Fatal(err)
	}
	for _, f := range filesOf(e.Served().find(Ref{7, ""}).meta.current) {
		t.Logf("file %d to %d, rows %q to %q", f.MinSeq, f.MaxSeq, f.Start, f.End)
	}
	merge(0, 2)
	if rows := e.rowsOf("restored"); rows["a"] != nil || !slices.Equal(rows["z"], e.read("z", nil)) {
		t.Errorf("after compactions, the deleted row is there again: %q", rows)
	}
}
