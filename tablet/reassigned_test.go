package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
)

// reassignedMetadata makes a change, then assigns the tablet to another server, and reports only
// the latter.
type reassignedMetadata struct {
	Metadata
	on      atomic.Bool
	unsent  bool
	reports error
}

func (m *reassignedMetadata) Save(ctx context.Context, meta *Meta) error {
	if m.unsent && m.on.Swap(false) {
		return fmt.Errorf("row of METADATA: %w: %w", m.reports, ErrMetaUnsent)
	}
	if err := m.Metadata.Save(ctx, meta); err != nil || !m.on.Swap(false) {
		return err
	}
	others := cloneMeta(meta)
	others.Stamped++
	if err := m.Metadata.Save(ctx, others); err != nil {
		return err
	}
	return fmt.Errorf("row of METADATA: %w", m.reports)
}

// A metadata change took effect, but the server learns only that another writer has changed the row
// since, for example because it was considered dead. The files that the change named stay, for the
// tablet's next server (I1, T6).
func TestFilesOfReassignedTabletStay(t *testing.T) {
	for name, reports := range map[string]error{"changed": ErrMetaChanged, "lost": ErrMetaLost} {
		for _, what := range []string{"minor", "major"} {
			t.Run(name+" "+what, func(t *testing.T) {
				s := newCluster(t, Config{}, 1, "f:").servers[0]
				m := &reassignedMetadata{Metadata: s.cfg.Metadata, reports: reports}
				s.cfg.Metadata = m
				for i := range 3 {
					if _, err := applySync(s.Server, fmt.Sprintf("row%03d", i), setCell("v")); err != nil {
						t.Fatal(err)
					}
					if what == "major" {
						if err := s.Compact(t.Context(), "t", false); err != nil {
							t.Fatal(err)
						}
					}
				}
				tab := s.served.all()[0]
				if what == "minor" {
					tab.minor.mu.Lock() // minorLoop must not get the error
					defer tab.minor.mu.Unlock()
					if err := s.commitLog.commits.Between(tab.writer.freeze); err != nil {
						t.Fatal(err)
					}
				}
				m.on.Store(true)
				if what == "minor" {
					if err := tab.minor.runLocked(t.Context()); err == nil {
						t.Fatal("the minor compaction did not fail")
					}
				} else if err := tab.merge.major(t.Context()); err == nil {
					t.Fatal("the major compaction did not fail")
				}
				saved, err := m.Load(t.Context(), tab.table, tab.end)
				if err != nil {
					t.Fatal(err)
				}
				files := 0
				for _, g := range saved.Groups {
					for _, f := range g.Files {
						files++
						r, err := s.cfg.Blobs.OpenBlob(t.Context(), f.Handle)
						if err != nil {
							t.Errorf("metadata names %s: %v", f.Handle.ID, err)
							continue
						}
						r.Close()
					}
				}
				if files == 0 {
					t.Error("metadata names no file")
				}
			})
		}
	}
}

// A metadata change that was not sent, for example without a lease, leaves no file behind: such
// attempts are repeated for as long as that lasts.
func TestFilesOfUnsentChangeGo(t *testing.T) {
	f := newCluster(t, Config{}, 1, "f:")
	s := f.servers[0]
	m := &reassignedMetadata{Metadata: s.cfg.Metadata, reports: ErrMetaChanged, unsent: true}
	s.cfg.Metadata = m
	blobs := func() (n int) {
		s.deletions.Run(t.Context())
		for _, dir := range []string{"/d0/blobs", "/d1/blobs"} {
			names, err := f.fs.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			n += len(names)
		}
		return n
	}
	if _, err := applySync(s.Server, "row", setCell("v")); err != nil {
		t.Fatal(err)
	}
	before := blobs()
	tab := s.served.all()[0]
	tab.minor.mu.Lock() // minorLoop must not get the error
	if err := s.commitLog.commits.Between(tab.writer.freeze); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.on.Store(true)
		if err := tab.minor.runLocked(t.Context()); !errors.Is(err, ErrMetaUnsent) {
			t.Fatalf("the minor compaction failed with %v", err)
		}
	}
	if n := blobs(); n != before {
		t.Errorf("%d blobs before three tries, %d after them", before, n)
	}
	err := tab.minor.runLocked(t.Context())
	tab.minor.mu.Unlock()
	if err != nil || blobs() != before+1 {
		t.Errorf("when it is tried: %v, %d blobs more", err, blobs()-before)
	}
}
