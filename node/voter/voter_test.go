package voter

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
)

// testVoter returns the voter of a fresh node, and the number of times that it published a change.
func testVoter(t *testing.T) (v *Voter, published *int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := identity.Inspect([]string{t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := folders.Begin(); err != nil {
		t.Fatal(err)
	}
	self, published := &identity.Self{Address: l.Addr().String()}, new(int)
	self.Open(folders)
	v = New(Config{
		Ctx: t.Context(), Log: slog.New(slog.DiscardHandler), Claims: l, Self: self,
		AddressOf: func(string) (string, bool) { return "", false }, Addresses: func() []string { return nil }, Members: func() []gossip.Member { return nil },
		Dial:    func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") },
		QuotaOf: func(string) raftmeta.Quota { return raftmeta.Quota{} }, Reserve: func() int64 { return 0 }, CheckSpace: func() error { return nil },
		TakeAuthority: func(context.Context, string) error { return nil }, Publish: func() { *published++ }, Enter: func(string) {},
		Fail: func(err error) { t.Errorf("the node fails: %v", err) },
	})
	t.Cleanup(func() {
		l.Close()
		if err := v.Stop(); err != nil {
			t.Error(err)
		}
	})
	return v, published
}

// A founding node opens its group alone and leads it, also after a restart of the group.
func TestFounding(t *testing.T) {
	v, _ := testVoter(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, changed := v.Votes()
	if err := v.Self.Found("c1"); err != nil {
		t.Fatal(err)
	}
	for _, founding := range []bool{true, false} {
		if got, err := v.Start(ctx); got != founding || err != nil {
			t.Fatalf("founding %t, %v", got, err)
		}
		select {
		case <-changed:
		default:
			t.Error("no change when the group was opened")
		}
		votes, closed := v.Votes()
		if leads, _ := v.ForMaster().Leads(); !votes || !leads || !v.VotesToo(v.Self.ID()) || v.VotesToo("n9") {
			t.Errorf("votes %t, leads %t", votes, leads)
		}
		if all := v.ForMaster().Voters(); len(all) != 1 || all[0].ID != v.Self.ID() || all[0].Staged {
			t.Errorf("voters %+v", all)
		}
		v.mu.unheard["n9"] = time.Now()
		if v.ForMaster().Voters(); len(v.mu.unheard) != 0 {
			t.Error("the silence of a server that is not in the group is remembered")
		}
		v.TransferLeadership(ctx) // there is no other voter
		if err := v.Stop(); err != nil {
			t.Fatal(err)
		}
		<-closed
		if err := v.Self.Change((*identity.Folders).Founded); err != nil {
			t.Fatal(err)
		}
	}
}

// A member opens no group until the master commands it, in the epoch that it knows, and sets its log aside when it is removed.
func TestBecomesVoter(t *testing.T) {
	v, published := testVoter(t)
	ctx := t.Context()
	if err := v.Self.Join("c1"); err != nil {
		t.Fatal(err)
	}
	if founding, err := v.Start(ctx); founding || err != nil {
		t.Fatalf("founding %t, %v", founding, err)
	}
	if err := v.ForMaster().Promote(ctx, "n9"); !errors.Is(err, errNoVoter) || v.ForMaster().Voters() != nil {
		t.Errorf("without a vote: %v", err)
	}
	invitation := master.Invitation{Index: 9, Term: 2}
	full := errors.New("disk is full")
	v.CheckSpace = func() error { return full }
	if err := v.StartVoting(ctx, command.Header{Master: "n9"}, invitation); !errors.Is(err, full) {
		t.Errorf("on a full disk: %v", err)
	}
	v.CheckSpace = func() error { return nil }
	var refused *rpc.Error
	if err := v.StartVoting(ctx, command.Header{Master: "n9", RaftEpoch: 7}, invitation); !errors.As(err, &refused) || !refused.Retryable {
		t.Errorf("in another epoch: %v", err)
	}
	late, cancel := context.WithCancel(ctx)
	cancel()
	if err := v.StartVoting(late, command.Header{Master: "n9"}, invitation); !errors.Is(err, context.Canceled) {
		t.Errorf("after its deadline: %v", err)
	}
	for range 2 { // the second changes nothing
		if err := v.StartVoting(ctx, command.Header{Master: "n9"}, invitation); err != nil {
			t.Fatal(err)
		}
	}
	if votes, _ := v.Votes(); !votes || *published != 1 {
		t.Errorf("votes %t, published %d times", votes, *published)
	}
	// It is started again while it waits, and without the master's next invitation.
	if err := v.Stop(); err != nil {
		t.Fatal(err)
	}
	if founding, err := v.Start(ctx); founding || err != nil {
		t.Fatalf("founding %t, %v", founding, err)
	}
	invitation.Index++
	if err := v.StartVoting(ctx, command.Header{Master: "n9"}, invitation); err != nil {
		t.Error(err)
	}
	if err := v.StartVoting(ctx, command.Header{Master: "n9", RaftEpoch: 7}, invitation); !errors.As(err, &refused) || !refused.Retryable {
		t.Errorf("to a group of another epoch: %v", err)
	}
	if err := v.stopVoting(); err != nil {
		t.Fatal(err)
	}
	v.Self.View(func(f *identity.Folders) {
		if votes, _ := v.Votes(); votes || f.Voter() || *published != 2 {
			t.Errorf("votes %t, voter %t, published %d times", votes, f.Voter(), *published)
		}
	})
}

// A voter that was left out of a recovery may reach the recovered group before it notices that its own has no leader. It then gives up
// its log: with the log open, it would take part in the recovered group's elections with the old log.
func TestLeftBehindByRecovery(t *testing.T) {
	v, _ := testVoter(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := v.Self.Join("c1"); err != nil {
		t.Fatal(err)
	}
	i := master.Invitation{Index: 1000, Term: 9} // the node waits for a log that never comes
	if err := v.StartVoting(ctx, command.Header{Master: "n1", RaftEpoch: v.Self.RaftEpoch()}, i); err != nil {
		t.Fatal(err)
	}
	if votes, _ := v.Votes(); !votes {
		t.Fatal("no group before")
	}
	if err := v.SettleEpoch(ctx, namespace.ClusterFile{Name: "c1", Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	if votes, _ := v.Votes(); votes || v.Self.RaftEpoch() != 2 {
		t.Errorf("votes %t, epoch %d", votes, v.Self.RaftEpoch())
	}
	var stays bool
	v.Self.View(func(f *identity.Folders) { stays = f.Voter() })
	if stays {
		t.Error("the node would vote after a restart")
	}
}

// While another node has a later epoch, because it is about to replace the lock service with its recovered log, a starting voter of the old
// group does not open its log.
func TestStartDuringRecovery(t *testing.T) {
	v, _ := testVoter(t)
	v.DialAny = func(context.Context, string) (net.Conn, error) { return nil, errors.New("no network") }
	if err := v.Self.Join("c1"); err != nil {
		t.Fatal(err)
	}
	if err := v.StartVoting(t.Context(), command.Header{Master: "n1"}, master.Invitation{Index: 9, Term: 2}); err != nil {
		t.Fatal(err)
	}
	if err := v.Stop(); err != nil {
		t.Fatal(err)
	}
	recovered := gossip.Member{Meta: gossip.Meta{ID: "n2", RPC: "127.0.0.1:1", RaftEpoch: 1}, State: gossip.Alive}
	v.Members = func() []gossip.Member { return []gossip.Member{recovered} }
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := v.Start(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during a recovery: %v", err)
	}
	if votes, _ := v.Votes(); votes {
		t.Error("the old log is open during a recovery")
	}
	recovered.State = gossip.Dead
	if _, err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if votes, _ := v.Votes(); !votes {
		t.Error("the log is not opened when the other node is gone")
	}
}
