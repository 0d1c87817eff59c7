package rpc

import (
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/internal/wire"
)

// TestOnSent: the callback runs once, when the response has left memory, whatever becomes of it.
func TestOnSent(t *testing.T) {
	const large = 1 << 20
	for _, test := range []struct {
		what    string
		bytes   int
		notify  bool
		before  int64 // callbacks although nothing has been read
		hangsUp bool
	}{
		{what: "a large answer", bytes: large},
		{what: "a large answer to a client that hangs up", bytes: large, hangsUp: true},
		{what: "a small answer", bytes: 100, before: 1}, // copied into the connection's buffer
		{what: "a notification", bytes: large, notify: true, before: 1},
		{what: "an answer above the limit", bytes: 4 * large, before: 1},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBareServer(t, ServerConfig{MessageBytesMax: 2 * large})
				defer s.Close()
				var calls atomic.Int64
				s.Handle("call", Inline, func(c *Call) {
					c.OnSent(func() { calls.Add(1) })
					c.Reply(func(e *wire.Encoder) { e.Bin(make([]byte, test.bytes)) })
				})
				conn := pipe(s)
				request := plain(0, 1, "call", []any{})
				if test.notify {
					request = plain(2, "call", []any{})
				}
				if _, err := conn.Write(request); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := calls.Load(); n != test.before {
					t.Errorf("%d callbacks before anything is read", n)
				}
				if test.hangsUp {
					conn.Close()
				} else {
					go func() { _, _ = io.Copy(io.Discard, conn) }()
				}
				synctest.Wait()
				if n := calls.Load(); n != 1 {
					t.Errorf("%d callbacks", n)
				}
				conn.Close()
			})
		})
	}
}
