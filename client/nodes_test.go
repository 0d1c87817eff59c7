package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/client/api"
)

func TestNodes(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	c := f.open(Config{})
	nodes, err := c.Nodes().List(ctx)
	if err != nil || len(nodes) != 2 || nodes[0].ID != "n1" || !nodes[0].Self || nodes[1].State != api.NodeDead {
		t.Fatalf("nodes: %+v, %v", nodes, err)
	}
	check(t, c.Nodes().Drain(ctx, "two"))
	if nodes, err = c.Nodes().List(ctx); err != nil || !nodes[1].Draining || nodes[0].Draining {
		t.Errorf("drained: %+v, %v", nodes, err)
	}
	check(t, c.Nodes().Undrain(ctx, "n2"))
	if nodes, err = c.Nodes().List(ctx); err != nil || nodes[1].Draining {
		t.Errorf("undrained: %+v, %v", nodes, err)
	}
	if err := c.Nodes().Drain(ctx, "three"); !errors.Is(err, ErrNodeNotFound) {
		t.Errorf("drain of an unknown node: %v", err)
	}
	var used *NodeInUseError
	if err := c.Nodes().Remove(ctx, "n1", false); !errors.As(err, &used) || used.Node != "n1" || used.Reason == "" {
		t.Errorf("removal of a node that is alive: %v", err)
	}
	check(t, c.Nodes().Remove(ctx, "n2", false))
	if err := c.Nodes().Remove(ctx, "n2", false); !errors.Is(err, ErrNodeNotFound) {
		t.Errorf("removed again: %v", err)
	}
	check(t, c.Nodes().Remove(ctx, "n1", true))
	if nodes, err = c.Nodes().List(ctx); err != nil || len(nodes) != 0 {
		t.Errorf("after all: %+v, %v", nodes, err)
	}
	if s, err := c.Nodes().RaftStatus(ctx); err != nil || s.Leader != "n1" || len(s.Servers) != 1 {
		t.Errorf("raft status: %+v, %v", s, err)
	}
}

// After a lost connection the outcome of a removal is unknown; a drain is simply repeated.
func TestNodeChangesWithoutAnAnswer(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	var once atomic.Bool
	f.on(func(when moment, method string) error {
		if when == after && method != api.MethodListNodes && once.CompareAndSwap(false, true) {
			f.cut()
		}
		return nil
	})
	check(t, c.Nodes().Drain(t.Context(), "n2"))
	if n := f.count(f.executed, api.MethodDrainNode); n != 2 {
		t.Errorf("drain was executed %d times, want 2", n)
	}
	once.Store(false)
	if err := c.Nodes().Remove(context.Background(), "n2", false); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("removal whose answer was lost: %v", err)
	}
	if n := f.count(f.executed, api.MethodRemoveNode); n != 1 {
		t.Errorf("removal was executed %d times, want 1", n)
	}
}
