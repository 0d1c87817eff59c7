package tablet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// stuckMetadata rejects changes of one tablet.
type stuckMetadata struct {
	Metadata
	id    uint64
	tries atomic.Int64
}

func (m *stuckMetadata) Save(ctx context.Context, meta *Meta) error {
	if meta.ID == m.id {
		m.tries.Add(1)
		return errors.Join(ErrMetaChanged, errors.New("its row is not what it should be"))
	}
	return m.Metadata.Save(ctx, meta)
}

// TestNothingIsLeftToFreeze: the log is too long because of a memtable that another goroutine writes out.
// The loop then waits, since there is nothing that it could freeze.
func TestNothingIsLeftToFreeze(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	x := s.served.all()[0]
	if _, err := applySync(s.Server, "row001", setCell("row001")); err != nil {
		t.Fatal(err)
	}
	err := s.commitLog.commits.Between(func() {
		queued := x.writer.onFrozen
		defer func() { x.writer.onFrozen = queued }()
		x.writer.onFrozen = func() {}
		x.writer.freeze()
	})
	if err != nil {
		t.Fatal(err)
	}
	l := *s.minors.cfg
	l.LogBytesMax = 0
	loop := &minorLoop{cfg: &l, served: s.minors.served, memory: s.minors.memory, commitLog: s.minors.commitLog}
	if s.commitLog.pending() == 0 {
		t.Fatal("the log is not needed")
	}
	if loop.relieve() {
		t.Error("nothing is frozen, and the loop tries again at once")
	}
}

// TestOneTabletIsStuck: a tablet whose memtables cannot be written out does not block those of
// others.
func TestOneTabletIsStuck(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	if _, _, err := s.Split(context.Background(), lastTablet, []byte("row012")); err != nil {
		t.Fatal(err)
	}
	all := s.served.all()
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
		if err := s.commitLog.commits.Between(x.writer.freeze); err != nil {
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
		v, _, err := well.views.acquire()
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

// hungMetadata blocks saves and splits of one tablet until it is released.
type hungMetadata struct {
	Metadata
	id      uint64
	called  chan struct{} // holds a value after a call about the tablet
	release chan struct{}
}

func hangMetadata(t *testing.T, s *clusterServer, id uint64) *hungMetadata {
	m := &hungMetadata{Metadata: s.cfg.Metadata, id: id, called: make(chan struct{}, 1), release: make(chan struct{})}
	s.cfg.Metadata = m
	t.Cleanup(m.end)
	return m
}

func (m *hungMetadata) end() {
	select {
	case <-m.release:
	default:
		close(m.release)
	}
}

func (m *hungMetadata) wait(id uint64) {
	if id != m.id {
		return
	}
	select {
	case m.called <- struct{}{}:
	default:
	}
	<-m.release
}

func (m *hungMetadata) Save(ctx context.Context, meta *Meta) error {
	m.wait(meta.ID)
	return m.Metadata.Save(ctx, meta)
}

func (m *hungMetadata) Split(ctx context.Context, lower, upper *Meta) error {
	m.wait(upper.ID)
	return m.Metadata.Split(ctx, lower, upper)
}

// within waits for a condition.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func filesAndFrozen(t *testing.T, x *Tablet) (files, frozen int) {
	t.Helper()
	v, _, err := x.views.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer v.release()
	for i := range v.groups {
		files += len(v.groups[i].files)
	}
	return files, len(v.frozen)
}

// TestMetadataOfOneTabletHangs: while a metadata change of one tablet has no known outcome, be it a
// split or that of a compaction, the server's other tablets have their minor and merging
// compactions.
func TestMetadataOfOneTabletHangs(t *testing.T) {
	for _, what := range []string{"split", "minor compaction", "merging compaction", "major compaction"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newCluster(t, Config{FilesMerge: 4}, 1, "f:").servers[0]
			if _, _, err := s.Split(t.Context(), lastTablet, []byte("row012")); err != nil {
				t.Fatal(err)
			}
			all := s.served.all()
			stuck, well := all[0], all[1]
			write := func(x *Tablet, row string, flushes int) {
				t.Helper()
				for range flushes {
					if _, err := applySync(s.Server, row, setCell(row)); err != nil {
						t.Fatal(err)
					}
					if err := x.flush(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			freeze := func(x *Tablet, row string) {
				t.Helper()
				if _, err := applySync(s.Server, row, setCell(row)); err != nil {
					t.Fatal(err)
				}
				if err := s.commitLog.commits.Between(x.writer.freeze); err != nil {
					t.Fatal(err)
				}
			}
			if what == "merging compaction" { // it must not end before its metadata hangs
				stuck.merge.mu.Lock()
			}
			write(stuck, "row001", 5)
			write(well, "row019", 5)
			m := hangMetadata(t, s, stuck.id)
			result := make(chan error, 1)
			switch what {
			case "split":
				go func() {
					_, _, err := s.Split(t.Context(), stuck.ref(), []byte("row000"))
					result <- err
				}()
				<-m.called
				s.merges.queue.Add(stuck)
			case "minor compaction":
				freeze(stuck, "row001")
				<-m.called
			case "major compaction":
				stuck.meta.lastMajor.Store(0)
				freeze(stuck, "row001") // which a major compaction writes out first
				<-m.called
				s.merges.queue.Add(stuck)
			default:
				stuck.merge.mu.Unlock()
				s.merges.queue.Add(stuck)
				<-m.called
			}
			s.merges.queue.Add(well)
			within(t, "the files of the other tablet are merged", func() bool {
				files, _ := filesAndFrozen(t, well)
				return files < 5
			})
			freeze(well, "row019")
			within(t, "the memtable of the other tablet is written out", func() bool {
				_, frozen := filesAndFrozen(t, well)
				return frozen == 0
			})
			m.end()
			if what == "split" {
				if err := <-result; err != nil {
					t.Fatal(err)
				}
				return
			}
			within(t, "the tablet's own compactions end", func() bool {
				files, frozen := filesAndFrozen(t, stuck)
				return frozen == 0 && files < 5
			})
		})
	}
}
