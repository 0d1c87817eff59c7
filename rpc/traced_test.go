package rpc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
)

// TestTracedSlow: a call that takes long is reported before its answer is sent, with its parameters as they came, although its handler has read them;
// others are not.
func TestTracedSlow(t *testing.T) {
	var mu sync.Mutex
	var got []string
	cfg := ServerConfig{SlowAfter: 50 * time.Millisecond, Traced: func(s *TracedCall) {
		mu.Lock()
		defer mu.Unlock()
		name := s.Method
		if s.Err != nil {
			name += " " + s.Err.Code.String()
		}
		if !s.Slow || s.Trace != nil || s.Took < 50*time.Millisecond || s.Waited > s.Took || s.NumParams != 1 {
			t.Errorf("%+v", s)
		}
		got = append(got, name+" "+s.Params.Str())
	}}
	s := newBareServer(t, cfg)
	for name, d := range map[string]time.Duration{"slow": 60 * time.Millisecond, "quick": 0} {
		s.Handle(name, Pooled, func(c *Call) {
			c.Params.Skip()
			time.Sleep(d)
			if name == "slow" {
				c.Fail(Errorf(CodeBadRequest, "no"))
				return
			}
			c.Reply(nil)
		})
	}
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	for _, name := range []string{"quick", "slow"} {
		_ = c.Call(context.Background(), name, func(e *wire.Encoder) { e.Array(1); e.Str("first") }, nil)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 1 || got[0] != "slow bad_request first" {
		t.Errorf("%q", got)
	}
}

// TestTracedSampled: calls are reported that are sampled, at random or by their callers, with their records.
func TestTracedSampled(t *testing.T) {
	var kept atomic.Int64
	parent, _ := trace.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	cfg := ServerConfig{SlowAfter: time.Hour, TraceEvery: 1 << 62, Traced: func(s *TracedCall) {
		if s.Slow || s.Trace == nil || s.Trace.Parent != parent || s.Trace.Sampled {
			t.Errorf("%+v", s)
		}
		kept.Add(1)
	}}
	s := newBareServer(t, cfg)
	s.Handle("requested", Pooled, func(c *Call) { c.Trace().Parent = parent; c.Reply(nil) })
	s.Handle("not", Pooled, func(c *Call) { c.Reply(nil) })
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	for range 10 {
		for _, name := range []string{"requested", "not"} {
			if err := c.Call(context.Background(), name, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := kept.Load(); n != 10 {
		t.Errorf("%d calls are reported", n)
	}
}
