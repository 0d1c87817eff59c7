package rpc

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TestMemoryPressure: a slow reader is tolerated, but not while others wait for the memory that its
// responses hold.
func TestMemoryPressure(t *testing.T) {
	const answer = 4 << 20
	for _, test := range []struct {
		what      string
		perSecond int // bytes that the client reads
		large     bool
		patient   bool
		ends      bool // during memory pressure
	}{
		{what: "reads nothing", large: true, ends: true},
		{what: "drips", perSecond: 200 << 10, large: true, ends: true},
		{what: "reads at a fair pace", perSecond: 1 << 20, large: true},
		{what: "holds little"},
		{what: "is waited for", large: true, patient: true},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBareServer(t, ServerConfig{Patient: func(*Peer) bool { return test.patient }})
				defer s.Close()
				sent := make(chan struct{}, 1)
				s.Handle("answer", Inline, func(c *Call) {
					c.OnSent(func() { sent <- struct{}{} })
					size := 1000
					if test.large {
						size = answer
					}
					c.Reply(func(e *wire.Encoder) { e.Bin(make([]byte, size)) })
				})
				conn := pipe(s)
				defer conn.Close()
				if _, err := conn.Write(plain(0, 1, "answer", []any{})); err != nil {
					t.Fatal(err)
				}
				go readSlowly(conn, test.perSecond)
				time.Sleep(time.Second)
				over := s.MemoryPressure()
				time.Sleep(2 * time.Second)
				over()
				over()
				if ended := s.Stats().Conns == 0; ended != test.ends {
					t.Errorf("after 2 s of memory pressure the connection has ended: %v", ended)
				}
				if free := len(sent) == 1; free != (test.ends || !test.large) {
					t.Errorf("the memory is free: %v", free)
				}
				time.Sleep(time.Second)
				if ended := s.Stats().Conns == 0; ended != test.ends {
					t.Errorf("after the memory pressure the connection has ended: %v", ended)
				}
				conn.Close()
				time.Sleep(time.Second) // until the reader sees it
				if n := s.Stats().Stalled; (n == 1) != test.ends || n > 1 {
					t.Errorf("%d connections are counted as stalled", n)
				}
			})
		})
	}
}

// readSlowly reads perSecond bytes a second, in tenths, until the connection ends.
func readSlowly(conn io.Reader, perSecond int) {
	for perSecond > 0 {
		time.Sleep(100 * time.Millisecond)
		if _, err := io.CopyN(io.Discard, conn, int64(perSecond/10)); err != nil {
			return
		}
	}
}

// TestSlowClientWithoutPressure: without memory pressure a client may be slow.
func TestSlowClientWithoutPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{})
		defer s.Close()
		s.Handle("answer", Inline, func(c *Call) { c.Reply(func(e *wire.Encoder) { e.Bin(make([]byte, 4<<20)) }) })
		conn := pipe(s)
		defer conn.Close()
		if _, err := conn.Write(plain(0, 1, "answer", []any{})); err != nil {
			t.Fatal(err)
		}
		s.MemoryPressure()() // ends at once
		time.Sleep(29 * time.Second)
		if s.Stats().Conns != 1 {
			t.Error("ended")
		}
		time.Sleep(2 * time.Second)
		if s.Stats().Conns != 0 {
			t.Error("a client that reads nothing for 30 s is still connected")
		}
	})
}

// TestPressureFreesMemory: requests that wait for memory held by an unread response get it.
func TestPressureFreesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{MessageBytesMax: 4 << 20, MemoryBytesMax: 4 << 20, UnsentBytesMax: 4 << 20, AdmitWait: 3 * time.Second})
		defer s.Close()
		s.Handle("answer", Inline, func(c *Call) { c.Reply(func(e *wire.Encoder) { e.Bin(make([]byte, 4<<20-100)) }) })
		slow := pipe(s)
		defer slow.Close()
		if _, err := slow.Write(plain(0, 1, "answer", []any{})); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other := pipe(s)
		defer other.Close()
		began := time.Now()
		if _, err := other.Write(plain(0, 1, "echo", []any{"x"})); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		if _, err := io.ReadFull(other, b); err != nil {
			t.Fatal(err)
		}
		if b[0] != 0x94 || b[1] != 1 || b[3] != 0xc0 {
			t.Errorf("answer % x", b)
		}
		if d := time.Since(began); d < time.Second || d > 2*time.Second {
			t.Errorf("after %v", d)
		}
	})
}

// TestSlowSenders: a large message may arrive slowly, but not while requests wait for memory,
// except from an exempt peer.
func TestSlowSenders(t *testing.T) {
	const message, gate = 6 << 20, 8 << 20
	for _, test := range []struct {
		what      string
		perSecond int // bytes of the message
		patient   bool
		waits     bool // another request needs the memory
		ends      bool
	}{
		{what: "nothing comes", waits: true, ends: true},
		{what: "it drips", perSecond: 40 << 10, waits: true, ends: true},
		{what: "it comes at a fair pace", perSecond: 300 << 10, waits: true},
		{what: "nobody waits", perSecond: 10 << 10},
		{what: "it is waited for", patient: true, waits: true},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBareServer(t, ServerConfig{
					MessageBytesMax: gate, MemoryBytesMax: gate, AdmitWait: 3 * time.Second, Patient: func(*Peer) bool { return test.patient },
				})
				defer s.Close()
				slow := pipe(s)
				defer slow.Close()
				body := plain(0, 1, "echo", []any{make([]byte, message)})
				if _, err := slow.Write(body[:message/2+message/4]); err != nil { // its buffer has doubled
					t.Fatal(err)
				}
				go func() {
					for rest := body[message/2+message/4:]; test.perSecond > 0 && len(rest) > 0; {
						time.Sleep(100 * time.Millisecond)
						n := min(len(rest), test.perSecond/10)
						if _, err := slow.Write(rest[:n]); err != nil {
							return
						}
						rest = rest[n:]
					}
				}()
				time.Sleep(time.Second)
				if test.waits {
					other := pipe(s)
					defer other.Close()
					go func() { _, _ = other.Write(plain(0, 1, "echo", []any{make([]byte, message)})) }()
				}
				conns := s.Stats().Conns
				time.Sleep(2500 * time.Millisecond)
				synctest.Wait()
				if ended := s.Stats().Conns < conns; ended != test.ends {
					t.Errorf("after 2.5 s the connection has ended: %v", ended)
				}
				if n := s.Stats().Stalled; (n == 1) != test.ends || n > 1 {
					t.Errorf("%d connections are counted as stalled", n)
				}
				slow.Close()
				time.Sleep(5 * time.Second)
			})
		})
	}
}
