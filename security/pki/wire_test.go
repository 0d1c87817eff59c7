package pki

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
)

// counting counts the writes of a connection, and can fail them.
type counting struct {
	net.Conn
	mu     sync.Mutex
	writes int
	bytes  int
	fails  int // number of the write that fails after half of it, from 1; 0 for none

	stuck  bool // writes block until close, regardless of deadlines
	closed chan struct{}
	once   sync.Once
}

func (c *counting) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *counting) stick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = true
}

func (c *counting) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.bytes += len(p)
	fails, stuck := c.writes == c.fails, c.stuck
	c.mu.Unlock()
	if stuck {
		<-c.closed
	}
	if !fails {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:len(p)/2])
	return n, errors.Join(err, io.ErrShortWrite)
}

func (c *counting) failNext() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = c.writes + 1
}

func (c *counting) take() (writes, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes, bytes = c.writes, c.bytes
	c.writes, c.bytes = 0, 0
	return writes, bytes
}

// overCounting returns both ends of a connection, and the counter of the client's writes.
func overCounting(t testing.TB) (client, server net.Conn, below *counting) {
	t.Helper()
	a := newAuthorityT(t, "c1")
	now := epoch
	s := listening(t, NewEndpoint(nodeCredential(t, a, "n1", now), at(now)))
	t.Cleanup(func() { s.l.Close() })
	nc, err := net.Dial("tcp", s.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	below = &counting{Conn: nc, closed: make(chan struct{})}
	e := NewEndpoint(principalCredential(t, a, "ann", now), at(now))
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := s.l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err = e.Over(t.Context(), "n1", below)
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	below.take()
	return client, server, below
}

// TestRecordsGoTogether: the records of a large write are sent in few pieces, a small write alone,
// and concurrent writes arrive intact.
func TestRecordsGoTogether(t *testing.T) {
	client, server, below := overCounting(t)
	const large = 1<<20 + 4711
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, large)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	for _, n := range []int{1, recordBytes, recordBytes + 1, wireBytes, large} {
		got := make([]byte, n)
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(server, got)
			read <- err
		}()
		if m, err := client.Write(p[:n]); m != n || err != nil {
			t.Fatalf("%d bytes: %d, %v", n, m, err)
		}
		if err := <-read; err != nil || !bytes.Equal(got, p[:n]) {
			t.Fatalf("%d bytes came otherwise (%v), seed %d", n, err, seed)
		}
		if writes, sent := below.take(); writes > 1+sent/(wireBytes-recordBytes-1000) {
			t.Errorf("%d bytes went out in %d pieces", n, writes)
		}
	}

	const writers, rounds = 4, 50
	var wg sync.WaitGroup
	for i := range writers {
		size := []int{100, 20_000, 150_000, 300}[i]
		wg.Go(func() {
			for range rounds {
				if _, err := client.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	want := rounds * (100 + 20_000 + 150_000 + 300)
	got := make([]byte, want)
	if _, err := io.ReadFull(server, got); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, n := range []int{100, 20_000, 150_000, 300} {
		if came := bytes.Count(got, []byte{byte('a' + i)}); came != rounds*n {
			t.Errorf("%d bytes of writer %d, want %d", came, i, rounds*n)
		}
	}
	if n := wireBuffersInUse.Load(); n != 0 {
		t.Errorf("%d buffers are in use", n)
	}
}

// TestBufferBound: exactly wireBuffersMax buffers can be in use.
func TestBufferBound(t *testing.T) {
	for inUse, want := range map[int32]bool{wireBuffersMax - 1: true, wireBuffersMax: false} {
		wireBuffersInUse.Add(inUse)
		w := &wire{handshakeLeft: -1}
		w.hold()
		if got := w.mu.held != nil; got != want {
			t.Errorf("with %d of %d buffers in use: another is free: %v", inUse, wireBuffersMax, got)
		}
		if err := w.release(); err != nil {
			t.Error(err)
		}
		if n := wireBuffersInUse.Add(-inUse); n != 0 {
			t.Errorf("%d buffers are in use", n)
		}
	}
}

// TestRecordsWithoutBuffers: a write succeeds without a buffer when peers that do not read occupy
// all of them.
func TestRecordsWithoutBuffers(t *testing.T) {
	client, server, below := overCounting(t)
	wireBuffersInUse.Add(wireBuffersMax)
	defer wireBuffersInUse.Add(-wireBuffersMax)
	p := bytes.Repeat([]byte("x"), 10*recordBytes)
	go func() { _, _ = client.Write(p) }()
	if _, err := io.ReadFull(server, make([]byte, len(p))); err != nil {
		t.Fatal(err)
	}
	if writes, _ := below.take(); writes < 10 {
		t.Errorf("10 records went out in %d pieces", writes)
	}
	if n := wireBuffersInUse.Load(); n != wireBuffersMax {
		t.Errorf("%d buffers are in use", n)
	}
}

// TestCutRecord: after a write that sent part of a record, nothing more is sent and the writer gets
// an error.
func TestCutRecord(t *testing.T) {
	for _, n := range []int{100, 3 * recordBytes, 1 << 20} {
		client, server, below := overCounting(t)
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, server)
			read <- err
		}()
		below.failNext()
		if _, err := client.Write(make([]byte, n)); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%d bytes: %v", n, err)
		}
		below.take()
		for _, again := range []int{1, 1 << 20} {
			if _, err := client.Write(make([]byte, again)); err == nil {
				t.Errorf("%d bytes: %d more went out", n, again)
			}
		}
		if writes, _ := below.take(); writes != 0 {
			t.Errorf("%d bytes: %d writes after the cut one", n, writes)
		}
		below.Close()
		if err := <-read; err == nil {
			t.Errorf("%d bytes: the other end takes it for a good end", n)
		}
		if n := wireBuffersInUse.Load(); n != 0 {
			t.Errorf("%d buffers are in use", n)
		}
	}
}

// TestCloseWhileWriting: a connection whose peer does not read can be closed, or times out.
func TestCloseWhileWriting(t *testing.T) {
	for what, end := range map[string]func(net.Conn) error{
		"close":    net.Conn.Close,
		"deadline": func(c net.Conn) error { return c.SetWriteDeadline(time.Now()) },
	} {
		client, _, below := overCounting(t)
		wrote := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, 64<<20)) // more than sockets hold
			wrote <- err
		}()
		for writes := 0; writes == 0; writes, _ = below.take() {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // it may or may not be blocked now
		if err := end(client); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		select {
		case err := <-wrote:
			if err == nil {
				t.Errorf("%s: all was written", what)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the write continues", what)
		}
	}
	if n := wireBuffersInUse.Load(); n != 0 {
		t.Errorf("%d buffers are in use", n)
	}
}

// TestCloseWithUnresponsivePeer: Close is prompt regardless of what is queued for a peer that does
// not read.
func TestCloseWithUnresponsivePeer(t *testing.T) {
	for _, piece := range []int{1000, 100 << 10, 1 << 20} {
		client, _, _ := overCounting(t)
		var wrote atomic.Int64
		ended := make(chan error, 1)
		go func() {
			for {
				n, err := client.Write(make([]byte, piece))
				if wrote.Add(int64(n)); err != nil {
					ended <- err
					return
				}
			}
		}()
		for before := int64(-1); wrote.Load() != before; time.Sleep(200 * time.Millisecond) { // until it is blocked
			before = wrote.Load()
		}
		start := time.Now()
		_ = client.Close()                             // which has to abandon what is queued
		if d := time.Since(start); d > 4*time.Second { // TLS waits up to 5 s for its close notification
			t.Errorf("pieces of %d bytes: closed after %v", piece, d)
		}
		if err := <-ended; err == nil {
			t.Errorf("pieces of %d bytes: the write continues", piece)
		}
	}
}

// TestCloseNotifyTimeout: a close notification that cannot be sent is abandoned.
func TestCloseNotifyTimeout(t *testing.T) {
	client, _, below := overCounting(t)
	below.stick()
	closed := make(chan struct{})
	go func() {
		_ = client.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(4 * time.Second):
		t.Error("it waits for a peer that does not read")
		below.Close()
		<-closed
	}
}

// TestHandshakeBounds: a handshake reads exactly its limit, and the first 32 bytes are kept.
func TestHandshakeBounds(t *testing.T) {
	sent := make([]byte, 200)
	for i := range sent {
		sent[i] = byte(i)
	}
	for _, piece := range []int{1, 20, headBytes, 33, 100} {
		near, far := net.Pipe()
		go func() {
			for rest := sent; len(rest) > 0; {
				n, err := far.Write(rest[:min(piece, len(rest))])
				if err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		w := &wire{Conn: near, handshakeLeft: 120}
		got := make([]byte, 120)
		if _, err := io.ReadFull(w, got); err != nil || !bytes.Equal(got, sent[:120]) {
			t.Errorf("pieces of %d bytes: read %x, %v", piece, got, err)
		}
		if !bytes.Equal(w.head, sent[:headBytes]) {
			t.Errorf("pieces of %d bytes: %x are kept", piece, w.head)
		}
		if n, err := w.Read(got); n != 0 || !errors.Is(err, errLongHandshake) {
			t.Errorf("pieces of %d bytes: then %d bytes are read, %v", piece, n, err)
		}
		w.handshakeLeft = -1 // it has succeeded
		if _, err := io.ReadFull(w, got[:80]); err != nil || !bytes.Equal(got[:80], sent[120:]) {
			t.Errorf("pieces of %d bytes: after the handshake %x, %v", piece, got[:80], err)
		}
		near.Close()
		far.Close()
	}
}

// TestHeldRecords: records are buffered until 128 KiB are full, not one byte more.
func TestHeldRecords(t *testing.T) {
	for _, test := range []struct {
		pieces []int
		writes int // before release
		after  int
	}{
		{[]int{100, 200}, 0, 300},
		{[]int{wireBytes / 2, wireBytes / 2}, 0, wireBytes},
		{[]int{wireBytes / 2, wireBytes/2 + 1}, 1, wireBytes/2 + 1},
		{[]int{wireBytes - 1, 1, 1, wireBytes - 1, 1}, 2, 1},
		{nil, 0, 0},
	} {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		below := &counting{Conn: near, closed: make(chan struct{})}
		w := &wire{Conn: below, handshakeLeft: -1}
		w.hold()
		for _, n := range test.pieces {
			if m, err := w.Write(make([]byte, n)); m != n || err != nil {
				t.Fatalf("pieces %v: %d, %v", test.pieces, m, err)
			}
		}
		if writes, _ := below.take(); writes != test.writes {
			t.Errorf("pieces %v: %d writes, want %d", test.pieces, writes, test.writes)
		}
		if err := w.release(); err != nil {
			t.Error(err)
		}
		if writes, sent := below.take(); sent != test.after || writes != min(1, test.after) {
			t.Errorf("pieces %v: then %d bytes in %d writes, want %d", test.pieces, sent, writes, test.after)
		}
		if _, err := w.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if writes, _ := below.take(); writes != 1 {
			t.Errorf("pieces %v: a record after release is held back", test.pieces)
		}
		near.Close()
		far.Close()
	}
	if n := wireBuffersInUse.Load(); n != 0 {
		t.Errorf("%d buffers are in use", n)
	}
}
