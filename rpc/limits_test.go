package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// pipe serves one end of an in-memory connection, for tests on virtual time.
func pipe(s *testServer) net.Conn {
	client, server := net.Pipe()
	s.ServeConn(server)
	return client
}

// collect reads a connection to its end in the background.
func collect(c net.Conn) (got func() []byte) {
	var buf bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&buf, c)
	}()
	return func() []byte {
		<-done
		return buf.Bytes()
	}
}

// A message that is not completed in time ends its connection, even if bytes keep trickling in.
func TestHalfSentMessageTimesOut(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   []byte
		trickle int // bytes a second
		ends    bool
	}{
		{"plain, stops", plain(0, 1, "echo", []any{"x"})[:5], 0, true},
		{"plain, trickles", plain(0, 1, "echo", []any{make([]byte, 1000)})[:20], 1, true},
		{"framed, stops", append(opening(), frame(plain(0, 1, "echo", []any{}))[:17]...), 0, true},
		{"framed and small, trickles", append(opening(), frame(plain(0, 1, "echo", []any{make([]byte, 1000)}))[:40]...), 1, true},
		{"framed, trickles", append(opening(), frame(plain(0, 1, "echo", []any{make([]byte, 1<<20)}))[:17]...), 100, true},
		{"framed, large and slow but coming", append(opening(), frame(plain(0, 1, "echo", []any{make([]byte, 1<<20)}))...)[:200<<10], 4 << 10, false},
		{"preamble stops", []byte("STEL"), 0, true},
		{"plain, idle after a message", plain(0, 1, "echo", []any{}), 0, false},
		{"framed, idle after a message", append(opening(), frame(plain(0, 1, "echo", []any{}))...), 0, false},
		{"says nothing", nil, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBareServer(t, ServerConfig{})
				defer s.Close()
				conn := pipe(s)
				got := collect(conn)
				_, _ = conn.Write(c.first)
				for range 100 {
					time.Sleep(time.Second)
					if _, err := conn.Write(make([]byte, c.trickle)); err != nil {
						break
					}
				}
				synctest.Wait()
				if st := s.Stats(); c.ends != (st.Conns == 0) || st.MemoryBytes > 2<<20 {
					t.Errorf("after 100 s: %+v", st)
				}
				conn.Close()
				got()
			})
		})
	}
}

// A connection without a first byte lives for FirstByteTimeout. After its first byte it may be idle
// forever, also if it was claimed.
func TestFirstByteTimeout(t *testing.T) {
	for name, first := range map[string][]byte{
		"plain": plain(0, 1, "echo", []any{}), "framed": append(opening(), frame(plain(0, 1, "echo", []any{}))...), "claimed": {'R'},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBareServer(t, ServerConfig{FirstByteTimeout: 20 * time.Second})
				defer s.Close()
				claimed := s.Claim('R')
				silent, speaks := pipe(s), pipe(s)
				endSilent, endSpeaks := collect(silent), collect(speaks)
				time.Sleep(19 * time.Second)
				if st := s.Stats(); st.Conns != 2 {
					t.Errorf("after 19 s: %d connections", st.Conns)
				}
				_, _ = speaks.Write(first)
				var taken net.Conn
				if name == "claimed" {
					taken, _ = claimed.Accept()
				}
				time.Sleep(time.Hour)
				if got := endSilent(); len(got) != 0 {
					t.Errorf("the silent connection got % x", got)
				}
				if taken == nil {
					if st := s.Stats(); st.Conns != 1 {
						t.Errorf("after an hour: %d connections", st.Conns)
					}
				} else {
					go speaks.Write([]byte{7})
					var b [1]byte
					if _, err := taken.Read(b[:]); err != nil {
						t.Errorf("read from the claimed connection after an hour: %v", err)
					}
					taken.Close()
				}
				speaks.Close()
				endSpeaks()
			})
		})
	}
}

// The result of Identify for a connection is its peer's Identity, and no other peer's.
func TestIdentity(t *testing.T) {
	identities := make(chan any, 2)
	s := newBareServer(t, ServerConfig{Identify: func(c net.Conn) any { return "it comes from " + c.RemoteAddr().String() }})
	s.Handle("who", Inline, func(c *Call) {
		identities <- c.Peer().Identity
		c.Reply(func(e *wire.Encoder) { e.Nil() })
	})
	listen(t, s)
	for range 2 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(plain(0, 1, "who", []any{}))
		if got, want := <-identities, "it comes from "+conn.LocalAddr().String(); got != want {
			t.Errorf("identity is %v, want %s", got, want)
		}
		conn.Close()
	}
}

// A request that the guard rejects reaches no handler. It is answered with the guard's error; a
// notification is dropped. A connection with a lowered message limit gets no long message through.
func TestGuard(t *testing.T) {
	s := newBareServer(t, ServerConfig{
		Guard: func(p *Peer, method string) error {
			if p.ID == 0 || method == "secret" {
				return Errorf(CodeUnauthenticated, "who are you")
			}
			return nil
		},
		MessageBytesOf: func(*Peer) int { return 1000 },
	})
	ran := make(chan struct{}, 9)
	for _, method := range []string{"secret", "open"} {
		s.Handle(method, Inline, func(c *Call) {
			ran <- struct{}{}
			c.Reply(nil)
		})
	}
	listen(t, s)
	conn, err := Dial(t.Context(), s.addr, ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := func(n int) func(e *wire.Encoder) {
		return func(e *wire.Encoder) { e.Array(1); e.Str(strings.Repeat("x", n)) }
	}
	if err := conn.Call(t.Context(), "secret", text(1), nil); !errors.Is(err, CodeUnauthenticated) {
		t.Errorf("call: %v", err)
	}
	_ = conn.Notify(t.Context(), "secret", text(1))
	if err := conn.Call(t.Context(), "open", text(900), nil); err != nil {
		t.Errorf("a call that is not guarded: %v", err)
	}
	if st := s.Stats(); len(ran) != 1 || st.Guarded != 2 {
		t.Errorf("%d handlers ran, %d requests were rejected", len(ran), st.Guarded)
	}
	if err := conn.Call(t.Context(), "open", text(1001), nil); err == nil || len(ran) != 1 {
		t.Errorf("a long message: %v, %d handlers ran", err, len(ran))
	}
}

// A TLS server is distinguished from one of an unknown protocol.
func TestDialToTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, preambleBytes))
		_, _ = c.Write([]byte{0x15, 3, 3, 0, 2, 2, 40})
	}()
	if _, err := Dial(t.Context(), l.Addr().String(), ConnConfig{}); !errors.Is(err, ErrWantsTLS) {
		t.Errorf("got %v", err)
	}
}

// P1: a claimed length costs nothing before its bytes arrive.
func TestClaimedLengthAllocatesNothing(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	head := make([]byte, headerBytes)
	binary.LittleEndian.PutUint32(head, 300<<20)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const conns = 20
	for i := range conns {
		c := s.raw(t)
		if i%2 == 0 {
			_, _ = c.Write(append(opening(), head...))
		} else {
			_, _ = c.Write(wiretest.Unhex(t, "94 00 01 a4 6563686f 91 c612c00000"))
		}
		_, _ = c.Write(make([]byte, 1000))
	}
	waitFor(t, "the bytes to be read", func() bool { return s.Stats().BytesIn >= conns*1000 })
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > conns*(bodyBytesMin+256<<10) {
		t.Errorf("%d connections that claim 300 MiB each: %d bytes allocated", conns, got)
	}
	if held := s.Stats().MemoryBytes; held > conns*bodyBytesMin {
		t.Errorf("%d bytes charged", held)
	}
}

// A client that does not read its responses costs a bounded amount of memory for a bounded time.
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{UnsentBytesMax: 1 << 20})
		defer s.Close()
		conn := pipe(s)
		sent := 0
		for {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Hour))
			if _, err := conn.Write(plain(0, sent, "big", []any{100_000})); err != nil {
				break
			}
			sent++
			if held := s.Stats().MemoryBytes; held > 2<<20 {
				t.Fatalf("holds %d bytes after %d requests", held, sent)
			}
		}
		synctest.Wait()
		if st := s.Stats(); st.Conns != 0 || st.Stalled != 1 || st.MemoryBytes != 0 || sent > 50 {
			t.Errorf("after %d requests: %+v", sent, st)
		}
		conn.Close()
	})
}

// Responses to a client that does not read end the connection at a limit.
func TestUnsentBytesEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{UnsentBytesMax: 64 << 10})
		defer s.Close()
		conn := pipe(s)
		const n = 40
		for i := range n {
			_, _ = conn.Write(plain(0, i, "hold", []any{make([]byte, 64<<10)}))
		}
		s.wait(n)
		s.release()
		synctest.Wait()
		if st := s.Stats(); st.Conns != 0 || st.Stalled != 1 || st.MemoryBytes != 0 {
			t.Errorf("stats: %+v", st)
		}
		conn.Close()
	})
}

func TestInFlightMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{InFlightMax: 3})
		defer s.Close()
		conn := pipe(s)
		got := collect(conn)
		go func() {
			for i := range 9 {
				_, _ = conn.Write(plain(0, i, "hold", []any{}))
			}
		}()
		for range 3 {
			synctest.Wait()
			if st := s.Stats(); st.InFlight != 3 || len(s.got) != 3 {
				t.Errorf("%d in flight, %d handled", st.InFlight, len(s.got))
			}
			s.wait(3)
			s.release()
		}
		synctest.Wait()
		conn.Close()
		if n := len(responses(t, got(), false)); n != 9 {
			t.Errorf("%d answers", n)
		}
	})
}

// overloads checks that responses are "overloaded" with all documented fields.
func overloads(t *testing.T, rs []response, ids ...uint32) {
	t.Helper()
	if len(rs) != len(ids) {
		t.Fatalf("%d answers, want %d", len(rs), len(ids))
	}
	for i, r := range rs {
		if r.id != ids[i] || r.err == nil || !errors.Is(r.err, CodeOverloaded) || !r.err.Retryable || r.err.Details["retry_after_ms"] != int64(100) {
			t.Errorf("answer to %d: %v, want overloaded to %d", r.id, r.err, ids[i])
		}
	}
}

// When memory is used up, requests wait and are then rejected. They are served again once it is
// free.
func TestMemoryBytesMax(t *testing.T) {
	for _, framed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newBareServer(t, ServerConfig{MessageBytesMax: 1 << 20, MemoryBytesMax: 1 << 20})
			defer s.Close()
			send := func(c net.Conn, m []byte) {
				if framed {
					m = frame(m)
				}
				_, _ = c.Write(m)
			}
			open := func() net.Conn {
				c := pipe(s)
				if framed {
					_, _ = c.Write(opening())
				}
				return c
			}
			hog, other := open(), open()
			hogGot, otherGot := collect(hog), collect(other)
			for i := range 8 {
				send(hog, plain(0, i, "hold", []any{make([]byte, 112<<10)}))
			}
			s.wait(8)
			start := time.Now()
			send(other, plain(0, 2, "echo", []any{make([]byte, 127<<10)})) // small: in the read buffer
			if framed {
				send(other, plain(0, 3, "echo", []any{make([]byte, 500<<10)})) // large: discarded as it arrives
			}
			send(other, plain(0, 4, "echo", []any{"tiny"})) // fits
			synctest.Wait()
			if d := time.Since(start); d < time.Second {
				t.Errorf("refused after %v", d)
			}
			s.release()
			synctest.Wait()
			send(other, plain(0, 5, "echo", []any{make([]byte, 500<<10)}))
			synctest.Wait()
			hog.Close()
			other.Close()
			hogGot()
			all := responses(t, otherGot(), framed)
			refused := []uint32{2}
			if framed {
				refused = []uint32{2, 3}
			}
			overloads(t, all[:len(refused)], refused...)
			for _, r := range all[len(refused):] {
				if r.err != nil {
					t.Errorf("answer to %d: %v", r.id, r.err)
				}
			}
			synctest.Wait()
			if n := len(all) - len(refused); n != 2 || s.Stats().MemoryBytes != 0 {
				t.Errorf("%d served, stats %+v", n, s.Stats())
			}
		})
	}
}

// In plain mode the end of a large message that is rejected for lack of memory is not known: the
// sender gets an error, and the connection ends.
func TestMemoryRefusedPlainLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{MessageBytesMax: 1 << 20, MemoryBytesMax: 1 << 20})
		defer s.Close()
		hog, other := pipe(s), pipe(s)
		hogGot, otherGot := collect(hog), collect(other)
		_, _ = hog.Write(plain(0, 1, "hold", []any{make([]byte, 900<<10)}))
		s.wait(1)
		_, _ = other.Write(plain(0, 2, "echo", []any{make([]byte, 500<<10)}))
		overloads(t, responses(t, otherGot(), false), 2)
		s.release()
		synctest.Wait()
		hog.Close()
		hogGot()
	})
}

// A message larger than all memory is still served if it is the only one.
func TestMessageOfAllMemory(t *testing.T) {
	s := newTestServer(t, ServerConfig{MessageBytesMax: 1 << 20, MemoryBytesMax: 1 << 20})
	in := plain(0, 1, "hold", []any{make([]byte, 1<<20-100)})
	c := s.raw(t)
	go func() {
		_, _ = c.Write(in)
		_ = c.CloseWrite()
	}()
	s.wait(1)
	s.release()
	got, err := io.ReadAll(c)
	if all := responses(t, got, false); err != nil || len(all) != 1 || all[0].err != nil {
		t.Errorf("%d answers, %v", len(all), err)
	}
}

// busy occupies a server's only worker, or its only goroutine.
func busy(s *testServer, mode Mode) (free func()) {
	c := make(chan struct{})
	s.Handle("block", mode, func(call *Call) {
		s.got <- struct{}{}
		<-c
		call.Reply(nil)
	})
	return func() { close(c) }
}

func TestWorkersAndSpawnedAreBounded(t *testing.T) {
	for _, c := range []struct {
		mode   Mode
		method string
		queue  int
	}{{Pooled, "echo-pooled", 2}, {Spawned, "echo-spawned", 0}, {Waiting, "echo-waiting", 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := newBareServer(t, ServerConfig{Workers: 1, WorkQueue: 2, SpawnedMax: 1, WaitingMax: 1})
			defer s.Close()
			free := busy(s, c.mode)
			conn := pipe(s)
			got := collect(conn)
			_, _ = conn.Write(plain(0, 0, "block", []any{}))
			s.wait(1)
			start := time.Now()
			for i := range c.queue + 2 {
				_, _ = conn.Write(plain(0, 1+i, c.method, []any{}))
			}
			_, _ = conn.Write(plain(0, 99, "echo", []any{})) // waits behind it, is not rejected
			synctest.Wait()
			time.Sleep(3 * time.Second)
			if d := time.Since(start); d < 2*time.Second || s.Stats().Overloaded != 2 {
				t.Errorf("after %v: %+v", d, s.Stats())
			}
			free()
			synctest.Wait()
			conn.Close()
			all := responses(t, got(), false)
			n := uint32(c.queue)
			overloads(t, all[:2], n+1, n+2)
			if len(all) != 4+c.queue || s.ran(c.method) != c.queue {
				t.Errorf("%d answers, ran %d times", len(all), s.ran(c.method))
			}
		})
	}
}

// Goroutines that have waited together do not all stay idle.
func TestWaitingGoroutinesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{SpawnedMax: 2, WaitingMax: 100})
		defer s.Close()
		free := busy(s, Waiting)
		conn := pipe(s)
		got := collect(conn)
		for i := range 50 {
			_, _ = conn.Write(plain(0, i, "block", []any{}))
		}
		s.wait(50)
		if n := s.long.count.Load(); n != 50 {
			t.Errorf("%d goroutines wait", n)
		}
		free()
		synctest.Wait()
		if n := s.long.count.Load(); n != 2 {
			t.Errorf("%d goroutines stay", n)
		}
		_, _ = conn.Write(plain(0, 99, "echo-waiting", []any{}))
		synctest.Wait()
		conn.Close()
		if n := len(responses(t, got(), false)); n != 51 {
			t.Errorf("%d answers", n)
		}
	})
}

// P4: a request whose deadline passed while it waited is not run.
func TestDeadlinePassedIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{Workers: 1})
		defer s.Close()
		free := busy(s, Pooled)
		conn := pipe(s)
		got := collect(conn)
		_, _ = conn.Write(append(opening(), frame(plain(0, 0, "block", []any{}))...))
		s.wait(1)
		for i, ms := range []uint32{500, 1500, 0} {
			b := frame(plain(0, 1+i, "echo-pooled", []any{}))
			sealFrame(b, ms)
			_, _ = conn.Write(b)
		}
		time.Sleep(time.Second)
		free()
		synctest.Wait()
		conn.Close()
		all := responses(t, got(), true)
		if len(all) != 4 || all[1].err == nil || !errors.Is(all[1].err, CodeDeadlineExceeded) || all[1].err.Details["executed"] != int64(0) || all[2].err != nil || all[3].err != nil {
			t.Errorf("answers %+v", all)
		}
		if st := s.Stats(); st.Late != 1 || s.ran("echo-pooled") != 2 {
			t.Errorf("ran %d, stats %+v", s.ran("echo-pooled"), st)
		}
	})
}

func TestConnsMax(t *testing.T) {
	s := newTestServer(t, ServerConfig{ConnsMax: 2})
	a, b := s.raw(t), s.raw(t)
	waitFor(t, "two connections", func() bool { return s.Stats().Conns == 2 })
	third := s.raw(t)
	if _, err := third.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("third connection: %v", err)
	}
	a.Close()
	waitFor(t, "one to go", func() bool { return s.Stats().Conns == 1 })
	fourth := s.raw(t)
	_, _ = fourth.Write(plain(0, 1, "echo", []any{}))
	_ = fourth.CloseWrite()
	if got, err := io.ReadAll(fourth); err != nil || len(got) == 0 {
		t.Errorf("fourth connection: % x, %v", got, err)
	}
	b.Close()
}

// OnConns is called for connections that are served, and for no others.
func TestOnConns(t *testing.T) {
	changes := make(chan int, 10)
	s := newTestServer(t, ServerConfig{ConnsMax: 1, OnConns: func(change int) { changes <- change }})
	for range 3 {
		c := s.raw(t)
		if got := <-changes; got != 1 {
			t.Errorf("for one more: %d", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got := <-changes; got != -1 {
			t.Errorf("for one less: %d", got)
		}
	}
}

// Connections are reserved for preferred peers, however many others there are.
func TestConnsReserved(t *testing.T) {
	var preferred atomic.Bool
	s := newTestServer(t, ServerConfig{
		ConnsMax: 4, ReservedConns: 2, Identify: func(net.Conn) any { return preferred.Load() },
		Preferred: func(p *Peer) bool { return p.Identity.(bool) },
	})
	open := func(want bool) {
		t.Helper()
		c := s.raw(t)
		_, _ = c.Write(plain(0, 1, "echo", []any{}))
		if _, err := c.Read(make([]byte, 1)); (err == nil) != want {
			t.Errorf("a connection that is preferred, %v, to a server with %d: %v", preferred.Load(), s.Stats().Conns, err)
		}
	}
	open(true)
	open(true)
	open(false)
	preferred.Store(true)
	open(true)
	open(true)
	open(false)
}

func TestConfigValidate(t *testing.T) {
	for _, c := range []ServerConfig{
		{MessageBytesMax: 1000}, {MessageBytesMax: 2 << 30}, {MemoryBytesMax: 1 << 20}, {InFlightMax: -1},
		{UnsentBytesMax: -1}, {ConnsMax: -1}, {ReservedConns: -1}, {ConnsMax: 5, ReservedConns: 5}, {Workers: -1}, {WorkQueue: -1}, {SpawnedMax: -1}, {AdmitWait: -1}, {WriteTimeout: -1},
	} {
		if _, err := NewServer(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
	if err := (ConnConfig{MessageBytesMax: 5}).withDefaults().Validate(); err == nil {
		t.Error("accepted a message limit of 5 bytes")
	}
}

// A gate never grants more than its maximum, and serves waiters in order.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 0)
		if !g.tryAcquire(6) || g.tryAcquire(5) || !g.tryAcquire(4) {
			t.Fatal("first takers")
		}
		var order []int
		for i := range 3 {
			go func() {
				if g.acquire(5, false, time.Minute, nil) {
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		if g.tryAcquire(0) {
			t.Error("overtook waiters")
		}
		start := time.Now()
		if g.acquire(1, false, time.Second, nil) || time.Since(start) != time.Second {
			t.Error("returned before its timeout")
		}
		g.release(4)
		synctest.Wait()
		if len(order) != 0 {
			t.Error("granted too early")
		}
		for _, n := range []int64{1, 5, 5} { // each release makes space for one of them
			g.release(n)
			synctest.Wait()
		}
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Errorf("order %v", order)
		}
		g.release(10)
		if g.used.Load() != 0 || g.waiting.Load() != 0 {
			t.Errorf("%d used, %d waiting", g.used.Load(), g.waiting.Load())
		}
		if !g.tryAcquire(100) || g.tryAcquire(1) {
			t.Error("an amount over the maximum must fit if nothing else is taken")
		}
	})
}

// Other takers cannot use what a gate reserves for preferred ones, and preferred takers wait only
// behind preferred ones.
func TestGatePrefers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(10, 3)
		if g.tryAcquire(6); g.tryAcquire(2) || !g.tryAcquire(1) {
			t.Fatal("the others do not have 7 of 10")
		}
		var order []string
		wait := func(name string, n int64, preferred bool) {
			go func() {
				if g.acquire(n, preferred, time.Minute, nil) {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		wait("other", 1, false)
		if !g.tryAcquirePreferred(2) {
			t.Error("a preferred taker waits behind another")
		}
		wait("first", 2, true)
		wait("second", 1, true)
		if g.tryAcquirePreferred(1) || len(order) != 0 {
			t.Errorf("overtook a preferred taker; %v were served", order)
		}
		for range 4 {
			g.release(1)
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "first second" {
			t.Errorf("served: %s", got)
		}
		if g.release(1); g.preferred.Load() != 0 || g.waiting.Load() != 1 {
			t.Errorf("%d wait, %d of them preferred", g.waiting.Load(), g.preferred.Load())
		}
		g.release(1)
		synctest.Wait()
		if got := strings.Join(order, " "); got != "first second other" {
			t.Errorf("served: %s", got)
		}
		wait("late", 4, true)
		if len(order) != 4 && g.preferred.Load() != 1 {
			t.Error("neither served nor counted")
		}
		time.Sleep(2 * time.Minute)
		if g.preferred.Load() != 0 || g.waiting.Load() != 0 {
			t.Errorf("%d wait, %d of them preferred, after their time", g.waiting.Load(), g.preferred.Load())
		}
	})
}

// What other takers have forced (their unread responses) does not make preferred takers wait.
func TestGateForced(t *testing.T) {
	g := newGate(10, 3)
	if !g.tryAcquire(7) {
		t.Fatal("the others do not have 7 of 10")
	}
	g.force(5, false)
	if g.tryAcquire(1) || !g.tryAcquirePreferred(2) || g.tryAcquirePreferred(2) {
		t.Error("the preferred do not have 3 of 10")
	}
	g.force(2, true)
	if g.release(2); g.tryAcquirePreferred(2) {
		t.Error("what the preferred have forced counts for nothing")
	}
	g.releaseForced(2, true)
	if g.releaseForced(5, false); !g.tryAcquirePreferred(2) || g.forced.Load() != 0 || g.used.Load() != 9 {
		t.Errorf("%d forced of %d", g.forced.Load(), g.used.Load())
	}
}
