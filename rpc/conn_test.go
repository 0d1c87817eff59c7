package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
)

var bg = context.Background()

// P3: when calls are made, cancelled and answered concurrently, each caller gets its own response.
func TestCallsGetTheirOwnAnswers(t *testing.T) {
	s := newTestServer(t, ServerConfig{InFlightMax: 64})
	c := s.dial(t, ConnConfig{InFlightMax: 100, UnsentBytesMax: 1 << 20})
	methods := []string{"echo", "echo-pooled", "echo-spawned", "later", "later-pooled"}
	seed := testseed.New(t)
	var wg sync.WaitGroup
	var cancelled atomic.Int64
	for w := range 32 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for i := range 150 {
				size := rng.IntN(3000)
				switch rng.IntN(50) {
				case 0:
					size = 300 << 10
				case 1:
					size = 100 << 10
				}
				body := append(fmt.Appendf(nil, "%d/%d ", w, i), make([]byte, size)...)
				ctx, cancel := bg, context.CancelFunc(func() {})
				if rng.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(bg, time.Duration(rng.IntN(2000))*time.Microsecond)
				}
				err := c.Call(ctx, methods[rng.IntN(len(methods))], encodeBin(body), wantBin(body))
				cancel()
				switch {
				case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, CodeDeadlineExceeded):
					cancelled.Add(1)
				case err != nil:
					t.Errorf("call: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d cancelled", cancelled.Load())
	waitFor(t, "all to be done", func() bool {
		st := s.Stats()
		return st.InFlight == 0 && st.MemoryBytes == 0 && c.InFlight() == 0
	})
}

func TestCallErrors(t *testing.T) {
	s := newTestServer(t, ServerConfig{MessageBytesMax: 128 << 10, MemoryBytesMax: 1 << 20})
	c := s.dial(t, ConnConfig{MessageBytesMax: 64 << 10})
	var e *Error
	err := c.Call(bg, "fail", nil, nil)
	if !errors.As(err, &e) || e.Code != 100 || e.Message != "no" || !e.Retryable || e.Details["limit"] != int64(7) || e.Details["where"] != "here" {
		t.Errorf("fail: %#v", err)
	}
	if err := c.Call(bg, "nop", nil, nil); !errors.Is(err, CodeUnknownMethod) {
		t.Errorf("unknown method: %v", err)
	}
	for _, m := range []string{"panic", "panic-pooled", "panic-spawned"} {
		if err := c.Call(bg, m, nil, nil); !errors.Is(err, CodeInternal) {
			t.Errorf("%s: %v", m, err)
		}
	}
	if err := c.Call(bg, "echo", encodeBin(make([]byte, 64<<10)), nil); !errors.Is(err, ErrRequestTooLarge) {
		t.Errorf("large request: %v", err)
	}
	if err := c.Call(bg, "big", encodeInt(128<<10), nil); !errors.Is(err, CodeTooLarge) {
		t.Errorf("large result: %v", err)
	}
	stop := errors.New("stop")
	if err := c.Call(bg, "echo", nil, func(*wire.Decoder) error { return stop }); err != stop {
		t.Errorf("decode's error: %v", err)
	}
	var bad *wire.FormatError
	if err := c.Call(bg, "echo", nil, func(d *wire.Decoder) error { d.Int(); return nil }); !errors.As(err, &bad) {
		t.Errorf("wrong result type: %v", err)
	}
	ended, cancel := context.WithCancel(bg)
	cancel()
	if err := c.Call(ended, "echo", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	if err := c.Call(bg, "echo", nil, nil); err != nil {
		t.Errorf("after all that: %v", err)
	}
	// A result over the client's limit ends the connection.
	if err := c.Call(bg, "big", encodeInt(100<<10), nil); !errors.Is(err, ErrTooLarge) || !errors.Is(err, ErrConnLost) {
		t.Errorf("result over the client's limit: %v", err)
	}
}

// A cancelled call returns at once; its late response is dropped.
func TestCancel(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	ctx, cancel := context.WithCancel(bg)
	done := make(chan error)
	go func() { done <- c.Call(ctx, "hold", nil, nil) }()
	s.wait(1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
	s.release()
	if err := c.Call(bg, "echo", encodeInt(1), nil); err != nil {
		t.Errorf("next call: %v", err)
	}
}

// Ids wrap; one that is still in use is skipped.
func TestIDsWrap(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	c.id.Store(math.MaxUint32 - 3)
	go func() { _ = c.Call(bg, "hold", nil, nil) }() // gets id 2^32-3
	s.wait(1)
	for i := range 10 {
		if err := c.Call(bg, "echo", encodeInt(int64(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	c.id.Store(math.MaxUint32 - 3)
	if err := c.Call(bg, "echo", nil, nil); err != nil {
		t.Errorf("id in use: %v", err)
	}
	s.release()
}

// P5: after a lost connection each call reports whether it may have been executed.
func TestConnLost(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			var lost *ConnLostError
			if err := c.Call(bg, "hold", nil, nil); !errors.As(err, &lost) || !lost.Sent {
				t.Errorf("call in flight: %v", err)
			}
		})
	}
	s.wait(20)
	for _, sc := range s.snapshot() {
		sc.kill(io.ErrClosedPipe)
	}
	wg.Wait()
	<-c.Done()
	var lost *ConnLostError
	if err := c.Call(bg, "echo", nil, nil); !errors.As(err, &lost) || lost.Sent || !errors.Is(err, ErrConnLost) {
		t.Errorf("call after the loss: %v", err)
	}
	if c.Err() == nil {
		t.Error("no error after the loss")
	}
	s.release() // responses to no one
}

// A request that was never passed to a write call was not executed.
func TestConnLostBeforeSending(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		b := make([]byte, preambleBytes)
		_, _ = io.ReadFull(server, b)
		_, _ = server.Write(b)
	}()
	c, err := NewConn(bg, client, ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	call := func() { results <- c.Call(bg, "echo", nil, nil) }
	go call()
	waitFor(t, "the first write", func() bool { return c.out.sent(0) })
	go call()
	waitFor(t, "the second call", func() bool { return c.out.unsent.Load() > 40 })
	c.Close()
	sent := 0
	for range 2 {
		var lost *ConnLostError
		if err := <-results; !errors.As(err, &lost) {
			t.Fatal(err)
		} else if lost.Sent {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("%d of two calls may have been sent, want 1", sent)
	}
}

// fakeServer answers the preamble and then sends bytes.
func fakeServer(t *testing.T, b []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, preambleBytes))
			_, _ = c.Write(b)
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestDialRefused(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 400 Bad Request\r\n", "STELE\x00\x00\n"} {
		if c, err := Dial(bg, fakeServer(t, []byte(answer)), ConnConfig{}); !errors.Is(err, ErrPreamble) {
			t.Errorf("peer that answers %q: %v, %v", answer, c, err)
		}
	}
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, fakeServer(t, nil), ConnConfig{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent peer: %v", err)
	}
	if _, err := Dial(bg, "127.0.0.1:1", ConnConfig{}); err == nil {
		t.Error("dialed a closed port")
	}
}

// P2, on the client: corrupt or malformed bytes from a server end the connection.
func TestBadAnswers(t *testing.T) {
	corrupt := frame(plain(1, 1, nil, "value"))
	corrupt[len(corrupt)-1] ^= 1
	var corruptFrame *CorruptFrameError
	for _, c := range []struct {
		name string
		in   []byte
		want func(error) bool
	}{
		{"corrupt", corrupt, func(err error) bool { return errors.As(err, &corruptFrame) }},
		{"a request", frame(plain(0, 1, "echo", []any{})), func(err error) bool { return errors.Is(err, errEnvelope) }},
		{"no array", frame(plain(0)[1:]), func(err error) bool { return errors.Is(err, errEnvelope) }},
		{"too large", header(1<<31, 0, 0, nil), func(err error) bool { return errors.Is(err, ErrTooLarge) }},
		{"cut short", frame(plain(1, 1, nil, "value"))[:20], nil},
	} {
		conn, err := Dial(bg, fakeServer(t, append(opening(), c.in...)), ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
		err = conn.Call(ctx, "echo", nil, nil)
		cancel()
		if c.want == nil && !errors.Is(err, context.DeadlineExceeded) || c.want != nil && (!c.want(err) || !errors.Is(err, ErrConnLost)) {
			t.Errorf("%s: %v", c.name, err)
		}
		conn.Close()
	}
}

// An error value of any other form is decoded as an error as well.
func TestForeignErrors(t *testing.T) {
	for _, c := range []struct {
		err  any
		want string
	}{
		{"plain text", "internal: plain text"},
		{42, "internal: error of an unknown form"},
		{map[string]any{"code": 5, "extra": []any{1}, "n": 3}, "overloaded"},
		{map[string]any{"message": "m"}, "internal: m"},
		{map[string]any{"code": 77777}, "code_77777"},
	} {
		d := wire.NewDecoder(plain(c.err)[1:])
		if got := DecodeError(&d); got.Error() != c.want || d.Err() != nil || d.More() {
			t.Errorf("%v: %v, %v", c.err, got, d.Err())
		}
	}
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{InFlightMax: 2})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _ = c.Call(bg, "hold", nil, nil) })
	}
	s.wait(2)
	ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "echo", nil, nil); !errors.Is(err, context.DeadlineExceeded) || s.ran("echo") != 0 {
		t.Errorf("third call: %v", err)
	}
	third := make(chan error, 1)
	go func() { third <- c.Call(bg, "echo", nil, nil) }()
	s.release()
	if err := <-third; err != nil {
		t.Errorf("third call: %v", err)
	}
	wg.Wait()
	// Callers that wait for a slot when the connection ends get its error.
	for range 2 {
		wg.Go(func() { _ = c.Call(bg, "hold", nil, nil) })
	}
	s.wait(2)
	go func() { third <- c.Call(bg, "echo", nil, nil) }()
	waitFor(t, "the third call to wait", func() bool { return c.inFlight.waiting.Load() == 1 })
	c.Close()
	var lost *ConnLostError
	if err := <-third; !errors.As(err, &lost) || lost.Sent {
		t.Errorf("waiting call: %v", err)
	}
	wg.Wait()
}

func TestGoAndNotify(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	const n = 500
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		err := c.Go(bg, "echo-pooled", encodeInt(int64(i)), func(d *wire.Decoder, err error) {
			defer wg.Done()
			if d.Array(); err != nil || d.Int() != int64(i) {
				t.Errorf("call %d: %v", i, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	for range n {
		if err := c.Notify(bg, "later", encodeInt(1)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "notifications", func() bool { return s.ran("later") == n })
	wg.Add(1)
	_ = c.Go(bg, "hold", nil, func(_ *wire.Decoder, err error) {
		defer wg.Done()
		if !errors.Is(err, ErrConnLost) {
			t.Errorf("call in flight at the end: %v", err)
		}
	})
	s.wait(1)
	c.Close()
	wg.Wait()
	if err := c.Go(bg, "echo", nil, func(*wire.Decoder, error) { t.Error("called") }); !errors.Is(err, ErrConnLost) {
		t.Errorf("after the end: %v", err)
	}
	if err := c.Notify(bg, "echo", nil); !errors.Is(err, ErrConnLost) {
		t.Errorf("notify after the end: %v", err)
	}
}

// The bytes retained by CallRetain's decode do not change.
func TestCallRetain(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	var kept [][]byte
	for i := range 100 {
		err := c.CallRetain(bg, "echo", encodeBin(bytes.Repeat([]byte{byte(i)}, 100)), func(d *wire.Decoder) error {
			d.Array()
			kept = append(kept, d.Bytes())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range kept {
		if !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 100)) {
			t.Errorf("kept bytes %d changed to % x", i, b[:8])
		}
	}
}

func TestLargeCalls(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.dial(t, ConnConfig{})
	body := make([]byte, 12<<20)
	for i := range body {
		body[i] = byte(i * 7)
	}
	var wg sync.WaitGroup
	for _, n := range []int{copyBytesMax - 100, copyBytesMax, readBytesMax, readBytesMax + 1, bodyBytesMin - 64, bodyBytesMin, 5 << 20, len(body)} {
		wg.Go(func() {
			if err := c.Call(bg, "echo", encodeBin(body[:n]), wantBin(body[:n])); err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
		})
	}
	wg.Wait()
}
