package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// Shutdown answers requests in flight, in both modes, and sends goaway to framed clients.
func TestShutdownAnswersWhatIsInFlight(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	idle := s.dial(t, ConnConfig{})
	p := s.raw(t)
	_, _ = p.Write(plain(0, 7, "hold", []any{"x"}))
	result := make(chan error, 1)
	go func() { result <- c.Call(bg, "hold", encodeBin([]byte("y")), wantBin([]byte("y"))) }()
	s.wait(2)
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(bg) }()

	<-idle.Done() // it has no calls in flight
	waitFor(t, "goaway", func() bool { return c.Err() != nil })
	var lost *ConnLostError
	if err := c.Call(bg, "echo", nil, nil); !errors.Is(err, ErrDraining) || !errors.As(err, &lost) || lost.Sent {
		t.Errorf("call to a draining server: %v", err)
	}
	if _, err := net.Dial("tcp", s.addr); err == nil {
		t.Error("still listening")
	}
	select {
	case err := <-down:
		t.Fatalf("down before the answers: %v", err)
	default:
	}
	s.release()
	if err := <-result; err != nil {
		t.Errorf("call in flight: %v", err)
	}
	if got, err := io.ReadAll(p); err != nil || !bytes.Equal(got, plain(1, 7, nil, []any{"x"})) {
		t.Errorf("plain call in flight: % x, %v", got, err)
	}
	if err := <-down; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	<-c.Done()
	if !errors.Is(c.Err(), ErrDraining) {
		t.Errorf("connection ended with %v", c.Err())
	}
}

// A framed client that ignores goaway is served for one more second.
func TestShutdownGoawayIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{})
		conn := pipe(s)
		got := collect(conn)
		_, _ = conn.Write(append(opening(), frame(plain(0, 1, "echo", []any{}))...))
		synctest.Wait()
		start := time.Now()
		go func() {
			time.Sleep(drainGrace / 2)
			_, _ = conn.Write(frame(plain(0, 2, "echo", []any{})))
		}()
		if err := s.Shutdown(bg); err != nil || time.Since(start) != drainGrace {
			t.Errorf("shutdown: %v after %v", err, time.Since(start))
		}
		b := got()
		goaway := frame(plain(2, goaway, []any{}))
		if !bytes.Contains(b, goaway) {
			t.Fatalf("no goaway in % x", b)
		}
		if n := len(responses(t, bytes.Replace(b, goaway, nil, 1), true)); n != 2 {
			t.Errorf("%d answers", n)
		}
		conn.Close()
	})
}

// If a handler does not end, Shutdown ends with its context.
func TestShutdownContext(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	result := make(chan error, 1)
	go func() { result <- c.Call(bg, "hold", nil, nil) }()
	s.wait(1)
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-result; !errors.Is(err, ErrConnLost) {
		t.Errorf("call in flight: %v", err)
	}
	s.release() // a response after the end is dropped
	if st := s.Stats(); st.MemoryBytes != 0 || st.Conns != 0 {
		t.Errorf("stats: %+v", st)
	}
	if err := s.Serve(nopListener{}); !errors.Is(err, ErrServerClosed) {
		t.Errorf("serve after the end: %v", err)
	}
}

type nopListener struct{ net.Listener }

func (nopListener) Close() error { return nil }

// Close ends handlers by their contexts, and connections without a first byte.
func TestClose(t *testing.T) {
	s := newBareServer(t, ServerConfig{})
	for _, mode := range []Mode{Pooled, Spawned} {
		s.Handle("wait"+string('0'+byte(mode)), mode, func(c *Call) {
			ctx := c.Context()
			s.got <- struct{}{}
			<-ctx.Done()
			c.Fail(ctx.Err())
		})
	}
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	var wg sync.WaitGroup
	for _, m := range []string{"wait1", "wait2", "hold"} {
		wg.Go(func() {
			if err := c.Call(bg, m, nil, nil); !errors.Is(err, ErrConnLost) {
				t.Errorf("%s: %v", m, err)
			}
		})
	}
	silent := s.raw(t)
	s.wait(3)
	s.Close()
	wg.Wait()
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("silent connection still open")
	}
	s.release()
}

// A call's context ends at its deadline, at its answer and with its connection.
func TestCallContext(t *testing.T) {
	s := newBareServer(t, ServerConfig{})
	calls := make(chan *Call, 1)
	s.Handle("take", Inline, func(c *Call) { calls <- c })
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	do := func(ctx context.Context) (*Call, chan error) {
		result := make(chan error, 1)
		go func() { result <- c.Call(ctx, "take", nil, nil) }()
		return <-calls, result
	}

	call, result := do(bg)
	ctx := call.Context()
	if _, ok := ctx.Deadline(); ok || !call.Deadline().IsZero() || call.Expired() || call.Method() != "take" {
		t.Error("an unexpected deadline")
	}
	if !call.Peer().Framed || call.Peer().ID == 0 || call.Peer().Addr == nil {
		t.Errorf("peer %+v", call.Peer())
	}
	call.Reply(nil)
	<-ctx.Done()
	if err := <-result; err != nil {
		t.Error(err)
	}

	short, cancel := context.WithTimeout(bg, 30*time.Millisecond)
	defer cancel()
	call, result = do(short)
	at := call.Deadline()
	call.SetTimeout(time.Hour)
	if call.Deadline() != at || at.IsZero() {
		t.Errorf("deadline moved from %v to %v", at, call.Deadline())
	}
	<-call.Context().Done()
	call.Fail(call.Context().Err())
	if err := <-result; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, CodeDeadlineExceeded) {
		t.Error(err)
	}

	call, result = do(bg)
	call.SetTimeout(time.Millisecond)
	<-call.Context().Done()
	if !call.Expired() {
		t.Error("not expired")
	}
	call.Fail(call.Context().Err())
	if err := <-result; !errors.Is(err, CodeDeadlineExceeded) {
		t.Error(err)
	}

	call, result = do(bg)
	peer := call.Peer()
	ctx = call.Context()
	c.nc.(*net.TCPConn).SetLinger(0) // a reset, not a half-close
	c.Close()
	<-ctx.Done()
	<-peer.Done()
	call.Reply(nil)
	if err := <-result; !errors.Is(err, ErrConnLost) {
		t.Error(err)
	}
}

// Params do not change after the answer of a call with Retain.
func TestCallRetainsParams(t *testing.T) {
	s := newBareServer(t, ServerConfig{})
	var kept [][]byte
	s.Handle("keep", Inline, func(c *Call) {
		c.Retain()
		kept = append(kept, c.Params.Bytes())
		c.Reply(nil)
	})
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	for i := range 100 {
		if err := c.Call(bg, "keep", encodeBin(bytes.Repeat([]byte{byte(i)}, 100)), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range kept {
		if !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 100)) {
			t.Errorf("kept bytes %d changed", i)
		}
	}
}

// Handlers that panic late, answer twice or write nothing do not affect other calls.
func TestHandlersThatMisbehave(t *testing.T) {
	s := newBareServer(t, ServerConfig{})
	s.Handle("answers, then panics", Pooled, func(c *Call) { c.Reply(nil); panic("late") })
	s.Handle("panics in reply", Pooled, func(c *Call) { c.Reply(func(*wire.Encoder) { panic("in reply") }) })
	s.Handle("answers twice", Pooled, func(c *Call) { c.Retain(); c.Reply(nil); c.Reply(nil) })
	s.Handle("writes nothing", Inline, func(c *Call) { c.Reply(func(*wire.Encoder) {}) })
	s.Handle("hands on and panics", Inline, func(c *Call) {
		done := make(chan struct{})
		go func() { c.Reply(nil); close(done) }()
		<-done
		panic("after another goroutine's answer")
	})
	listen(t, s)
	c := s.dial(t, ConnConfig{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				for m, want := range map[string]error{
					"answers, then panics": nil, "panics in reply": CodeInternal, "answers twice": nil, "hands on and panics": nil,
					"writes nothing": nil, "echo": nil,
				} {
					if err := c.Call(bg, m, nil, nil); !errors.Is(err, want) {
						t.Errorf("%s: %v", m, err)
					}
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, "panics to be counted", func() bool { return s.Stats().Panics == 8*50*4 })
}

// Ten thousand requests may be sent before the first response is read.
func TestTenThousandPipelined(t *testing.T) {
	for _, m := range []string{"echo", "echo-pooled", "later"} {
		s := newTestServer(t, ServerConfig{})
		c := s.raw(t)
		const n = 10_000
		var in []byte
		for i := range n {
			in = append(in, plain(0, i, m, []any{i})...)
		}
		if _, err := c.Write(in); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[uint32]bool)
		for _, r := range responses(t, got, false) {
			if want := plain([]any{int(r.id)}...); seen[r.id] || !bytes.Equal(r.result, want) {
				t.Fatalf("%s: answer to %d: % x", m, r.id, r.result)
			}
			seen[r.id] = true
		}
		if len(seen) != n {
			t.Errorf("%s: %d answers", m, len(seen))
		}
	}
}

// An abrupt end in the middle of many calls leaves nothing behind.
func TestKilledMidFlight(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	for i := range 30 {
		c := s.raw(t)
		for j := range 200 {
			_, _ = c.Write(plain(0, j, []string{"later", "echo-pooled", "echo-spawned"}[j%3], []any{make([]byte, 3000)}))
		}
		if i%2 == 0 {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
	waitFor(t, "everything to be given back", func() bool {
		st := s.Stats()
		return st.Conns == 0 && st.MemoryBytes == 0 && st.BufferBytes == 0
	})
}

func TestStats(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	for range 10 {
		_ = c.Call(bg, "echo", nil, nil)
	}
	_ = c.Call(bg, "fail", nil, nil)
	st := s.Stats()
	for _, m := range st.Methods {
		want := map[string]uint64{"echo": 10, "fail": 1}[m.Method]
		var sum uint64
		for _, n := range m.Latency {
			sum += n
		}
		if m.Requests != want || sum != want || want > 0 && m.Time <= 0 || (len(m.Errors) == 1) != (m.Method == "fail") {
			t.Errorf("%+v", m)
		}
	}
	if st.FramedConns != 1 || st.BytesIn == 0 || st.BytesOut == 0 || st.Writes < 11 || st.Conns != 1 {
		t.Errorf("%+v", st)
	}
	var m methodStats
	for _, d := range []time.Duration{-1, 0, 1, time.Microsecond, time.Microsecond + 1, 2 * time.Microsecond, 3 * time.Microsecond, time.Hour} {
		m.done(d, nil)
	}
	for i, want := range map[int]uint64{0: 4, 1: 2, 2: 1, LatencyBuckets - 1: 1} {
		if got := m.buckets[i].Load(); got != want {
			t.Errorf("bucket %d up to %v: %d, want %d", i, LatencyBound(i), got, want)
		}
	}
}
