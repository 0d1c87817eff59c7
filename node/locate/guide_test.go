package locate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// silentMetadata answers nothing.
type silentMetadata struct{ requests int }

func (s *silentMetadata) Locate(ctx context.Context, _ string, _ uint64, _ []byte, _ string) (addr, node string, ok bool) {
	s.requests++
	<-ctx.Done()
	return "", "", false
}

// server has table parts.
type server struct{}

func (server) Locate(_ context.Context, table string, _ uint64, _ []byte, _ string) (addr, node string, ok bool) {
	return "10.0.0.7:7106", "n7", table == "parts"
}

// TestGuideGivesUp: while METADATA is silent, requests for rows of other nodes do not wait for it one after the other. When it answers again,
// they get the right node again.
func TestGuideGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &silentMetadata{}
		g := newGuide(func() Locator { return from })
		start := time.Now()
		for range 1000 {
			if _, _, ok := g.find(t.Context(), "t", 0, nil, "n1"); ok {
				t.Fatal("found")
			}
		}
		if waited := time.Since(start); waited != guideTimeout || from.requests != 1 {
			t.Errorf("1000 requests waited for %v and asked %d times, want %v and once", waited, from.requests, guideTimeout)
		}
		time.Sleep(guidePause)
		g.from = func() Locator { return server{} }
		if addr, node, ok := g.find(t.Context(), "parts", 0, nil, "n1"); addr == "" || node == "" || !ok {
			t.Errorf("later: %q, %q, %v", addr, node, ok)
		}
		for range guideCalls {
			g.busy <- struct{}{}
		}
		if _, _, ok := g.find(t.Context(), "parts", 0, nil, "n1"); ok {
			t.Error("one more than may ask at a time")
		}
	})
}
