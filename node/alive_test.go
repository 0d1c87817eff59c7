package node

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/node/identity"
)

// A node whose parts answer lives. One that is stuck is named, in time, however often it is
// asked; and a node lives again whose part goes on.
func TestAlive(t *testing.T) {
	var stages []string
	n, err := Start(context.Background(), Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20,
		Waiting: func(what string) { stages = append(stages, what) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	if !slices.Contains(stages, "the block store") {
		t.Errorf("a start was told to wait for %q", stages)
	}
	ask := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		return n.Alive(ctx)
	}
	if err := ask(time.Minute); err != nil {
		t.Fatalf("a node that serves: %v", err)
	}
	n.self.View(func(*identity.Folders) { // the port's answer has the node's id
		for range 3 {
			err := ask(50 * time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), "no answer from the port for clients and nodes") {
				t.Errorf("a stuck port: %v", err)
			}
		}
	})
	deadline := time.Now().Add(time.Minute)
	for err = ask(time.Second); err != nil && time.Now().Before(deadline); err = ask(time.Second) {
	}
	if err != nil {
		t.Fatalf("it goes on: %v", err)
	}
	if n.Health() != "" {
		t.Errorf("health %q", n.Health())
	}
	if err := n.rpc.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := ask(time.Second); err == nil || !strings.Contains(err.Error(), "port") {
		t.Errorf("a node that does not answer at its port: %v", err)
	}
}

// TestLivenessWithoutQuorum: a node that starts, or has no leader, has not failed though it is not ready.
func TestLivenessWithoutQuorum(t *testing.T) {
	n := &Node{life: lifecycle{done: make(chan struct{})}, ctx: t.Context()}
	stage := "other nodes"
	n.life.stage.Store(&stage)
	if err, reason := n.Err(), n.unready(); err != nil || reason != "starting: waiting for other nodes" {
		t.Errorf("a node that waits for others: failed %v, not ready %q", err, reason)
	}
	n.life.fail(io.ErrUnexpectedEOF)
	if err, reason := n.Err(), n.unready(); !errors.Is(err, io.ErrUnexpectedEOF) || reason != io.ErrUnexpectedEOF.Error() {
		t.Errorf("a node that has failed: failed %v, not ready %q", err, reason)
	}
}
