package bigtable

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/steledb/stele/security/pki"
)

// rawConn is a connection of a client that sends any frames.
type rawConn struct {
	net.Conn
	frames  *http2.Framer
	block   bytes.Buffer
	headers *hpack.Encoder
	// answered is the largest stream with an answer.
	answered atomic.Uint32
}

// raw connects to the first node, with a client certificate unless it is nil.
func (s *secured) raw(own *pki.Credential) *rawConn {
	s.t.Helper()
	cfg := &tls.Config{RootCAs: s.roots, ServerName: "127.0.0.1"}
	if own != nil {
		cfg = pki.NewEndpoint(own, pki.Options{}).DialNode("")
	}
	cfg.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", s.nodes[0].BigtableAddr(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	r := &rawConn{Conn: c, frames: http2.NewFramer(c, c)}
	r.headers = hpack.NewEncoder(&r.block)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		s.t.Fatal(err)
	}
	if err := r.frames.WriteSettings(); err != nil {
		s.t.Fatal(err)
	}
	go r.receive() // ends with the connection
	return r
}

func (r *rawConn) receive() {
	for {
		f, err := r.frames.ReadFrame()
		if err != nil {
			return
		}
		if h := f.Header(); h.Type == http2.FrameHeaders || h.Type == http2.FrameRSTStream {
			r.answered.Store(max(r.answered.Load(), h.StreamID))
		}
	}
}

// call begins a call. The error is that of the connection.
func (r *rawConn) call(stream uint32, header ...hpack.HeaderField) error {
	r.block.Reset()
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/google.bigtable.v2.Bigtable/ReadRows"},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, header...) {
		_ = r.headers.WriteField(f) // a bytes.Buffer never fails
	}
	return r.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block.Bytes(), EndStream: true, EndHeaders: true})
}

// TestStrangersData (I13): what connections send that make no valid call does not take the memory of users.
func TestStrangersData(t *testing.T) {
	s := startSecured(t)
	ann := withToken(t.Context(), s.user("ann", "write", table))
	eve, _, err := s.admin.Users().Add(t.Context(), "eve", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := s.dial(s.nodes[0], nil)
	if err := writeRow(ann, c, table, "a", "f"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []*pki.Credential{nil, eve} {
		sent := 0
		for range 10 {
			r := s.raw(id)
			for range 200 { // in all ten times the memory of the port
				if r.frames.WriteData(1, false, make([]byte, 16<<10)) != nil {
					break // the node has closed it
				}
				sent += 16 << 10
			}
		}
		for i := range 20 {
			ctx, cancel := context.WithTimeout(ann, 5*time.Second)
			if err := writeRow(ctx, c, table, "a", "f"); err != nil {
				t.Errorf("write %d after %d KiB of others: %v", i, sent>>10, err)
			}
			cancel()
		}
	}
}

// TestStrangersTimeouts: a call that is rejected leaves nothing behind, however long its timeout is.
func TestStrangersTimeouts(t *testing.T) {
	s := startSecured(t)
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what pools held through the first
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapInuse)
	}
	const calls, conns = 10_000, 4
	before := heap()
	for range conns {
		r := s.raw(nil)
		for i := range uint32(calls) {
			if err := r.call(2*i+1, hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"}); err != nil {
				t.Fatal(err)
			}
		}
		await(t, func() bool { return r.answered.Load() == 2*calls-1 })
		_ = r.Close()
	}
	await(t, func() bool { return (heap()-before)/(calls*conns) < 100 }) // a timer and its context take 275 bytes
}

// await waits until a condition holds that other goroutines bring about.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not hold")
		}
	}
}
