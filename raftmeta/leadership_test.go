package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// peer is another voter: bare raft with our state machine, all in memory.
type peer struct {
	raft    *raft.Raft
	machine *machine
	trans   *raft.InmemTransport
}

// addPeer makes a second voter of the group.
func addPeer(t *testing.T, g *Group) *peer {
	t.Helper()
	p := &peer{machine: newMachine(func(err error) { t.Error(err) })}
	_, p.trans = raft.NewInmemTransport("n2")
	conf := g.raftConfig(nil)
	conf.LocalID = "n2"
	store := raft.NewInmemStore()
	var err error
	if p.raft, err = raft.NewRaft(conf, p.machine, store, store, raft.NewInmemSnapshotStore(), p.trans); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.raft.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	})
	p.connect(g)
	if err := g.raft.AddVoter("n2", "n2", 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *peer) connect(g *Group) {
	trans := g.trans.(*raft.InmemTransport)
	trans.Connect("n2", p.trans)
	p.trans.Connect("n1", trans)
}

func (p *peer) disconnect(g *Group) {
	g.trans.(*raft.InmemTransport).Disconnect("n2")
	p.trans.Disconnect("n1")
}

// transfer gives the lead from one server to the other, and waits for it.
func transfer(t *testing.T, from, to *raft.Raft) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); to.State() != raft.Leader; time.Sleep(5 * time.Millisecond) {
		if from.State() == raft.Leader {
			_ = from.LeadershipTransfer().Error()
		}
		if time.Now().After(deadline) {
			t.Fatal("the lead was not handed over")
		}
	}
}

// TestReadsAfterLeadershipMoves hands the lead to and fro, with a write by the
// other leader each time. A read here either fails or sees that write.
func TestReadsAfterLeadershipMoves(t *testing.T) {
	g := openGroup(t, Config{Dir: t.TempDir()})
	mustSet(t, g, "/f", "0", 0)
	p := addPeer(t, g)
	var mu sync.Mutex
	acknowledged := 0 // the newest write that its leader acknowledged
	stop := make(chan struct{})
	var wg sync.WaitGroup
	reads, refused := 0, 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			least := acknowledged
			mu.Unlock()
			f, err := g.Get(context.Background(), "/f")
			if err != nil {
				if !errors.Is(err, ErrNotReady) {
					t.Errorf("get: %v", err)
				}
				refused++
				time.Sleep(50 * time.Microsecond)
				continue
			}
			reads++
			var got int
			_, _ = fmt.Sscan(string(f.Data), &got)
			if got < least {
				t.Errorf("read %d after %d was acknowledged", got, least)
			}
		}
	})
	for i := 1; i <= 6; i++ {
		transfer(t, g.raft, p.raft)
		if _, err := g.Set(context.Background(), "/f", nil, AnyGeneration); !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("set by a follower: %v", err)
		}
		c := command{op: opSet, path: "/f", data: fmt.Append(nil, i), generation: AnyGeneration}
		for p.raft.Apply(c.encode(), 0).Error() != nil {
			time.Sleep(5 * time.Millisecond)
		}
		mu.Lock()
		acknowledged = i
		mu.Unlock()
		transfer(t, p.raft, g.raft)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := g.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d reads, %d refused", reads, refused)
	if reads == 0 || refused == 0 {
		t.Error("the reads did not meet both cases")
	}
}

// TestPartitionedLeader cuts a leader off: it answers no read that may be
// stale, and comes back.
func TestPartitionedLeader(t *testing.T) {
	g := openGroup(t, Config{Dir: t.TempDir()})
	mustSet(t, g, "/f", "x", 0)
	p := addPeer(t, g)
	p.disconnect(g)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, leader, _, changed := g.lead.state()
		if !leader {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("it still thinks that it leads")
		}
	}
	if _, err := g.Get(ctx, "/f"); !errors.Is(err, ErrNotReady) {
		t.Errorf("get: %v", err)
	}
	if err := g.WaitReady(short(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	if _, err := g.Set(ctx, "/f", []byte("y"), AnyGeneration); !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("set: %v", err)
	}
	p.connect(g)
	for g.raft.State() != raft.Leader {
		if p.raft.State() == raft.Leader {
			_ = p.raft.LeadershipTransfer().Error()
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := g.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if f, err := g.Get(ctx, "/f"); err != nil || string(f.Data) == "" {
		t.Errorf("get: %+v, %v", f, err)
	}
}

func short(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestFollowerRestoresSnapshot brings up a voter from a snapshot, since the log
// no longer reaches back: the stream between servers carries no checksum but
// its own.
func TestFollowerRestoresSnapshot(t *testing.T) {
	g := openGroup(t, Config{Dir: t.TempDir()})
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for i := range 40 {
				mustSet(t, g, fmt.Sprintf("/d%d/f%d", w, i), "x", 0)
			}
		})
	}
	wg.Wait()
	if err := g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	p := addPeer(t, g)
	mustSet(t, g, "/last", "x", 0)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var there bool
		p.machine.view(func(ns *namespace, _ uint64) { there = ns.get("/last") != nil })
		if there {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the other voter did not catch up")
		}
	}
	g.machine.view(func(mine *namespace, _ uint64) {
		p.machine.view(func(other *namespace, _ uint64) { sameNamespace(t, mine, other) })
	})
}

// TestStaleCatchUpIsIgnored finishes a catch-up after the lead was lost and won
// again.
func TestStaleCatchUpIsIgnored(t *testing.T) {
	l := newLeadership()
	l.set(true)
	epoch, _, _, changed := l.state()
	l.set(false)
	<-changed
	l.caughtUp(epoch, 7)
	if _, _, term, _ := l.state(); term != 0 {
		t.Error("caught up without the lead")
	}
	l.set(true)
	l.caughtUp(epoch, 7)
	if _, _, term, _ := l.state(); term != 0 {
		t.Error("caught up by an old barrier")
	}
	epoch, _, _, _ = l.state()
	l.caughtUp(epoch, 9)
	if _, leader, term, _ := l.state(); term != 9 || !leader {
		t.Error("not caught up")
	}
}

// TestReadChecksTheTerm has a leader that caught up in an earlier term: it may
// have missed what was committed in between.
func TestReadChecksTheTerm(t *testing.T) {
	g := openGroup(t, Config{Dir: t.TempDir()})
	mustSet(t, g, "/f", "x", 0)
	g.lead.mu.Lock()
	g.lead.mu.term--
	g.lead.mu.Unlock()
	if _, err := g.Get(t.Context(), "/f"); !errors.Is(err, ErrNotReady) {
		t.Errorf("got %v", err)
	}
}
