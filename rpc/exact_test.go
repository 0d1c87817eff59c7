package rpc

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TestLargeSizes: the buffer of a large message doubles up to the message's length, or in plain
// mode up to the limit and one read buffer.
func TestLargeSizes(t *testing.T) {
	const k, m = 1 << 10, 1 << 20
	for _, c := range []struct {
		now, need, limit int
		framed           bool
		want             int
	}{
		{0, 299_593, m, true, 299_593}, {0, 299_594, m, true, bodyBytesMin}, // an eighth of it is beyond bodyBytesMin, or more
		{0, m, m, true, bodyBytesMin}, {bodyBytesMin, m, m, true, 2 * bodyBytesMin}, {0, 200 * k, m, true, 200 * k}, {800 * k, m, m, true, m},
		{0, 100 * k, m, false, 200 * k}, {0, 200 * k, m, false, bodyBytesMin}, {512 * k, 513 * k, m, false, m}, {m, m + 1, m, false, m + readBytesMin},
		{2 * m, 2*m + 1, m, false, 2*m + readBytesMin}, {700 * k, 701 * k, m, false, m + readBytesMin},
	} {
		if got := largeSize(c.now, c.need, c.framed, c.limit); got != c.want {
			t.Errorf("after %d bytes of a message of %d, framed %v: %d, want %d", c.now, c.need, c.framed, got, c.want)
		}
	}
}

// TestTimeoutIsRoundedUp: the remaining time is sent in milliseconds, rounded up, and at least 1.
func TestTimeoutIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]uint32{
			-time.Hour: 1, 0: 1, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 2 * time.Millisecond: 2, time.Second: 1000, 1000 * time.Hour * 24: math.MaxUint32,
		} {
			ctx, cancel := context.WithTimeout(bg, left)
			if got := timeoutMS(ctx); got != want {
				t.Errorf("%v are sent as %d ms, want %d", left, got, want)
			}
			cancel()
		}
		if got := timeoutMS(bg); got != 0 {
			t.Errorf("no deadline is sent as %d ms", got)
		}
	})
}

// TestStalledMessageEnds: a stalled message ends the connection after the timeout and a quarter of
// it.
func TestStalledMessageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBareServer(t, ServerConfig{MessageTimeout: 20 * time.Second})
		defer s.Close()
		conn := pipe(s)
		start := time.Now()
		if _, err := conn.Write(plain(0, 1, "echo", []any{"x"})[:5]); err != nil {
			t.Fatal(err)
		}
		got := collect(conn)()
		if d := time.Since(start); d != 25*time.Second || len(got) != 0 {
			t.Errorf("the connection ended after %v with %d bytes of answers", d, len(got))
		}
	})
}

// TestMessageLimitIsRefreshed: MessageBytesOf is called ten times a second while it does not lower
// the limit, otherwise for each message.
func TestMessageLimitIsRefreshed(t *testing.T) {
	const most = 64 << 10
	for bound, want := range map[int][]int{most: {1, 1, 1, 2, 2}, most + 1: {1, 1, 1, 2, 2}, most - 1: {1, 2, 3, 4, 5}} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s := newBareServer(t, ServerConfig{MessageBytesMax: most, MessageBytesOf: func(*Peer) int {
				asked++
				return bound
			}})
			defer s.Close()
			conn := pipe(s)
			got := collect(conn)
			for i, pause := range []time.Duration{0, 0, maxPeriod - 1, 1, maxPeriod - 1} {
				time.Sleep(pause)
				if _, err := conn.Write(plain(0, i, "echo", []any{})); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if asked != want[i] {
					t.Errorf("a bound of %d of %d: %d calls by message %d, want %d", bound, most, asked, i, want[i])
				}
			}
			conn.Close()
			got()
		})
	}
}

// TestSendsSlowly: a large message is slow if it has made no progress for longer than the limit.
func TestSendsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c serverConn
		time.Sleep(time.Hour)
		if c.sendsSlowly(time.Second) {
			t.Error("slow without a large message")
		}
		c.progressAt.Store(int64(time.Since(clock)))
		time.Sleep(time.Second)
		if c.sendsSlowly(time.Second) {
			t.Error("slow after as long as the limit")
		}
		time.Sleep(1)
		if !c.sendsSlowly(time.Second) {
			t.Error("not slow after longer than the limit")
		}
	})
}

// TestBehind: a connection is behind if 1 MiB waits to be written, or if a call waits for a slot.
func TestBehind(t *testing.T) {
	for n, want := range map[int64]bool{0: false, 1<<20 - 1: false, 1 << 20: true} {
		c := &Conn{inFlight: newGate(2, 0), unsent: newGate(64<<20, 0)}
		if c.unsent.force(n, true); c.Behind() != want {
			t.Errorf("behind with %d bytes that wait: %v", n, c.Behind())
		}
	}
	for _, of := range []func(*Conn) *gate{func(c *Conn) *gate { return c.inFlight }, func(c *Conn) *gate { return c.unsent }} {
		synctest.Test(t, func(t *testing.T) {
			c := &Conn{inFlight: newGate(2, 0), unsent: newGate(2, 0)}
			ctx, cancel := context.WithCancel(bg)
			if of(c).tryAcquire(2); c.Behind() {
				t.Error("behind though none waits")
			}
			go of(c).acquireCtx(ctx, 1, nil)
			synctest.Wait()
			if !c.Behind() {
				t.Error("not behind though a call waits")
			}
			cancel()
		})
	}
}

// TestDetachWhileDraining: a server that shuts down keeps a connection with a claimed byte, and
// closes it.
func TestDetachWhileDraining(t *testing.T) {
	s := newBareServer(t, ServerConfig{})
	c := &serverConn{}
	s.Server.mu.conns[c.peer.ID] = c
	if !s.detach(c) || len(s.Server.mu.conns) != 0 {
		t.Error("not detached")
	}
	s.Close()
	if s.detach(c) {
		t.Error("detached by a server that shuts down")
	}
}

// TestRegisterCodes: names are for codes from 100 on, one each.
func TestRegisterCodes(t *testing.T) {
	defer delete(codeNames, 100)
	defer delete(codeSlots, 100)
	panics := func(c Code) (did bool) {
		defer func() { did = recover() != nil }()
		RegisterCodes(map[Code]string{c: "of_a_test"})
		return false
	}
	for _, c := range []struct {
		code Code
		want bool
	}{{99, true}, {CodeInternal, true}, {100, false}, {100, true}} {
		if got := panics(c.code); got != c.want {
			t.Errorf("code %d: panics %v", c.code, got)
		}
	}
	if Code(100).String() != "of_a_test" || Code(99).String() != "code_99" {
		t.Errorf("the codes are named %v and %v", Code(100), Code(99))
	}
}

// TestErrorsAreCut: an error is sent with up to 16 KiB of text, 4 KiB of each detail, and 32
// details.
func TestErrorsAreCut(t *testing.T) {
	details := map[string]any{"a": string(make([]byte, 5000)), "b": make([]byte, 5000), "c": 1.5}
	for i := range 40 {
		details[string(rune('d'+i))] = i
	}
	var enc wire.Encoder
	appendError(&enc, &Error{Code: CodeInternal, Message: string(make([]byte, 20_000)), Details: details})
	d := wire.NewDecoder(enc.Bytes())
	e := DecodeError(&d)
	if d.Err() != nil || d.More() || len(e.Message) != 16<<10 || len(e.Details) != 32 || len(e.Details["a"].(string)) != 4<<10 || len(e.Details["b"].([]byte)) != 4<<10 {
		t.Errorf("%d bytes of text, %d details: %v", len(e.Message), len(e.Details), d.Err())
	}
	if _, ok := e.Details["c"]; ok || e.Details["d"] != int64(0) {
		t.Errorf("the details are %v", e.Details["d"])
	}
}
