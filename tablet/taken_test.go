package tablet

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// takenMetadata makes a change, has another server take the tablet then, and tells of that alone.
type takenMetadata struct {
	Metadata
	on   atomic.Bool
	says error
}

func (m *takenMetadata) Save(ctx context.Context, meta *Meta, gen uint64) (uint64, error) {
	made, err := m.Metadata.Save(ctx, meta, gen)
	if err != nil || !m.on.Swap(false) {
		return made, err
	}
	others := cloneMeta(meta)
	others.Stamped++
	if _, err := m.Metadata.Save(ctx, others, made); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("row of METADATA: %w", m.says)
}

// A change of metadata that came through, of which the server hears only that another has changed the row since, as when it
// was taken for dead meanwhile: the files that it named are there, for who has the tablet now (I1, T6).
func TestFilesOfTakenTabletStay(t *testing.T) {
	for name, says := range map[string]error{"changed": ErrMetaChanged, "lost": ErrMetaLost} {
		for _, what := range []string{"minor", "major"} {
			t.Run(name+" "+what, func(t *testing.T) {
				s := newFleet(t, Config{}, 1, "f:").servers[0]
				m := &takenMetadata{Metadata: s.cfg.Metadata, says: says}
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
				tab := s.allTablets()[0]
				m.on.Store(true)
				if what == "minor" {
					if err := tab.flush(t.Context()); err == nil {
						t.Fatal("the minor compaction heard of no error")
					}
				} else if err := tab.major(t.Context()); err == nil {
					t.Fatal("the major compaction heard of no error")
				}
				saved, _, err := m.Load(t.Context(), tab.table, tab.end)
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
