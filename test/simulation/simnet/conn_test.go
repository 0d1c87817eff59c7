package simnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

// world is a network with two hosts, on which b listens at port 7000.
type world struct {
	*Network
	t        *testing.T
	a, b     *Host
	listener net.Listener
	events   []Event
}

func inWorld(t *testing.T, cfg Config, run func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		cfg.Rand = rand.New(rand.NewPCG(1, 2))
		cfg.Events = func(e Event) { w.events = append(w.events, e) }
		w.Network = New(cfg)
		defer w.Close()
		w.a, w.b = w.Host("10.0.0.1"), w.Host("10.0.0.2")
		w.listen()
		run(t, w)
	})
}

func (w *world) listen() {
	l, err := w.b.Listen("10.0.0.2:7000")
	if err != nil {
		w.t.Fatal(err)
	}
	w.listener = l
}

// pair returns the ends of a new connection, at a and at b.
func (w *world) pair() (*Conn, *Conn) {
	w.t.Helper()
	c, err := w.a.Dial(w.t.Context(), "10.0.0.2:7000")
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := w.listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	return c.(*Conn), s.(*Conn)
}

func (w *world) write(c *Conn, text string) {
	w.t.Helper()
	if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
		w.t.Fatalf("wrote %d bytes: %v", n, err)
	}
}

func (w *world) wantRead(c *Conn, text string) {
	w.t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		w.t.Fatalf("read %q, %v, want %q", got, err, text)
	}
}

func (w *world) wantReadError(c *Conn, want error) {
	w.t.Helper()
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, want) {
		w.t.Fatalf("read %d bytes, %v, want %v", n, err, want)
	}
}

func (w *world) wantWriteError(c *Conn, want error) {
	w.t.Helper()
	if _, err := c.Write([]byte("x")); !errors.Is(err, want) {
		w.t.Fatalf("write: %v, want %v", err, want)
	}
}

func (w *world) count(kind EventKind) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// took fails the test unless the time since start is in a range.
func (w *world) took(start time.Time, least, most time.Duration) {
	w.t.Helper()
	if d := time.Since(start); d < least || d > most {
		w.t.Errorf("took %v, want %v to %v", d, least, most)
	}
}

// TestBytes: all bytes arrive in order, in both directions, over links that lose segments (SN3).
func TestBytes(t *testing.T) {
	link := Link{Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.05, Bandwidth: 10 << 20}
	inWorld(t, Config{Link: link}, func(t *testing.T, w *world) {
		a, b := w.pair()
		var tasks sync.WaitGroup
		for i, ends := range [][2]*Conn{{a, b}, {b, a}} {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			want := make([]byte, 1<<20+i)
			for i := range want {
				want[i] = byte(rng.Uint32())
			}
			tasks.Go(func() {
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 1+int(rng.ExpFloat64()*2000))
					if _, err := ends[0].Write(rest[:n]); err != nil {
						t.Error(err)
					}
					rest = rest[n:]
				}
				if err := ends[0].CloseWrite(); err != nil {
					t.Error(err)
				}
			})
			tasks.Go(func() {
				got, err := io.ReadAll(ends[1])
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("read %d bytes, %v, want %d", len(got), err, len(want))
				}
			})
		}
		tasks.Wait()
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if len(w.a.conns)+len(w.b.conns)+len(w.a.ports) != 0 {
			t.Errorf("hosts hold %d and %d connections", len(w.a.conns), len(w.b.conns))
		}
	})
}

func TestAddresses(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		for _, addr := range []net.Addr{a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr(), w.listener.Addr()} {
			if _, ok := addr.(*net.TCPAddr); !ok {
				t.Errorf("%T", addr)
			}
		}
		if a.LocalAddr().String() != b.RemoteAddr().String() || a.RemoteAddr().String() != "10.0.0.2:7000" {
			t.Errorf("%v %v %v", a.LocalAddr(), b.RemoteAddr(), a.RemoteAddr())
		}
	})
}

func TestLatencyAndBandwidth(t *testing.T) {
	inWorld(t, Config{Link: Link{Delay: 10 * time.Millisecond, Bandwidth: 1 << 20}}, func(t *testing.T, w *world) {
		start := time.Now()
		a, b := w.pair()
		w.took(start, 30*time.Millisecond, 31*time.Millisecond) // until b has accepted
		start = time.Now()
		w.write(a, "hello")
		w.took(start, 0, 0)
		w.wantRead(b, "hello")
		w.took(start, 10*time.Millisecond, 11*time.Millisecond)
		start = time.Now()
		w.write(a, string(make([]byte, 128<<10)))
		w.wantRead(b, string(make([]byte, 128<<10)))
		w.took(start, 135*time.Millisecond, 140*time.Millisecond)
	})
}

func TestWriterWaitsForReader(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		done := make(chan struct{})
		go func() {
			w.write(a, string(make([]byte, 300<<10)))
			close(done)
		}()
		time.Sleep(time.Minute)
		select {
		case <-done:
			t.Error("300 KiB were written without a reader")
		default:
		}
		w.wantRead(b, string(make([]byte, 100<<10)))
		<-done
		w.wantRead(b, string(make([]byte, 200<<10)))
		_ = a.SetWriteDeadline(time.Now().Add(time.Second))
		start := time.Now()
		n, err := a.Write(make([]byte, 300<<10))
		if n != 256<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
		w.took(start, time.Second, time.Second)
	})
}

func TestConcurrentWritesDoNotMix(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		var tasks sync.WaitGroup
		for i := range 8 {
			tasks.Go(func() {
				for range 5 {
					w.write(a, string(bytes.Repeat([]byte{byte(i)}, 100<<10)))
				}
			})
		}
		for range 8 * 5 {
			got := make([]byte, 100<<10)
			if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
				t.Fatalf("writes are mixed: %v", err)
			}
		}
		tasks.Wait()
	})
}

func TestDeadlines(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		start := time.Now()
		_ = a.SetReadDeadline(start.Add(time.Second))
		w.wantReadError(a, os.ErrDeadlineExceeded)
		w.took(start, time.Second, time.Second)
		if _, err := a.Read(make([]byte, 1)); !err.(net.Error).Timeout() {
			t.Errorf("%v is no timeout", err)
		}
		_ = a.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Second, func() { _ = a.SetDeadline(time.Unix(1, 0)) }) // wakes a reader without deadline
		w.wantReadError(a, os.ErrDeadlineExceeded)
		w.wantWriteError(a, os.ErrDeadlineExceeded)
		_ = a.SetDeadline(time.Now().Add(time.Second))
		w.write(b, "x")
		w.wantRead(a, "x")
		time.AfterFunc(time.Millisecond, func() { _ = a.Close() })
		w.wantReadError(a, net.ErrClosed)
	})
}

func TestClose(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.write(a, "last")
		_ = a.Close()
		w.wantRead(b, "last")
		w.wantReadError(b, io.EOF)
		w.write(b, "late") // the peer's host answers with a reset
		time.Sleep(time.Millisecond)
		w.wantWriteError(b, syscall.ECONNRESET)

		a, b = w.pair()
		w.write(b, "never read")
		time.Sleep(time.Millisecond)
		_ = a.Close()
		w.wantReadError(b, syscall.ECONNRESET)

		a, b = w.pair()
		_ = a.SetLinger(0)
		w.write(a, "last")
		_ = a.Close()
		w.wantRead(b, "last")
		w.wantReadError(b, syscall.ECONNRESET)
		w.wantReadError(a, net.ErrClosed)
	})
}

func TestCut(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.write(a, "in flight ")
		w.Cut(w.a, w.b)
		w.write(a, "and later")
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { w.Heal(w.a, w.b) })
		w.wantRead(b, "in flight and later")
		w.took(start, 3*time.Second, 7*time.Second)
		w.write(b, "answer")
		w.wantRead(a, "answer")

		w.Cut(w.a, w.b) // for too long
		w.write(a, "lost")
		start = time.Now()
		w.wantReadError(a, syscall.ETIMEDOUT)
		w.took(start, 15*time.Second, 16*time.Second)
		w.wantWriteError(a, syscall.ETIMEDOUT)
		w.Heal(w.a, w.b)
		w.write(b, "for nothing")
		w.wantReadError(b, syscall.ECONNRESET)
	})
}

// TestOneWayCut: without acknowledgements, data arrives and the sender's connection fails.
func TestOneWayCut(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.Cut(w.b, w.a)
		start := time.Now()
		for range 10 {
			w.write(a, "data")
			w.wantRead(b, "data")
			time.Sleep(time.Second)
		}
		w.took(start, 10*time.Second, 11*time.Second)
		w.wantReadError(a, syscall.ETIMEDOUT)
		w.took(start, 15*time.Second, 16*time.Second)

		w.Heal(w.b, w.a)
		a, b = w.pair()
		w.Cut(w.b, w.a)
		w.write(a, "data")
		w.wantRead(b, "data")
		time.Sleep(10 * time.Second)
		w.Heal(w.b, w.a)
		time.Sleep(10 * time.Second)
		w.write(b, "answer")
		w.wantRead(a, "answer")
	})
}

func TestDial(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		dial := func(address string, timeout time.Duration, want error, least, most time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			start := time.Now()
			if _, err := w.a.Dial(ctx, address); !errors.Is(err, want) {
				t.Errorf("dial %s: %v, want %v", address, err, want)
			}
			w.took(start, least, most)
		}
		dial("10.0.0.2:7001", time.Hour, syscall.ECONNREFUSED, 0, time.Millisecond)
		dial("10.0.0.9:7000", time.Second, context.DeadlineExceeded, time.Second, time.Second)
		dial("10.0.0.9:7000", time.Hour, syscall.ETIMEDOUT, 127*time.Second, 127*time.Second)
		w.Cut(w.b, w.a)
		dial("10.0.0.2:7000", 10*time.Second, context.DeadlineExceeded, 10*time.Second, 10*time.Second)
		time.AfterFunc(4*time.Second, func() { w.Heal(w.b, w.a) })
		dial("10.0.0.2:7000", time.Hour, nil, 7*time.Second, 8*time.Second)
		if err := w.listener.Close(); err != nil {
			t.Error(err)
		}
		dial("10.0.0.2:7000", time.Hour, syscall.ECONNREFUSED, 0, time.Millisecond)
		var name *net.DNSError
		if _, err := w.a.Dial(t.Context(), "unknown:1"); !errors.As(err, &name) {
			t.Error(err)
		}
	})
}

func TestListen(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		for address, want := range map[string]error{
			":7000": syscall.EADDRINUSE, "10.0.0.2:7000": syscall.EADDRINUSE, "10.0.0.1:7001": syscall.EADDRNOTAVAIL,
		} {
			if _, err := w.b.Listen(address); !errors.Is(err, want) {
				t.Errorf("listen %s: %v, want %v", address, err, want)
			}
		}
		l, err := w.b.Listen("localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.b.Dial(t.Context(), l.Addr().String()); err != nil {
			t.Error(err)
		}
		c, err := l.Accept()
		if err != nil || !c.RemoteAddr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%v, %v", c.RemoteAddr(), err)
		}
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestFrozenProcess: without a process that accepts and reads, connects succeed up to the backlog.
func TestFrozenProcess(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range 129 {
			c, err := w.a.Dial(ctx, "10.0.0.2:7000")
			if (err == nil) != (i < 128) {
				t.Fatalf("dial %d: %v", i, err)
			}
			if err == nil {
				w.write(c.(*Conn), "request")
			}
		}
		c, err := w.listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		w.wantRead(c.(*Conn), "request")
		if _, err := w.a.Dial(t.Context(), "10.0.0.2:7000"); err != nil {
			t.Error(err)
		}
	})
}

func TestKill(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		ends, resets := 0, 0
		for range 20 {
			a, b := w.pair()
			w.write(b, "last")
			time.Sleep(time.Millisecond)
			w.b.Kill(false)
			w.wantRead(a, "last")
			switch _, err := a.Read(make([]byte, 1)); {
			case err == io.EOF:
				ends++
			case errors.Is(err, syscall.ECONNRESET):
				resets++
			default:
				t.Error(err)
			}
			w.wantReadError(b, net.ErrClosed)
			if _, err := w.listener.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if _, err := w.a.Dial(t.Context(), "10.0.0.2:7000"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			w.listen()
		}
		if ends == 0 || resets == 0 {
			t.Errorf("%d streams ended and %d were reset", ends, resets)
		}
		a, b := w.pair()
		w.write(a, "unread")
		time.Sleep(time.Millisecond)
		w.b.Kill(false)
		w.wantReadError(a, syscall.ECONNRESET)
		w.wantReadError(b, net.ErrClosed)
	})
}

func TestPowerLoss(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		idle, _ := w.pair()
		early, _ := w.pair()
		late, b := w.pair()
		w.write(b, "in flight")
		w.b.Kill(true)
		w.wantRead(late, "in flight")
		_ = idle.SetReadDeadline(time.Now().Add(time.Minute))
		w.wantReadError(idle, os.ErrDeadlineExceeded)
		start := time.Now()
		w.write(early, "x")
		w.wantReadError(early, syscall.ETIMEDOUT)
		w.took(start, 15*time.Second, 16*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.a.Dial(ctx, "10.0.0.2:7000"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.b.Up()
		w.write(late, "x")
		w.wantReadError(late, syscall.ECONNRESET)
		w.listen()
		a, b := w.pair()
		w.write(a, "new")
		w.wantRead(b, "new")

		_ = idle.SetReadDeadline(time.Now().Add(time.Minute))
		w.wantReadError(idle, syscall.ECONNRESET) // by a probe
		start = time.Now()
		w.b.Kill(true)
		w.wantReadError(a, syscall.ETIMEDOUT)
		w.took(start, 135*time.Second, 136*time.Second)
	})
}

// TestConformance runs the tests of package nettest, on the real clock.
func TestConformance(t *testing.T) {
	n := New(Config{Rand: rand.New(rand.NewPCG(1, 2)), Loopback: Link{Delay: time.Nanosecond}})
	defer n.Close()
	h := n.Host("10.0.0.1")
	nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
		l, err := h.Listen(":0")
		if err != nil {
			return nil, nil, nil, err
		}
		if a, err = h.Dial(t.Context(), l.Addr().String()); err != nil {
			return nil, nil, nil, err
		}
		if b, err = l.Accept(); err != nil {
			return nil, nil, nil, err
		}
		return a, b, func() { _, _, _ = a.Close(), b.Close(), l.Close() }, nil
	})
}
