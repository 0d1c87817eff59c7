package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire/wiretest"
)

// plainBytes are inputs in hex and their responses: hex, or "id:code" for errors.
var plainBytes = []struct {
	name string
	in   string
	want []string // raw responses in hex, or "id:code" for errors
}{
	{"request", "94 00 01 a4 6563686f 91 05", []string{"94 01 01 c0 91 05"}},
	{"no params", "94 00 01 a4 6563686f 90", []string{"94 01 01 c0 90"}},
	{"method as str8", "94 00 01 d904 6563686f 90", []string{"94 01 01 c0 90"}},
	{"method as str16, the old raw16", "94 00 01 da0004 6563686f 90", []string{"94 01 01 c0 90"}},
	{"method as bin", "94 00 01 c404 6563686f 90", []string{"94 01 01 c0 90"}},
	{"array16 header", "dc0004 00 01 a4 6563686f 90", []string{"94 01 01 c0 90"}},
	{"array32 header", "dd00000004 00 01 a4 6563686f 90", []string{"94 01 01 c0 90"}},
	{"params as array32", "94 00 01 a4 6563686f dd00000001 05", []string{"94 01 01 c0 91 05"}},
	{"type as uint8", "94 cc00 01 a4 6563686f 90", []string{"94 01 01 c0 90"}},
	{"id 0", "94 00 00 a4 6563686f 90", []string{"94 01 00 c0 90"}},
	{"id 2^32-1", "94 00 ceffffffff a4 6563686f 90", []string{"94 01 ceffffffff c0 90"}},
	{"id in nine bytes", "94 00 cf0000000000000007 a4 6563686f 90", []string{"94 01 07 c0 90"}},
	{"id as int8", "94 00 d007 a4 6563686f 90", []string{"94 01 07 c0 90"}},
	{"two in one segment", "94 00 01 a4 6563686f 90 94 00 02 a4 6563686f 91 c0", []string{"94 01 01 c0 90", "94 01 02 c0 91 c0"}},
	{"an id twice", "94 00 01 a4 6563686f 90 94 00 01 a4 6563686f 90", []string{"94 01 01 c0 90", "94 01 01 c0 90"}},
	{"params of every kind", "94 00 01 a4 6563686f 99 c0 c3 cb3ff8000000000000 a178 c4017a 81a16101 91ff d40108 ca3fc00000",
		[]string{"94 01 01 c0 99 c0 c3 cb3ff8000000000000 a178 c4017a 81a16101 91ff d40108 ca3fc00000"}},
	{"notification", "93 02 a4 6563686f 90", nil},
	{"notification of no method", "93 02 a3 6e6f70 90 94 00 01 a4 6563686f 90", []string{"94 01 01 c0 90"}},
	{"notification of a method that panics", "93 02 a5 70616e6963 90 94 00 01 a4 6563686f 90", []string{"94 01 01 c0 90"}},
	{"method unknown, next one served", "94 00 01 a3 6e6f70 90 94 00 02 a4 6563686f 90", []string{"1:unknown_method", "94 01 02 c0 90"}},
	{"handler panics, next one served", "94 00 01 a5 70616e6963 90 94 00 02 a4 6563686f 90", []string{"1:internal", "94 01 02 c0 90"}},

	{"params no array", "94 00 01 a4 6563686f a178 94 00 02 a4 6563686f 90", []string{"1:bad_request"}},
	{"params nil", "94 00 01 a4 6563686f c0", []string{"1:bad_request"}},
	{"params a map", "94 00 01 a4 6563686f 80", []string{"1:bad_request"}},
	{"method an int", "94 00 01 05 90", []string{"1:bad_request"}},
	{"method too long", "94 00 01 d981" + strings.Repeat("61", 129) + "90", []string{"1:bad_request"}},
	{"three elements", "93 00 01 a4 6563686f", []string{"1:bad_request"}},
	{"five elements", "95 00 01 a4 6563686f 90 c0", []string{"1:bad_request"}},
	{"0xc1 in params", "94 00 09 a4 6563686f 92 01 c1", []string{"9:bad_request"}},
	{"nested too deeply", "94 00 01 a4 6563686f " + strings.Repeat("91", 40), []string{"1:bad_request"}},
	{"string of 4 GiB", "94 00 01 a4 6563686f 91 dbffffffff", []string{"1:too_large"}},
	{"bin of 4 GiB", "94 00 01 a4 6563686f 91 c6ffffffff", []string{"1:too_large"}},
	{"array of 4 G", "94 00 01 a4 6563686f ddffffffff", []string{"1:too_large"}},
	{"map of 4 G", "94 00 01 a4 6563686f 91 dfffffffff", []string{"1:too_large"}},
	{"after a good one", "94 00 01 a4 6563686f 90 94 00 02 c1", []string{"94 01 01 c0 90", "2:bad_request"}},

	{"id over 32 bits", "94 00 cf0000000100000000 a4 6563686f 90", nil},
	{"id negative", "94 00 ff a4 6563686f 90", nil},
	{"id a string", "94 00 a161 a4 6563686f 90", nil},
	{"a response", "94 01 01 c0 c0", nil},
	{"type unknown", "94 07 01 a4 6563686f 90", nil},
	{"notification with four elements", "94 02 a4 6563686f 90 c0", nil},
	{"empty array", "90", nil},
	{"array of 4 G at the top", "ddffffffff", nil},
	{"cut short", "94 00 01 a4 6563", nil},
	{"not MessagePack-RPC", "47", nil},
	{"nothing", "", nil},
}

// TestPlainBytes sends raw bytes to a live server.
func TestPlainBytes(t *testing.T) {
	s := newTestServer(t, ServerConfig{MessageBytesMax: 64 << 10, MemoryBytesMax: 1 << 20})
	for _, c := range plainBytes {
		got := exchange(t, s, wiretest.Unhex(t, c.in))
		all := responses(t, got, false)
		if len(all) != len(c.want) {
			t.Errorf("%s: %d answers, want %d: % x", c.name, len(all), len(c.want), got)
			continue
		}
		for i, w := range c.want {
			checkAnswer(t, c.name, all[i], w)
		}
	}
	if n := s.ran("echo"); n == 0 {
		t.Error("echo never ran")
	}
	if st := s.Stats(); st.Malformed == 0 || st.Panics != 2 || st.Unknown != 1 || st.MemoryBytes != 0 || st.InFlight != 0 {
		t.Errorf("stats: %+v", st)
	}
}

// checkAnswer compares a response with hex bytes, or with "id:code" for errors.
func checkAnswer(t *testing.T, name string, got response, want string) {
	t.Helper()
	if strings.Contains(want, ":") {
		if got.err == nil || fmt.Sprintf("%d:%v", got.id, got.err.Code) != want {
			t.Errorf("%s: answer to %d is %v, want %s", name, got.id, got.err, want)
		}
		return
	}
	if !bytes.Equal(got.raw, wiretest.Unhex(t, want)) {
		t.Errorf("%s: answer % x, want %s", name, got.raw, want)
	}
}

// A message may arrive in any pieces, and many may arrive in one.
func TestPlainPieces(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	rng := rand.New(rand.NewPCG(1, 2))
	var in, want []byte
	for i := range 300 {
		p := []any{i, "text", make([]byte, rng.IntN(2000)), []any{nil, true}}
		in = append(in, plain(0, i, "echo", p)...)
		want = append(want, plain(1, i, nil, p)...)
	}
	for _, size := range []int{1, 2, 3, 7, 100, 4096, len(in)} {
		c := s.raw(t)
		_ = c.SetNoDelay(true)
		go func() {
			for b := in; len(b) > 0; {
				n := min(size, len(b))
				if size > 1 {
					n = min(1+rng.IntN(2*size), len(b))
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
			_ = c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("pieces of %d: %d bytes of answers, want %d: %v", size, len(got), len(want), err)
		}
	}
}

// Large messages use their own code path, which loses nothing of what follows them.
func TestPlainLargeMessages(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	var in, want []byte
	add := func(id int, params []any) {
		in = append(in, plain(0, id, "echo", params)...)
		want = append(want, plain(1, id, nil, params)...)
	}
	many := make([]any, 70_000)
	for i := range many {
		many[i] = i
	}
	for i, n := range []int{readBytesMax - 20, readBytesMax, bodyBytesMin - 14, bodyBytesMin, bodyBytesMin + 1, 3 << 20} {
		add(3*i, []any{make([]byte, n)})
		add(3*i+1, []any{"small"})
		add(3*i+2, many)
	}
	got := exchange(t, s, in)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes of answers, want %d", len(got), len(want))
	}
	waitFor(t, "memory to be given back", func() bool { return s.Stats().MemoryBytes == 0 })
}

// Responses are sent when they are ready, not in the order of requests.
func TestPlainOutOfOrder(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.raw(t)
	for i := range 3 {
		_, _ = c.Write(plain(0, i, "hold", []any{i}))
	}
	s.wait(3)
	_, _ = c.Write(plain(0, 3, "echo", []any{3}))
	one := plain(1, 3, nil, []any{3})
	got := make([]byte, len(one))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, one) {
		t.Fatalf("% x, %v, want % x", got, err, one)
	}
	s.release()
	_ = c.CloseWrite()
	rest, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range responses(t, rest, false) {
		if want := plain([]any{2 - i}...); r.id != uint32(2-i) || !bytes.Equal(r.result, want) {
			t.Errorf("answer %d is to %d: % x", i, r.id, r.result)
		}
	}
}

// A client that closes its sending side still gets its responses.
func TestHalfClose(t *testing.T) {
	s := newTestServer(t, ServerConfig{})
	c := s.raw(t)
	_, _ = c.Write(plain(0, 1, "hold", []any{"x"}))
	_ = c.CloseWrite()
	s.wait(1)
	s.release()
	got, err := io.ReadAll(c)
	if want := plain(1, 1, nil, []any{"x"}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("% x, %v, want % x", got, err, want)
	}
}

// TestInputEnds: after a client has closed its sending side, or both sides, its requests end after
// a grace period.
func TestInputEnds(t *testing.T) {
	const grace = 50 * time.Millisecond
	s := newTestServer(t, ServerConfig{InputEndGrace: grace})
	ended := make(chan error, 2)
	s.Handle("endless", Spawned, func(c *Call) {
		s.got <- struct{}{}
		<-c.Context().Done()
		ended <- c.Context().Err()
		c.Fail(c.Context().Err())
	})
	for _, end := range []func(c *net.TCPConn) error{(*net.TCPConn).CloseWrite, (*net.TCPConn).Close} {
		c := s.raw(t)
		_, _ = c.Write(plain(0, 1, "endless", []any{}))
		<-s.got
		began := time.Now()
		if err := end(c); err != nil {
			t.Fatal(err)
		}
		if err, took := <-ended, time.Since(began); !errors.Is(err, context.Canceled) || took < grace {
			t.Errorf("%v after %v, want it cancelled after %v", err, took, grace)
		}
	}
}
