package raftmeta

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// ports is a network of TCP ports on this machine.
type ports struct {
	mu sync.Mutex
	at map[string]string
}

// tcpStreams is the Streams of one server in ports.
type tcpStreams struct {
	net.Listener
	ports *ports
}

func (s tcpStreams) Dial(id string, timeout time.Duration) (net.Conn, error) {
	s.ports.mu.Lock()
	at := s.ports.at[id]
	s.ports.mu.Unlock()
	return net.DialTimeout("tcp", at, timeout)
}

func (p *ports) listen(tb testing.TB, id string) tcpStreams {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[id] = l.Addr().String()
	return tcpStreams{l, p}
}

// tcpGroup opens three voters over TCP with the default timeouts.
func tcpGroup(tb testing.TB) (map[string]*Group, func(id string) *Group) {
	tb.Helper()
	root := tb.TempDir()
	p := &ports{at: map[string]string{}}
	groups := map[string]*Group{}
	open := func(id string) *Group {
		g, err := Open(Config{Dir: filepath.Join(root, id), ID: id, Join: id != "n1", Streams: p.listen(tb, id)})
		if err != nil {
			tb.Fatal(err)
		}
		groups[id] = g
		return g
	}
	tb.Cleanup(func() {
		for _, g := range groups {
			_ = g.Close()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := open("n1")
	if err := l.WaitReady(ctx); err != nil {
		tb.Fatal(err)
	}
	for _, id := range []string{"n2", "n3"} {
		open(id)
		if err := l.AddNonvoter(ctx, id); err != nil {
			tb.Fatal(err)
		}
		if err := l.Promote(ctx, id); err != nil {
			tb.Fatal(err)
		}
	}
	return groups, open
}

// BenchmarkGroup3 calls the leader of three voters in this process over loopback TCP.
func BenchmarkGroup3(b *testing.B) {
	data := bytes.Repeat([]byte("x"), 64)
	for _, workers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("set/inflight=%d", workers), func(b *testing.B) {
			groups, _ := tcpGroup(b)
			l := groups["n1"]
			parallel(b, workers, func(w, i int) error {
				_, err := l.Set(context.Background(), fmt.Sprintf("/bench/%d/f%d", w, i%1000), data, api.AnyGeneration)
				return err
			})
			s := l.Stats()
			b.ReportMetric(float64(s.LogEntries)/float64(s.LogWrites), "sets/fsync")
		})
		b.Run(fmt.Sprintf("get/inflight=%d", workers), func(b *testing.B) {
			groups, _ := tcpGroup(b)
			l := groups["n1"]
			for i := range 1000 {
				mustSet(b, l, fmt.Sprintf("/bench/f%d", i), string(data), 0)
			}
			parallel(b, workers, func(_, i int) error {
				_, err := l.Get(context.Background(), fmt.Sprintf("/bench/f%d", i%1000))
				return err
			})
		})
	}
}

// BenchmarkFailover3 measures the time from the loss of the leader to the next acknowledged Set.
// The leader either exits, which closes its connections, or its network is cut silently.
func BenchmarkFailover3(b *testing.B) {
	b.Run("killed", func(b *testing.B) {
		groups, open := tcpGroup(b)
		var took []time.Duration
		for b.Loop() {
			id, g := leaderOf(b, groups)
			delete(groups, id)
			start := time.Now()
			_ = g.trans.disconnect()
			var closed sync.WaitGroup
			closed.Go(func() { _ = g.Close() })
			untilSet(b, groups)
			took = append(took, time.Since(start))
			closed.Wait()
			open(id)
			time.Sleep(time.Second) // it catches up
		}
		reportFailover(b, took)
	})
	b.Run("cut off", func(b *testing.B) {
		c := newCluster(b, 3, func(_ string, c *Config) { c.HeartbeatTimeout, c.CommitTimeout = 0, 0 })
		var took []time.Duration
		for b.Loop() {
			id := c.leader().cfg.ID
			rest := map[string]*Group{}
			for _, other := range c.ids() {
				if other != id {
					rest[other] = c.group(other)
				}
			}
			start := time.Now()
			c.isolate(id, true)
			untilSet(b, rest)
			took = append(took, time.Since(start))
			c.mesh.healAll()
			time.Sleep(time.Second)
		}
		reportFailover(b, took)
	})
}

// untilSet writes a file through any leader in groups until the write is acknowledged.
func untilSet(b *testing.B, groups map[string]*Group) {
	b.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, next := leaderOf(b, groups)
		_, err := next.Set(ctx, "/f", []byte("x"), api.AnyGeneration)
		cancel()
		if err == nil {
			return
		}
	}
}

func reportFailover(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
	b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "max-ms")
}

func leaderOf(b *testing.B, groups map[string]*Group) (string, *Group) {
	b.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		for id, g := range groups {
			if _, _, term, _ := g.lead.state(); term != 0 {
				return id, g
			}
		}
		if time.Now().After(deadline) {
			b.Fatal("no leader")
		}
	}
}
