package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// peerOf returns the client's side of an in-memory connection. The other side answers the preamble
// and is then passed to serve.
func peerOf(t *testing.T, cfg ConnConfig, serve func(net.Conn)) *Conn {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		var b [preambleBytes]byte
		_, _ = io.ReadFull(server, b[:])
		_, _ = server.Write(opening())
		serve(server)
	}()
	c, err := NewConn(context.Background(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A server is silent after the default of SilenceMax, and at most one of its eight steps later.
const (
	soonest     = 10 * time.Second
	silenceStep = soonest / 8
	latest      = soonest + silenceStep
)

// A call without a deadline ends when its server is silent, in whatever way.
func TestSilentServer(t *testing.T) {
	large := func(e *wire.Encoder) {
		e.Array(1)
		e.Bin(make([]byte, 4<<20))
	}
	for _, s := range []struct {
		name     string
		encode   func(*wire.Encoder)
		serve    func(net.Conn)
		from, to time.Duration
	}{
		{"takes requests and says nothing", nil, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, soonest, latest},
		{"takes nothing", nil, func(net.Conn) {}, soonest, latest},
		{"stops in the middle of an answer", nil, func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, c, headerBytes)
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = c.Write(frame(plain(1, 1, nil, "the result"))[:headerBytes+3])
		}, soonest, latest + silenceStep}, // the first step has received bytes
		{"stops after a pong", nil, func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, c, headerBytes)
			go func() { _, _ = io.Copy(io.Discard, c) }()
			time.Sleep(7 * time.Second)
			_, _ = c.Write(frame(plain(1, 2, nil, nil)))
		}, 17 * time.Second, 19 * time.Second},
		// 4 MiB in 16 s, 4 s for bytes in transit, and the time for a response to the ping.
		{"takes a large request slowly and says nothing", large, func(c net.Conn) {
			for {
				if _, err := io.CopyN(io.Discard, c, 256<<10); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, 23 * time.Second, 25 * time.Second},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := peerOf(t, ConnConfig{}, s.serve)
				defer c.Close()
				time.Sleep(time.Hour + time.Second/10) // an idle connection stays; the call begins within a step
				started := time.Now()
				err := c.Call(context.Background(), "hang", s.encode, nil)
				took := time.Since(started)
				var lost *ConnLostError
				if !errors.As(err, &lost) || !lost.Sent || !errors.Is(err, ErrSilent) {
					t.Errorf("got %v, want that the connection was lost and the request sent", err)
				}
				if took < s.from || took > s.to {
					t.Errorf("took %v, want %v to %v", took, s.from, s.to)
				}
			})
		})
	}
}

// TestSilenceAfterMuchSent: bytes sent before a call do not extend its time limit.
func TestSilenceAfterMuchSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := peerOf(t, ConnConfig{}, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		defer c.Close()
		if err := c.Notify(bg, "much", encodeBin(make([]byte, transitBytesMax))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second/10)
		started := time.Now()
		err := c.Call(bg, "hang", nil, nil)
		if took := time.Since(started); !errors.Is(err, ErrSilent) || took < soonest || took > latest {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A live server is not found silent however long a call takes, even while it reads no requests
// because the maximum is in flight, and also in the last second.
func TestLongCallsStay(t *testing.T) {
	for _, s := range []struct {
		name string
		cfg  ServerConfig
		stop bool
	}{
		{"pings are answered", ServerConfig{}, false},
		{"no requests are read", ServerConfig{InFlightMax: 3}, false},
		{"the server stops", ServerConfig{}, true},
	} {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newBareServer(t, s.cfg)
				defer srv.Close()
				// The pipe accepts only bytes that are read, so writing an unread request may take
				// as long as the call.
				c, err := NewConn(context.Background(), pipe(srv), ConnConfig{WriteTimeout: 2 * time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				errs := make(chan error, 4)
				for range 4 {
					go func() { errs <- c.Call(context.Background(), "hold", nil, nil) }()
				}
				held := 4
				if s.cfg.InFlightMax > 0 {
					held = s.cfg.InFlightMax
				}
				srv.wait(held)
				if s.stop {
					go func() { _ = srv.Shutdown(context.Background()) }()
				}
				time.Sleep(time.Hour)
				srv.release()
				srv.wait(4 - held)
				srv.release()
				for range 4 {
					if err := <-errs; err != nil {
						t.Errorf("a call of an hour: %v", err)
					}
				}
			})
		})
	}
}

// A stopped process keeps its connections, and its kernel accepts bytes.
func TestStoppedProcess(t *testing.T) {
	addr, pid := startBenchServer(t)
	c, err := Dial(context.Background(), addr, ConnConfig{SilenceMax: 400 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get := func(e *wire.Encoder) {
		e.Array(1)
		e.Bin([]byte("k"))
	}
	if err := c.Call(context.Background(), "get", get, nil); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	for err == nil && time.Since(started) < 10*time.Second { // the signal takes some time
		err = c.Call(context.Background(), "get", get, nil)
	}
	if took := time.Since(started); !errors.Is(err, ErrSilent) {
		t.Errorf("a call to a stopped process ended after %v with: %v", took, err)
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
