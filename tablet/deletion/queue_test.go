package deletion

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
)

// store records what is deleted. Its logs are removed at the attempt with the number removedAt.
type store struct {
	mu        sync.Mutex // guards the fields below
	deleted   []blobfs.ID
	attempts  int
	removedAt int
}

func (s *store) Delete(_ context.Context, id blobfs.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, id)
	return nil
}

func (s *store) RemoveLog(_ context.Context, id blobfs.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attempts++; s.attempts < s.removedAt {
		return errors.New("no answer")
	}
	s.deleted = append(s.deleted, id)
	return nil
}

// done returns the number of attempts to remove a log, and what is deleted.
func (s *store) done() (attempts int, deleted []blobfs.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts, slices.Clone(s.deleted)
}

func newQueue(s *store) *Queue { return New(s, slog.New(slog.DiscardHandler)) }

// TestRunDeletesInOrder: Run returns when the queue is empty, or at once when its context has ended.
func TestRunDeletesInOrder(t *testing.T) {
	s := &store{}
	q := newQueue(s)
	ids := []blobfs.ID{{1}, {2}, {3}}
	for _, id := range ids {
		q.Add(id)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if q.Run(ended); len(s.deleted) != 0 {
		t.Errorf("deleted %v although the context has ended", s.deleted)
	}
	if q.Run(t.Context()); !slices.Equal(s.deleted, ids) {
		t.Errorf("deleted %v, want %v", s.deleted, ids)
	}
}

// TestLogsAreRetried: the loop deletes what is added, and retries a log until it is removed.
func TestLogsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{removedAt: 3}
		q := newQueue(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go q.Loop(ctx)
		q.AddLog(blobfs.ID{1})
		synctest.Wait()
		if n, deleted := s.done(); n != 1 || len(deleted) != 0 {
			t.Errorf("%d attempts, deleted %v", n, deleted)
		}
		for range 2 {
			time.Sleep(retryPause)
			synctest.Wait()
		}
		if n, deleted := s.done(); n != 3 || len(deleted) != 1 {
			t.Errorf("%d attempts, deleted %v", n, deleted)
		}
	})
}

// TestCompactionRunsAgain: a compaction for which the disks are full runs again once files were
// deleted, and fails if there were none.
func TestCompactionRunsAgain(t *testing.T) {
	q := newQueue(&store{})
	runs := 0
	full := func() error {
		if runs++; runs == 1 {
			q.Add(blobfs.ID{1})
		}
		return blobfs.ErrDiskFull
	}
	if err := q.WithDiskSpace(t.Context(), full); !errors.Is(err, blobfs.ErrDiskFull) || runs != 2 {
		t.Errorf("%d runs, %v", runs, err)
	}
	other := errors.New("corrupt")
	if err := q.WithDiskSpace(t.Context(), func() error { q.Add(blobfs.ID{2}); return other }); err != other {
		t.Errorf("another error: %v", err)
	}
}
