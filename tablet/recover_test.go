package tablet

import (
	"context"
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// T3: recovery finds a record's tablet by table and row: the tablet that the record names may have
// been split since.
func TestRecoveryByRow(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	for _, row := range []string{"a", "m", "m\x00", "z"} {
		e.mustApply(row, table.Set("f", []byte("q"), 1, []byte(row)))
	}
	e.close()
	store, err := openStore(e.fs, e.extent)
	if err != nil {
		t.Fatal(err)
	}
	cfg := e.cfg
	cfg.Blobs, cfg.Metadata, cfg.Now = storage.OnStore(store), e.meta, e.clock.now
	var loads []Load
	for _, m := range []*Meta{{ID: 2, Table: 1, End: []byte("m")}, {ID: 1, Table: 1, Start: []byte("m")}, {ID: 3, Table: 9}} {
		l := Load{Meta: m, Schema: e.schema}
		if m.Table == 9 { // whose tablet holds any row, but not of this table
			l.Schema = table.NewSchema("other", 9)
		}
		loads = append(loads, l)
	}
	e.store = store
	if e.Server, err = Open(context.Background(), cfg, loads); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"a", "m", "m\x00", "z"} {
		if got, want := e.read(row, nil), fmt.Sprintf("[f:q@1=%s]", row); fmt.Sprint(got) != want {
			t.Errorf("row %q: got %v, want %s", row, got, want)
		}
	}
	for i, want := range map[uint64]int{1: 2, 2: 2, 3: 0} {
		for _, tb := range e.served.all() {
			if tb.id != i {
				continue
			}
			v, _, err := tb.views.acquire()
			if err != nil {
				t.Fatal(err)
			}
			n := v.active.Len()
			for _, m := range v.frozen {
				n += m.Len()
			}
			for _, g := range v.groups {
				for _, f := range g.files {
					n += int(f.meta.Entries)
				}
			}
			v.release()
			if n != want {
				t.Errorf("tablet %d has %d entries, want %d", i, n, want)
			}
		}
	}
}
