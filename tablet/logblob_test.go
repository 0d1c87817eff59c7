package tablet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// TestLogAfterLostAnswer: if the creation of the commit log takes effect but its answer is lost,
// the next load creates another log, and the abandoned one is removed.
func TestLogAfterLostAnswer(t *testing.T) {
	ctx := t.Context()
	f := newFullCluster(t)
	s := f.start(0, Config{LogLater: true})
	lost := make(chan struct{})
	answer := func(ctx context.Context) error {
		close(lost) // one list is saved until the creation is given up
		<-ctx.Done()
		return ctx.Err()
	}
	f.saved.Store(&answer)
	short, cancel := context.WithCancel(ctx)
	go func() { <-lost; cancel() }()
	if err := s.BeginLog(short); !errors.Is(err, context.Canceled) {
		t.Fatalf("begin the log without an answer: %v", err)
	}
	f.saved.Store(nil)
	f.load(s, 0, "m", nil, nil)
	if _, err := applySync(s, "a", table.Set("f", nil, 1, []byte("v"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(ctx, testTable, false); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		ids, err := f.blobs(0).Logs(ctx)
		noError(t, err)
		if len(ids) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server has %d logs, want one", len(ids))
		}
	}
	if _, err := applySync(s, "b", table.Set("f", nil, 1, []byte("v"))); err != nil {
		t.Errorf("write after the abandoned log was removed: %v", err)
	}
}
