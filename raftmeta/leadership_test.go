package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestReadsAfterLeadershipMoves transfers leadership around, with a write by each leader. A read at
// any server either fails or sees the last write.
func TestReadsAfterLeadershipMoves(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.set("/f", "0")
	var mu sync.Mutex
	acknowledged := 0 // the newest write that its leader acknowledged
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var reads, refused int
	for _, id := range c.ids() {
		g := c.group(id)
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
				var got int
				_, _ = fmt.Sscan(string(f.Data), &got)
				mu.Lock()
				switch {
				case err == nil && got < least:
					t.Errorf("%s read %d after %d was acknowledged", id, got, least)
				case err == nil:
					reads++
				case errors.Is(err, ErrNotReady):
					refused++
				default:
					t.Errorf("get: %v", err)
				}
				mu.Unlock()
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	for i := 1; i <= 6; i++ {
		l := c.leader()
		if err := l.TransferLeadership(t.Context(), ""); err != nil {
			t.Logf("transfer: %v", err)
		}
		if _, err := l.Set(short(t, 5*time.Second), "/f", fmt.Append(nil, i), api.AnyGeneration); err == nil {
			t.Log("the old leader won again")
		} else if !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("set by a follower: %v", err)
		}
		c.set("/f", fmt.Sprint(i))
		mu.Lock()
		acknowledged = i
		mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d reads, %d refused", reads, refused)
	if reads == 0 || refused == 0 {
		t.Error("the reads did not meet both cases")
	}
}

// TestNotLeaderErrorNamesLeader calls a follower.
func TestNotLeaderErrorNamesLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	for _, id := range c.ids() {
		g := c.group(id)
		if g == l {
			continue
		}
		eventually(t, id+" knows the leader", func() bool { got, _ := g.Leader(); return got == l.cfg.ID })
		for what, err := range map[string]error{
			"get": func() error { _, err := g.Get(t.Context(), "/f"); return err }(),
			"set": func() error { _, err := g.Set(t.Context(), "/f", nil, 0); return err }(),
			"add": g.AddNonvoter(t.Context(), "n9"),
		} {
			var not *NotLeaderError
			if !errors.As(err, &not) || not.Leader != l.cfg.ID || not.Address != l.cfg.ID+".test" {
				t.Errorf("%s at %s: %v", what, id, err)
			}
		}
	}
}

// TestPartitionedLeader partitions a leader: it answers no read that may be stale, another server
// leads, and the old leader follows it after the partition.
func TestPartitionedLeader(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.set("/f", "x")
	old := c.leader()
	changes := old.LeaderChanges()
	c.isolate(old.cfg.ID, true)
	next := c.leader(old.cfg.ID)
	if _, err := next.Set(t.Context(), "/f", []byte("y"), api.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if f, err := old.Get(short(t, 50*time.Millisecond), "/f"); err == nil {
		t.Errorf("the old leader read %q", f.Data)
	}
	<-changes
	eventually(t, "the old leader steps down", func() bool { _, leads, _, _ := old.lead.state(); return !leads })
	if _, err := old.Get(t.Context(), "/f"); !errors.Is(err, ErrNotReady) {
		t.Errorf("get: %v", err)
	}
	if err := old.WaitReady(short(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	if _, err := old.Set(t.Context(), "/f", []byte("z"), api.AnyGeneration); !errors.Is(err, ErrNotReady) {
		t.Errorf("set: %v", err)
	}
	c.isolate(old.cfg.ID, false)
	eventually(t, "the old leader follows", func() bool { id, _ := old.Leader(); return id != "" })
	c.same()
}

func short(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestFollowerRestoresSnapshot brings up a voter from a snapshot, because the log no longer reaches
// back far enough.
func TestFollowerRestoresSnapshot(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.leader()
	var wg sync.WaitGroup
	for w := range 50 {
		wg.Go(func() {
			for i := range 40 {
				mustSet(t, c.group("n1"), fmt.Sprintf("/d%d/f%d", w, i), "x", 0)
			}
		})
	}
	wg.Wait()
	if err := c.group("n1").raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.open("n2")
	c.open("n3")
	c.join("n2")
	c.join("n3")
	c.set("/last", "x")
	c.same()
}

// TestStaleCatchUpIsIgnored completes a catch-up after leadership was lost and regained.
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

// TestReadChecksTheTerm has a leader that caught up in an earlier term, and may have missed what
// was committed since.
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

// Close wakes waiters for leadership, because another group may take the place of this one.
func TestCloseWakesLeadershipWaiters(t *testing.T) {
	c := newCluster(t, 1, nil)
	waits, err := Open(Config{Dir: t.TempDir(), ID: "n9", Join: true, Streams: c.mesh.streams("n9")})
	if err != nil {
		t.Fatal(err)
	}
	leads := openGroup(t, Config{Dir: t.TempDir()})
	for _, g := range []*Group{waits, leads} {
		led, changed := g.Leads()
		if led != (g == leads) {
			t.Errorf("leads: %v", led)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-changed:
		default:
			t.Error("no change was told")
		}
		if led, _ := g.Leads(); led {
			t.Error("a closed group leads")
		}
	}
}
