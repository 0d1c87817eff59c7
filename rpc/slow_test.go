package rpc

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TestSlowCalls: a call that takes long is reported before its answer is sent, with its parameters as they came, although its handler has read them;
// others are not.
func TestSlowCalls(t *testing.T) {
	var mu sync.Mutex
	var got []string
	cfg := ServerConfig{SlowAfter: 50 * time.Millisecond, Slow: func(s *SlowCall) {
		mu.Lock()
		defer mu.Unlock()
		name := s.Method
		if s.Err != nil {
			name += " " + s.Err.Code.String()
		}
		if s.Took < 50*time.Millisecond || s.Waited > s.Took || s.NumParams != 1 {
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
