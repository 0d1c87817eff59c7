package tablet

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestDropWhileSplitOrMerged: a table that is dropped during a split or merge of its tablets leaves
// nothing that is served, kept in memory, or written out needlessly.
func TestDropWhileSplitOrMerged(t *testing.T) {
	ctx := context.Background()
	for name, change := range map[string]func(s *Server) error{
		"split": func(s *Server) error { _, _, err := s.Split(ctx, lastTablet, []byte("row012")); return err },
		"merge": func(s *Server) error {
			lower := s.served.all()[0].ref()
			return s.Merge(ctx, lower, lastTablet)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCluster(t, Config{}, 1, "f:")
			s := f.servers[0]
			fillRows(t, s.Server, 20)
			if name == "merge" {
				if _, _, err := s.Split(ctx, lastTablet, []byte("row012")); err != nil {
					t.Fatal(err)
				}
				fillRows(t, s.Server, 20)
			}
			if err := s.Compact(ctx, testTable, false); err != nil {
				t.Fatal(err)
			}
			dropped := make(chan error, 1)
			left := 0 // changes before the one in which the table is dropped
			if name == "merge" {
				left = 1
			}
			f.meta.setFaults(func() (error, error) {
				if left--; left == -1 {
					go func() { dropped <- s.DropTable(testTable) }()
					for (*s.served.tables.Load())[testTable] != nil {
						time.Sleep(time.Millisecond)
					}
				}
				return nil, nil
			}, nil)
			if err := change(s.Server); err != nil {
				t.Log(err)
			}
			if left >= 0 {
				t.Fatalf("%d changes of METADATA were not made", left+1)
			}
			if err := <-dropped; err != nil {
				t.Fatal(err)
			}
			if n := len(s.served.all()); n != 0 {
				t.Errorf("%d tablets are served", n)
			}
			for end := time.Now().Add(5 * time.Second); s.writeMemory.Memtables() != 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d bytes of memtables are left behind", s.writeMemory.Memtables())
				}
			}
		})
	}
}

// fakeVersion is a Version that the test ends.
type fakeVersion struct {
	generation uint64
	over       atomic.Bool
}

func (v *fakeVersion) Current() bool      { return !v.over.Load() }
func (v *fakeVersion) Generation() uint64 { return v.generation }

// TestTableOfSameName: tablets of two tables with the same name are not served side by side: those
// of the dropped table are discarded, or rejected.
func TestTableOfSameName(t *testing.T) {
	ctx := context.Background()
	f := newCluster(t, Config{}, 1, "f:")
	s := f.servers[0]
	fillRows(t, s.Server, 3)
	again := *f.schema
	again.ID = 77
	load := Load{Meta: &Meta{ID: 900, Table: 77, LastMajor: time.Now()}, Schema: &again, Version: &fakeVersion{generation: 2}}
	if err := s.Load(ctx, load); err != nil || !s.Served().Has(Ref{77, ""}) {
		t.Errorf("load of the table that has the name now: %v", err)
	}
	if s.Served().Has(lastTablet) {
		t.Error("the tablet of the dropped table is served still")
	}
	if n := s.writeMemory.Memtables(); n != 0 || s.Discarding() != 0 {
		t.Errorf("%d bytes of the dropped table's memtables are left, and %d of its tablets are not released", n, s.Discarding())
	}
	third := *f.schema
	third.ID = 55
	late := Load{Meta: &Meta{ID: 901, Table: 55, LastMajor: time.Now()}, Schema: &third, Version: &fakeVersion{generation: 1}}
	if err := s.Load(ctx, late); !errors.Is(err, api.ErrNoTable) || s.Served().Has(Ref{55, ""}) || !s.Served().Has(Ref{77, ""}) {
		t.Errorf("load of a tablet of a dropped table: %v", err)
	}
}

// TestSplitRowBytes: no tablet ends at a row that Metadata cannot store as an end, however the row
// is chosen.
func TestSplitRowBytes(t *testing.T) {
	ctx := context.Background()
	f := newCluster(t, Config{SplitRowBytes: 10}, 1, "f:")
	s := f.servers[0]
	long := string(bytes.Repeat([]byte("x"), 11))
	for _, row := range []string{long + "1", long + "2", long + "3"} {
		if _, err := applySync(s.Server, row, setCell("v")); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Split(ctx, lastTablet, []byte(long)); !errors.Is(err, table.ErrLimit) {
		t.Errorf("split at %d bytes: %v", len(long), err)
	}
	if _, _, err := s.Split(ctx, lastTablet, nil); !errors.Is(err, ErrNoSplitRow) {
		t.Errorf("split where all rows are long: %v", err)
	}
	if _, _, err := s.Split(ctx, lastTablet, []byte(long[:10])); err != nil {
		t.Errorf("split at 10 bytes: %v", err)
	}
}
