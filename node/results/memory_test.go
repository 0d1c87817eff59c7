package results

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
)

// TestResultMemory: results stay within their share, and a caller that waits in vain gets a retry-after.
func TestResultMemory(t *testing.T) {
	t.Parallel()
	m := New(32 << 20)
	crowded := 0
	m.Crowded = func() func() { crowded++; return func() { crowded-- } }
	if got := m.Batch(api.ScanBatchBytesMax); got != 4<<20 {
		t.Errorf("a batch may have %d bytes", got)
	}
	var held []func()
	for range 4 {
		release, err := m.Take(context.Background(), "", m.Batch(api.ScanBatchBytesMax))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
	}
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := m.Take(soon, "", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call whose time is up: %v", err)
	}
	var over *api.OverloadedError
	if _, err := m.Take(context.Background(), "", 1); !errors.As(err, &over) || over.RetryAfter <= 0 {
		t.Errorf("a call that waited in vain: %v", err)
	}
	held[0]()
	release, err := m.Take(context.Background(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if crowded != 0 {
		t.Errorf("%d still say that they wait", crowded)
	}
}
