package node

import (
	"context"
	"testing"
	"time"
)

// TestSessionLostInTheStart: a node whose session with the lock service ends before its block store is open, as on a
// machine that was paused, begins another and starts all the same.
func TestSessionLostInTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var n *Node
	lost := false
	n, err := prepare(Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20,
		Waiting: func(stage string) {
			if stage != "the block store" || lost {
				return
			}
			lost = true
			if err := n.meta.Current().Close(ctx); err != nil {
				t.Errorf("end the session: %v", err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.run(ctx); err != nil {
		t.Fatalf("start: %v", err)
	}
	defer n.Close(context.Background())
	if !lost || n.meta.Current().Err() != nil {
		t.Errorf("the session was ended: %v; the one that there is: %v", lost, n.meta.Current().Err())
	}
}
