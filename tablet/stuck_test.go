package tablet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// stuckMetadata saves nothing of one tablet.
type stuckMetadata struct {
	Metadata
	id    uint64
	tries atomic.Int64
}

func (m *stuckMetadata) Save(ctx context.Context, meta *Meta, gen uint64) (uint64, error) {
	if meta.ID == m.id {
		m.tries.Add(1)
		return 0, errors.Join(ErrMetaChanged, errors.New("its row is not what it should be"))
	}
	return m.Metadata.Save(ctx, meta, gen)
}

// TestOneTabletIsStuck: a tablet whose memtables cannot be written out does not keep those of others from it.
func TestOneTabletIsStuck(t *testing.T) {
	s := newFleet(t, Config{}, 1, "f:").servers[0]
	if _, err := s.Split(context.Background(), 1, []byte("row012")); err != nil {
		t.Fatal(err)
	}
	all := s.allTablets()
	stuck, well := all[0], all[1]
	m := &stuckMetadata{Metadata: s.cfg.Metadata, id: stuck.id}
	s.cfg.Metadata = m
	freeze := func(x *Tablet) {
		t.Helper()
		for _, row := range []string{"row001", "row019"} {
			if _, err := applySync(s.Server, row, setCell(row)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.commits.Barrier(x.freeze); err != nil {
			t.Fatal(err)
		}
	}
	freeze(stuck)
	for end := time.Now().Add(30 * time.Second); m.tries.Load() < 5; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("tried %d times", m.tries.Load())
		}
	}
	freeze(well)
	start := time.Now()
	for {
		v, _, err := well.acquire()
		if err != nil {
			t.Fatal(err)
		}
		left := len(v.frozen)
		v.release()
		if left == 0 {
			break
		}
		if time.Since(start) > 30*time.Second {
			t.Fatal("the other tablet is not written out")
		}
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(start); m.tries.Load() > 5 {
		t.Errorf("the other tablet was written out only after %v, and %d tries of the one that is stuck", took, m.tries.Load())
	}
}
