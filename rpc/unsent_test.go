package rpc

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/internal/wire"
)

// answered is the length of a plain response with n bytes in an array, for ids below 128 and n from
// 256 to 65535.
func answered(n int) int { return n + 8 }

// TestAnswersOfABatch: 256 KiB of responses are written before more requests are handled.
func TestAnswersOfABatch(t *testing.T) {
	const answer = flushBytes / 4
	for size, want := range map[int]int64{answer: 4, answer - 1: 5} {
		synctest.Test(t, func(t *testing.T) {
			s := newBareServer(t, ServerConfig{})
			defer s.Close()
			var handled atomic.Int64
			s.Handle("answer", Inline, func(c *Call) {
				handled.Add(1)
				c.Reply(func(e *wire.Encoder) {
					e.Array(1)
					e.Bin(make([]byte, size-answered(0)))
				})
			})
			conn := pipe(s)
			var batch []byte
			for i := range 8 {
				batch = append(batch, plain(0, i, "answer", []any{})...)
			}
			if _, err := conn.Write(batch); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := handled.Load(); n != want {
				t.Errorf("with answers of %d bytes %d requests are handled before the client reads, want %d", size, n, want)
			}
			got := collect(conn)
			synctest.Wait()
			conn.Close()
			if n := len(got()); n != 8*size || handled.Load() != 8 {
				t.Errorf("%d requests have %d bytes of answers, want %d", handled.Load(), n, 8*size)
			}
		})
	}
}

// hold makes n requests whose responses, of size bytes each, are sent by release.
func hold(t *testing.T, s *testServer, n, size int) net.Conn {
	t.Helper()
	conn := pipe(s)
	for i := range n {
		if _, err := conn.Write(plain(0, i, "hold", []any{make([]byte, size-answered(0))})); err != nil {
			t.Fatal(err)
		}
	}
	s.wait(n)
	synctest.Wait()
	return conn
}

// TestUnsentBytesStopReading: a connection is not read while UnsentBytesMax bytes or more are
// unsent.
func TestUnsentBytesStopReading(t *testing.T) {
	const answer, answers = 64 << 10, 6
	for max, want := range map[int64]int{answers * answer: 1, answers*answer + 1: 2} {
		synctest.Test(t, func(t *testing.T) {
			s := newBareServer(t, ServerConfig{UnsentBytesMax: max})
			defer s.Close()
			conn := hold(t, s, answers, answer)
			s.release()
			synctest.Wait()
			go func() {
				for range 2 { // it waited for the first one while the responses were queued
					_, _ = conn.Write(plain(2, "echo", []any{}))
				}
			}()
			synctest.Wait()
			if n := s.ran("echo"); n != want {
				t.Errorf("with %d of %d bytes unsent %d requests are read, want %d", answers*answer, max, n, want)
			}
			if _, err := io.CopyN(io.Discard, conn, answers*answer); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := s.ran("echo"); n != 2 {
				t.Errorf("%d requests are read after the client has read its answers", n)
			}
			conn.Close()
		})
	}
}

// TestUnsentBytesMost: a connection ends when a response is added to more than 16 times
// UnsentBytesMax unsent bytes.
func TestUnsentBytesMost(t *testing.T) {
	const answer = 64 << 10
	for answers, ends := range map[int]bool{17: false, 18: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newBareServer(t, ServerConfig{UnsentBytesMax: answer})
			defer s.Close()
			conn := hold(t, s, answers, answer)
			s.release()
			synctest.Wait()
			if st := s.Stats(); (st.Conns == 0) != ends || (st.Stalled == 1) != ends {
				t.Errorf("%d answers of a 16th of the bound: %+v", answers, st)
			}
			conn.Close()
		})
	}
}

// TestPeerIDs: connections are numbered from 1 in the order in which they open.
func TestPeerIDs(t *testing.T) {
	ids := make(chan uint64, 1)
	s := newBareServer(t, ServerConfig{OwnerOf: func(p *Peer) string {
		ids <- p.ID
		return ""
	}})
	defer s.Close()
	for want := range uint64(3) {
		conn := pipe(s)
		if _, err := conn.Write(plain(0, 1, "echo-pooled", []any{})); err != nil {
			t.Fatal(err)
		}
		if got := <-ids; got != want+1 {
			t.Errorf("connection %d has the id %d", want+1, got)
		}
		conn.Close()
	}
}

// TestNoConnsWhileDraining: a server that shuts down serves no new connection or listener, but
// still serves the old ones.
func TestNoConnsWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int64
		s := newBareServer(t, ServerConfig{OnConns: func(n int) { opened.Add(int64(n)) }})
		claimed := s.Claim('R')
		conn, early := hold(t, s, 1, 1000), pipe(s)
		down := make(chan error, 1)
		go func() { down <- s.Shutdown(bg) }()
		synctest.Wait()
		late := pipe(s)
		if _, err := late.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection to a server that shuts down: %v", err)
		}
		if err := s.Serve(nopListener{}); err != ErrServerClosed {
			t.Errorf("a listener of a server that shuts down: %v", err)
		}
		if _, err := claimed.Accept(); err == nil {
			t.Error("a connection is detached by a server that shuts down")
		}
		if st := s.Stats(); st.Refused != 1 || opened.Load() != st.Conns || st.Conns != 1 || len(down) != 0 {
			t.Errorf("%d connections are open, OnConns has %d, %d rejected", st.Conns, opened.Load(), st.Refused)
		}
		got := collect(conn)
		s.release()
		if err := <-down; err != nil {
			t.Error(err)
		}
		if n := len(responses(t, got(), false)); n != 1 {
			t.Errorf("%d answers to requests in flight", n)
		}
		early.Close()
	})
}
