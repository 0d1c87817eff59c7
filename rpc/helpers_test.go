package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// testServer is a server with methods for tests.
type testServer struct {
	*Server
	addr string

	mu   sync.Mutex
	held []*Call       // calls of "hold" that are not yet answered
	got  chan struct{} // one token for each call of "hold"
	runs map[string]int
}

// newTestServer serves on loopback until the test ends.
func newTestServer(t testing.TB, cfg ServerConfig) *testServer {
	s := newBareServer(t, cfg)
	listen(t, s)
	return s
}

// listen serves s on loopback until the test ends.
func listen(t testing.TB, s *testServer) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	waitFor(t, "the listener", func() bool {
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		return len(s.Server.mu.listeners) == 1
	})
	return s.addr
}

// newBareServer returns a server with the methods and without a listener.
func newBareServer(t testing.TB, cfg ServerConfig) *testServer {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	srv, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{Server: srv, got: make(chan struct{}, 1<<16), runs: map[string]int{}}
	for name, mode := range map[string]Mode{"": Inline, "-pooled": Pooled, "-spawned": Spawned, "-waiting": Waiting} {
		s.Handle("echo"+name, mode, s.echo)
		s.Handle("panic"+name, mode, func(c *Call) { panic("on purpose") })
		s.Handle("fail"+name, mode, func(c *Call) {
			c.Fail(&Error{Code: 100, Message: "no", Retryable: true, Details: map[string]any{"limit": 7, "where": "here"}})
		})
		s.Handle("later"+name, mode, func(c *Call) { go s.echo(c) })
	}
	// hold keeps its calls until release.
	s.Handle("hold", Inline, func(c *Call) {
		s.mu.Lock()
		s.held = append(s.held, c)
		s.mu.Unlock()
		s.got <- struct{}{}
	})
	s.Handle("big", Inline, func(c *Call) {
		n := min(int(c.Params.Int()), 8<<20)
		c.Reply(func(e *wire.Encoder) { e.Bin(make([]byte, n)) })
	})
	return s
}

func (s *testServer) echo(c *Call) {
	s.mu.Lock()
	s.runs[c.Method()]++
	s.mu.Unlock()
	c.Reply(func(e *wire.Encoder) {
		e.Array(c.NumParams)
		e.Raw(c.Params.Rest())
	})
}

func (s *testServer) ran(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[method]
}

// release answers the calls of hold, last one first, with their params.
func (s *testServer) release() {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for i := range held {
		s.echo(held[len(held)-1-i])
	}
}

// wait waits for n calls of hold.
func (s *testServer) wait(n int) {
	for range n {
		<-s.got
	}
}

func (s *testServer) dial(t testing.TB, cfg ConnConfig) *Conn {
	t.Helper()
	c, err := Dial(context.Background(), s.addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw opens a connection for raw bytes.
func (s *testServer) raw(t testing.TB) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // a hang fails the test
	return c.(*net.TCPConn)
}

// exchange sends bytes, closes the sending side, and returns all responses.
func exchange(t testing.TB, s *testServer, in []byte) []byte {
	t.Helper()
	c := s.raw(t)
	go func() { // write errors show in the responses
		_, _ = c.Write(in)
		_ = c.CloseWrite()
	}()
	out, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("read answers to % x: %v, after % x", in[:min(len(in), 40)], err, out[:min(len(out), 40)])
	}
	return out
}

// plain builds a message of values for plain mode.
func plain(values ...any) []byte {
	var e wire.Encoder
	wiretest.Any(&e, values)
	return e.Bytes()
}

// frame wraps a message for framed mode.
func frame(msg []byte) []byte {
	b := append(make([]byte, headerBytes), msg...)
	sealFrame(b, 0)
	return b
}

func opening() []byte {
	b := preamble(version)
	return b[:]
}

// response is a decoded response.
type response struct {
	id     uint32
	err    *Error
	result []byte
	raw    []byte // the whole message
}

// responses splits a stream of responses; in framed mode the preamble comes first.
func responses(t testing.TB, b []byte, framed bool) []response {
	t.Helper()
	var all []response
	if framed {
		if !bytes.HasPrefix(b, opening()) {
			t.Fatalf("no preamble in % x", b)
		}
		b = b[preambleBytes:]
	}
	for len(b) > 0 {
		msg := b
		if framed {
			h := parseHeader(b)
			m, err := finishFrame(h, b[:headerBytes], b[headerBytes:headerBytes+int(h.length)])
			if err != nil {
				t.Fatal(err)
			}
			msg, b = m.body, b[headerBytes+len(m.body):]
		}
		d := wire.NewDecoder(msg)
		if n, typ := d.Array(), d.Uint(); n != 4 || typ != typeResponse {
			t.Fatalf("not a response: % x", msg[:min(len(msg), 40)])
		}
		r := response{id: uint32(d.Uint())}
		if !d.IsNil() {
			r.err = DecodeError(&d)
		}
		r.result = d.Raw()
		if d.Err() != nil {
			t.Fatal(d.Err())
		}
		if !framed {
			b = d.Rest()
		}
		r.raw = msg[:d.Offset()]
		all = append(all, r)
	}
	return all
}

func encodeInt(n int64) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Array(1)
		e.Int(n)
	}
}

func encodeBin(b []byte) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Array(1)
		e.Bin(b)
	}
}

// wantBin returns a decode for echo's response to encodeBin.
func wantBin(want []byte) func(*wire.Decoder) error {
	return func(d *wire.Decoder) error {
		if d.Array(); !bytes.Equal(d.Bytes(), want) {
			return errors.New("another call's answer")
		}
		return nil
	}
}

// waitFor waits for a condition that another goroutine makes true soon.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// wholeValue returns the length of the value at the start of b, or 0 if it is truncated.
func wholeValue(t testing.TB, b []byte) int {
	n, err := wire.Check(b, wire.Limits{})
	if err != nil && err != wire.ErrIncomplete {
		t.Fatalf("the server sent % x: %v", b[:min(len(b), 40)], err)
	}
	return n
}
