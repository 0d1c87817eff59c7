package rpc

import (
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"
)

// fuzzMemory is the MemoryBytesMax of fuzzed servers.
const fuzzMemory = 1 << 20

// fuzzServer is a server for one connection at a time, with small bounds that inputs can reach.
func fuzzServer(f *testing.F) *testServer {
	s := newBareServer(f, ServerConfig{
		MessageBytesMax: 512 << 10, MemoryBytesMax: fuzzMemory, InFlightMax: 16, AdmitWait: time.Millisecond,
		MessageTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	f.Cleanup(s.Close)
	return s
}

// feed sends input to a new connection in pieces whose size depends on cut, and returns the
// response bytes.
func feed(t *testing.T, s *testServer, input []byte, cut byte) []byte {
	client, server := net.Pipe()
	s.ServeConn(halfCloser{server})
	got := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(client)
		got <- b
	}()
	step := max(1+int(cut)*int(cut), len(input)/64) // few pieces, because an input has at most 10 s
	for b := input; len(b) > 0; b = b[min(step, len(b)):] {
		if _, err := client.Write(b[:min(step, len(b))]); err != nil {
			break // the server has closed the connection
		}
	}
	// A pipe has no half-close: wait until requests in flight are answered.
	for end := time.Now().Add(5 * time.Second); s.Stats().InFlight > 0 && time.Now().Before(end); {
		runtime.Gosched()
	}
	_ = client.Close()
	b := <-got
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		st := s.Stats()
		if st.Conns == 0 && st.MemoryBytes == 0 && st.BufferBytes == 0 {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("connection does not end: %+v", st)
		}
	}
}

// halfCloser lets the server linger on a pipe.
type halfCloser struct{ net.Conn }

func (halfCloser) CloseWrite() error { return nil }

// P1: for any input, the server does not crash, hang or leak memory, and its responses are
// well-formed.
func FuzzServerPlain(f *testing.F) {
	for _, m := range []string{"echo", "echo-pooled", "echo-spawned", "later", "panic", "fail", "nop"} {
		f.Add(append(plain(0, 1, m, []any{"x", 1.5, nil}), plain(2, m, []any{})...), byte(3))
	}
	f.Add(plain(0, 1, "big", []any{100_000}), byte(200))
	f.Add([]byte{0x94, 0, 1, 0xa4, 'e', 'c', 'h', 'o', 0xdd, 255, 255, 255, 255}, byte(0))
	f.Add(append(plain(0, 1<<32-1, "echo", []any{make([]byte, 300<<10)}), plain(0, 2, "echo", []any{[]any{}})...), byte(255))
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, input []byte, cut byte) {
		if len(input) == 0 || !opensPlain(input[0]) {
			return
		}
		responsesUpTo(t, feed(t, s, input, cut), false)
	})
}

// FuzzServerFramed also seals the input's frames, so that not every input fails its checksum.
func FuzzServerFramed(f *testing.F) {
	for _, m := range []string{"echo", "echo-pooled", "echo-spawned", "later", "panic", "fail", "nop"} {
		f.Add(append(frame(plain(0, 1, m, []any{"x", 1.5, nil})), frame(plain(2, m, []any{}))...), byte(3), true)
	}
	f.Add(frame(plain(0, 1, "big", []any{100_000})), byte(200), false)
	f.Add(frame(plain(0, 7, "echo", []any{make([]byte, 300<<10)})), byte(255), true)
	f.Add(header(5, 1, 0, []byte{0x94, 0, 1, 0xa4, 'e'}), byte(0), false)
	s := fuzzServer(f)
	f.Fuzz(func(t *testing.T, input []byte, cut byte, seal bool) {
		if seal {
			for b := input; len(b) >= headerBytes; {
				n := int(parseHeader(b).length)
				if n > len(b)-headerBytes {
					break
				}
				sealFrame(b[:headerBytes+n], parseHeader(b).timeoutMS)
				b = b[headerBytes+n:]
			}
		}
		got := feed(t, s, append(opening(), input...), cut)
		if len(got) > 0 {
			responsesUpTo(t, got, true)
		}
	})
}

// FuzzConn sends a client the input as a hostile server would.
func FuzzConn(f *testing.F) {
	f.Add(frame(plain(1, 1, nil, []any{"x"})))
	f.Add(frame(plain(1, 1, map[string]any{"code": 5, "retry_after_ms": 7}, nil)))
	f.Add(frame(plain(2, goaway, []any{})))
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) >= headerBytes && int(parseHeader(input).length) == len(input)-headerBytes {
			sealFrame(input, 0)
		}
		client, server := net.Pipe()
		go func() {
			b := make([]byte, preambleBytes)
			_, _ = io.ReadFull(server, b)
			_, _ = server.Write(b)
			_, _ = server.Read(make([]byte, 1<<10)) // the call
			_, _ = server.Write(input)
			_ = server.Close()
		}()
		c, err := NewConn(bg, client, ConnConfig{MessageBytesMax: 512 << 10})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Call(bg, "echo", encodeInt(1), wantBin(nil))
		_ = c.Close()
	})
}

// responsesUpTo is responses for a stream that may end within a message.
func responsesUpTo(t *testing.T, b []byte, framed bool) {
	whole := b[:0:0]
	if framed {
		n := min(preambleBytes, len(b))
		whole, b = append(whole, b[:n]...), b[n:]
	}
	for {
		n := 0
		if framed {
			if len(b) < headerBytes {
				break
			}
			n = headerBytes + int(parseHeader(b).length)
		} else if n = wholeValue(t, b); n == 0 {
			break
		}
		if n > len(b) {
			break
		}
		whole, b = append(whole, b[:n]...), b[n:]
	}
	responses(t, whole, framed)
}
