package rpc

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// owned is a server whose connections have owners.
type owned struct {
	*testServer
	next string
}

func newOwned(t testing.TB, cfg ServerConfig) *owned {
	o := &owned{}
	cfg.Identify = func(net.Conn) any { return o.next }
	cfg.OwnerOf = func(p *Peer) string { return p.Identity.(string) }
	o.testServer = newBareServer(t, cfg)
	return o
}

// as opens a connection of an owner.
func (o *owned) as(owner string) net.Conn {
	o.next = owner
	return pipe(o.testServer)
}

// TestOwnersShare: the calls of one owner, from any number of connections, leave workers, queue
// slots and goroutines to others.
func TestOwnersShare(t *testing.T) {
	for _, mode := range []struct {
		mode   Mode
		method string
	}{{Pooled, "echo-pooled"}, {Spawned, "echo-spawned"}, {Waiting, "echo-waiting"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newOwned(t, ServerConfig{Workers: 3, WorkQueue: 9, SpawnedMax: 12, WaitingMax: 12})
			defer s.Close()
			free := busy(s.testServer, mode.mode)
			for i := range 4 {
				conn := s.as("greedy")
				go collect(conn)()
				go func() {
					for k := range 10 {
						_, _ = conn.Write(plain(0, 10*i+k, "block", []any{}))
					}
				}()
				defer conn.Close()
			}
			synctest.Wait()
			// One owner gets six of twelve slots, and two of the workers.
			if st := s.Stats(); st.InFlight != 6+4 {
				t.Errorf("mode %d: %d calls in flight, want 6, and 4 that wait", mode.mode, st.InFlight)
			}
			began := time.Now()
			for _, other := range []string{"modest", "other", ""} {
				conn := s.as(other)
				got := collect(conn)
				for k := range 3 {
					_, _ = conn.Write(plain(0, k, mode.method, []any{}))
				}
				synctest.Wait()
				conn.Close()
				if all := responses(t, got(), false); len(all) != 3 || all[0].err != nil || all[2].err != nil {
					t.Errorf("mode %d: answers to %q beside a greedy one: %+v", mode.mode, other, all)
				}
			}
			if d := time.Since(began); d != 0 {
				t.Errorf("mode %d: others have waited for %v", mode.mode, d)
			}
			free()
			synctest.Wait()
			if n := len(s.ownersInUse()); n != 0 {
				t.Errorf("mode %d: slots of %d owners are not released", mode.mode, n)
			}
		})
	}
}

// ownersInUse returns the owners that have slots.
func (o *owned) ownersInUse() (all []string) {
	for _, s := range []*shares{&o.work.shares, &o.short.shares, &o.long.shares} {
		s.mu.Lock()
		for name, l := range s.owners {
			if l.used != 0 || len(l.waiters) != 0 || l.running != 0 || len(l.calls) != 0 {
				all = append(all, fmt.Sprintf("%q: %+v", name, *l))
			}
		}
		if s.total != 0 || len(s.waiting) != 0 {
			all = append(all, "total")
		}
		s.mu.Unlock()
	}
	return all
}

// TestOwnersInTurn: queued calls of a greedy owner do not run before the first call of another.
func TestOwnersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOwned(t, ServerConfig{Workers: 1, WorkQueue: 100})
		defer s.Close()
		free := busy(s.testServer, Pooled)
		var order []string
		s.Handle("note", Pooled, func(c *Call) {
			order = append(order, c.Peer().Identity.(string))
			c.Reply(nil)
		})
		blocker := s.as("")
		_, _ = blocker.Write(plain(0, 0, "block", []any{}))
		s.wait(1)
		go collect(blocker)()
		for _, owner := range []string{"a", "a", "b", "c", ""} {
			conn := s.as(owner)
			go collect(conn)()
			for k := range 3 {
				_, _ = conn.Write(plain(0, k, "note", []any{}))
			}
			synctest.Wait()
			defer conn.Close()
		}
		free()
		synctest.Wait()
		if got, want := fmt.Sprint(order), "[   a b c a b c a b c a a a]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		blocker.Close()
	})
}

// TestLeavePool: a handler that takes long is replaced in the pool, and queued calls run meanwhile.
func TestLeavePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOwned(t, ServerConfig{Workers: 1, WorkQueue: 20})
		defer s.Close()
		release := make(chan struct{})
		s.Handle("long", Pooled, func(c *Call) {
			c.LeavePool()
			c.LeavePool()
			<-release
			c.Reply(nil)
		})
		conn := s.as("a")
		got := collect(conn)
		for k := range 5 {
			_, _ = conn.Write(plain(0, k, "long", []any{}))
		}
		_, _ = conn.Write(plain(0, 9, "echo-pooled", []any{}))
		synctest.Wait()
		if s.ran("echo-pooled") != 1 {
			t.Error("a call waits behind calls that have left the pool")
		}
		close(release)
		synctest.Wait()
		_, _ = conn.Write(plain(0, 10, "echo-pooled", []any{}))
		synctest.Wait()
		conn.Close()
		if n := len(responses(t, got(), false)); n != 7 || len(s.ownersInUse()) != 0 {
			t.Errorf("%d answers, slots in use: %v", n, s.ownersInUse())
		}
	})
}

// TestCallsOfClosedConnections: calls are not run once their connection is known to have ended.
func TestCallsOfClosedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOwned(t, ServerConfig{Workers: 1, WorkQueue: 20})
		defer s.Close()
		free := busy(s.testServer, Pooled)
		keep := s.as("b")
		_, _ = keep.Write(plain(0, 0, "block", []any{}))
		s.wait(1)
		var calls []context.Context
		s.Handle("context", Pooled, func(c *Call) { calls = append(calls, c.Context()); c.Reply(nil) })
		conn := s.as("a")
		for k := range 7 {
			_, _ = conn.Write(plain(0, k, "context", []any{}))
		}
		synctest.Wait()
		for _, c := range s.snapshot() {
			if c.peer.Identity == "a" {
				c.kill(errNotReading)
			}
		}
		free()
		go collect(keep)()
		synctest.Wait()
		if st := s.Stats(); len(calls) != 0 || st.Dropped != 7 || st.InFlight != 0 || st.MemoryBytes != 0 {
			t.Errorf("%d calls were run; %+v", len(calls), st)
		}
		keep.Close()
	})
}
