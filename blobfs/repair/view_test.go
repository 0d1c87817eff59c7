package repair

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/vfs"
)

type pairMembership struct{}

// listMembership is a membership that a test changes.
type listMembership struct {
	pairMembership
	members []members.Member
}

func (f *listMembership) Members() []members.Member { return f.members }

func (pairMembership) Members() []members.Member {
	return []members.Member{{ID: "n1", Alive: true}, {ID: "n2", Alive: true}}
}
func (pairMembership) Changed() <-chan struct{}                       { return nil }
func (pairMembership) Self() string                                   { return "n1" }
func (pairMembership) Peer(context.Context, string) (api.Peer, error) { return nil, local.ErrClosed }

type manualClock struct{ at time.Duration }

func (c *manualClock) Now() time.Duration { return c.at }
func (c *manualClock) Timer(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}

// A node that gossip reports while it is starting, before it answers, is audited again soon.
func TestFailedAuditIsRetriedSoon(t *testing.T) {
	clock := &manualClock{at: time.Minute}
	w := &membershipWatch{membership: pairMembership{}, clock: clock, cfg: Config{Grace: time.Minute, ScanEvery: time.Minute, AuditEvery: time.Hour}, nodes: map[string]*nodeHistory{}}
	w.refresh()
	if due := w.auditsDue(); len(due) != 1 {
		t.Fatalf("a new node is not due: %v", due)
	}
	w.auditFailed("n2")
	if due := w.auditsDue(); len(due) != 0 {
		t.Errorf("due again at once: %v", due)
	}
	clock.at += auditRetry
	if due := w.auditsDue(); len(due) != 1 {
		t.Errorf("not due again after %v", auditRetry)
	}
	w.auditFailed("n2")
	clock.at += auditRetry
	if due := w.auditsDue(); len(due) != 0 {
		t.Errorf("due as soon after the second failure: %v", due)
	}
	clock.at += auditRetry
	if due := w.auditsDue(); len(due) != 1 {
		t.Errorf("not due again after %v", 2*auditRetry)
	}
	w.auditFailed("n2")
	w.retryNow()
	if due := w.auditsDue(); len(due) != 1 {
		t.Errorf("not due although a node answers again")
	}
	w.auditSucceeded("n2")
	w.retryNow()
	clock.at += time.Minute
	if due := w.auditsDue(); len(due) != 0 {
		t.Errorf("due again although it has answered: %v", due)
	}
}

// Reported figures are known only after a complete scan since the membership changed: not as soon
// as it changed, and not as soon as the change was seen.
func TestKnownAfterScan(t *testing.T) {
	list, clock := &listMembership{members: []members.Member{{ID: "n1", Alive: true}}}, &manualClock{at: time.Minute}
	disks, err := local.Open(local.Config{Node: "n1", FS: vfs.NewMem(vfs.MemOptions{}), Folders: []string{"/a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer disks.Close()
	logger, work := slog.New(slog.DiscardHandler), background.New()
	defer work.Stop()
	k := New(Config{}.WithDefaults(), Deps{
		Disks: disks, Peers: members.NewPeers(members.Config{Membership: list, Self: "n1", Clock: clock, Work: work}),
		Corruption: NewCorruption(logger), Clock: clock, Work: work, Logger: logger, Replicas: 3,
	})
	known := func(what string, want bool) {
		t.Helper()
		if got := k.Status().Known; got != want {
			t.Errorf("%s: known %v, want %v", what, got, want)
		}
	}
	known("before the first look", false)
	k.scan(k.watch.view())
	known("after it", true)
	for _, x := range []struct {
		what  string
		after []members.Member
	}{
		{"a node has come", []members.Member{{ID: "n1", Alive: true}, {ID: "n2", Alive: true}}},
		{"one drains", []members.Member{{ID: "n1", Alive: true}, {ID: "n2", Alive: true, Draining: true}}},
		{"it is dead", []members.Member{{ID: "n1", Alive: true}, {ID: "n2", Draining: true}}},
		{"it was removed", []members.Member{{ID: "n1", Alive: true}}},
		{"one has come that is not heard of", []members.Member{{ID: "n1", Alive: true}, {ID: "n3"}}},
		{"it is heard of", []members.Member{{ID: "n1", Alive: true}, {ID: "n3", Alive: true}}},
	} {
		list.members = x.after
		known(x.what, false)
		before := k.watch.view()
		v, viewChanged := k.watch.refresh()
		if !viewChanged {
			t.Errorf("%s: the view did not change", x.what)
		}
		known(x.what+", and was seen", false)
		k.scan(before)
		known(x.what+", and a scan used the previous version", false)
		k.scan(v)
		known(x.what+", and one has looked", true)
	}
	list.members = []members.Member{{ID: "n1", Alive: true, FreeBytes: 5}, {ID: "n3", Alive: true}}
	known("one is fuller", true)
	if _, viewChanged := k.watch.refresh(); viewChanged {
		t.Error("a fuller node changed the view")
	}
	k.watch.unknownNode("n4")
	known("a list names an unknown node", false)
	clock.at += 2 * k.cfg.Grace
	v, viewChanged := k.watch.refresh()
	if !viewChanged {
		t.Error("the end of the grace period did not change the view")
	}
	k.scan(v)
	known("it is waited for no more", true)
}
