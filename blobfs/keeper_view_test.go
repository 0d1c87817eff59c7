package blobfs

import (
	"context"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/api"
)

type pairFleet struct{}

func (pairFleet) Members() []Member {
	return []Member{{ID: "n1", Alive: true}, {ID: "n2", Alive: true}}
}
func (pairFleet) Changed() <-chan struct{}                       { return nil }
func (pairFleet) Self() string                                   { return "n1" }
func (pairFleet) Peer(context.Context, string) (api.Peer, error) { return nil, ErrClosed }

type handClock struct{ at time.Duration }

func (c *handClock) Now() time.Duration { return c.at }
func (c *handClock) Timer(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}

// A node that gossip hears of and that does not answer yet, since it starts, is asked again soon whether
// it has what it should.
func TestAuditIsTriedAgainSoon(t *testing.T) {
	clock := &handClock{at: time.Minute}
	w := &watch{fleet: pairFleet{}, clock: clock, cfg: KeepConfig{Grace: time.Minute, ScanEvery: time.Minute, AuditEvery: time.Hour}, nodes: map[string]*sighting{}}
	w.refresh()
	if due := w.due(); len(due) != 1 {
		t.Fatalf("a node that has come is not to be asked: %v", due)
	}
	w.undone("n2")
	if due := w.due(); len(due) != 0 {
		t.Errorf("asked again at once: %v", due)
	}
	clock.at += auditRetry
	if due := w.due(); len(due) != 1 {
		t.Errorf("not asked again after %v", auditRetry)
	}
	w.undone("n2")
	clock.at += auditRetry
	if due := w.due(); len(due) != 0 {
		t.Errorf("asked as soon after the second failure: %v", due)
	}
	clock.at += auditRetry
	if due := w.due(); len(due) != 1 {
		t.Errorf("not asked again after %v", 2*auditRetry)
	}
	w.undone("n2")
	w.hurry()
	if due := w.due(); len(due) != 1 {
		t.Errorf("not asked though a node answers again")
	}
	w.audited("n2")
	w.hurry()
	clock.at += time.Minute
	if due := w.due(); len(due) != 0 {
		t.Errorf("asked again though it has answered: %v", due)
	}
}
