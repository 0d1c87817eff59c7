package rpc

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// recorder is a connection that records what a writer does with it.
type recorder struct {
	net.Conn
	w         *writer
	bytes     []byte
	sizes     []int // of calls of Write
	calls     []int // bytes of the writer's write calls
	deadlines []time.Time
	during    func() // called by Write
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.during != nil {
		r.during()
	}
	r.bytes, r.sizes = append(r.bytes, b...), append(r.sizes, len(b))
	for uint64(len(r.calls)) < r.w.writes.Load() {
		r.calls = append(r.calls, 0)
	}
	r.calls[len(r.calls)-1] += len(b)
	return len(b), nil
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	r.deadlines = append(r.deadlines, t)
	return nil
}

// recordedWriter returns a writer over a recorder; it writes when it is uncorked.
func recordedWriter() (*writer, *recorder) {
	r := &recorder{}
	w := newWriter(r, 30*time.Second, new(atomic.Uint64), new(atomic.Uint64))
	r.w = w
	w.onWrote = func(int) {}
	w.onFail = func(error) {}
	w.cork()
	return w, r
}

// encoded returns an encoder with n bytes of one value.
func encoded(n int, b byte) *wire.Encoder {
	enc := wire.GetEncoder()
	enc.Raw(bytes.Repeat([]byte{b}, n))
	return enc
}

// TestSmallMessagesAreCopied: the encoder of a message of up to 64 KiB is released at once, that of
// a larger one when it is written.
func TestSmallMessagesAreCopied(t *testing.T) {
	for n, small := range map[int]bool{1: true, 64 << 10: true, 64<<10 + 1: false} {
		w, r := recordedWriter()
		sent := 0
		if err := w.append(encoded(n, 'a'), nil, func() { sent++ }); err != nil {
			t.Fatal(err)
		}
		if (sent == 1) != small {
			t.Errorf("%d bytes: sent %d times before they are written", n, sent)
		}
		w.uncork()
		if sent != 1 || len(r.bytes) != n || w.unsent.Load() != 0 {
			t.Errorf("%d bytes: sent %d times, %d bytes written, %d unsent", n, sent, len(r.bytes), w.unsent.Load())
		}
	}
}

// TestCoalescing: small messages share buffers of up to 256 KiB, and all messages are written in
// order.
func TestCoalescing(t *testing.T) {
	const k = 64 << 10
	for _, c := range []struct{ messages, writes []int }{
		{[]int{k, k, k, k}, []int{4 * k}},
		{[]int{k, k, k, k, 1}, []int{4 * k, 1}},
		{[]int{k, k, k, k - 1, 2}, []int{4*k - 1, 2}},
		{[]int{10, k + 1, 20, 30, 2 * k}, []int{10, k + 1, 50, 2 * k}},
	} {
		w, r := recordedWriter()
		var want []byte
		for i, n := range c.messages {
			want = append(want, bytes.Repeat([]byte{byte(i)}, n)...)
			if err := w.append(encoded(n, byte(i)), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.unsent.Load(); got != int64(len(want)) || len(r.sizes) != 0 {
			t.Errorf("messages of %v: %d bytes unsent, %d writes under the cork", c.messages, got, len(r.sizes))
		}
		w.uncork()
		if !slices.Equal(r.sizes, c.writes) || !bytes.Equal(r.bytes, want) {
			t.Errorf("messages of %v are written as %v, want %v", c.messages, r.sizes, c.writes)
		}
	}
}

// TestWriteCallsAreBounded: one write call gets up to 1 MiB, and no call is empty.
func TestWriteCallsAreBounded(t *testing.T) {
	const most = 1 << 20
	for _, c := range []struct{ messages, calls []int }{
		{[]int{most - 1}, []int{most - 1}}, {[]int{most}, []int{most}}, {[]int{most + 1}, []int{most, 1}},
		{[]int{3 * most}, []int{most, most, most}}, {[]int{most - 70_000, 70_000}, []int{most}},
		{[]int{most / 2, most, most/2 + 1}, []int{most, most, 1}},
	} {
		w, r := recordedWriter()
		var want []byte
		for i, n := range c.messages {
			want = append(want, bytes.Repeat([]byte{byte(i)}, n)...)
			if err := w.append(encoded(n, byte(i)), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		w.uncork()
		if !slices.Equal(r.calls, c.calls) || int(w.writes.Load()) != len(c.calls) || !bytes.Equal(r.bytes, want) || w.bytes.Load() != uint64(len(want)) {
			t.Errorf("messages of %v are written in calls of %v, %d are counted, want %v", c.messages, r.calls, w.writes.Load(), c.calls)
		}
	}
}

// TestWriteDeadline: each write call has at least half the timeout. A deadline that leaves that
// much is not set again.
func TestWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := recordedWriter()
		write := func() {
			t.Helper()
			w.cork()
			if err := w.append(encoded(1, 'a'), nil, nil); err != nil {
				t.Fatal(err)
			}
			w.uncork()
		}
		start := time.Now()
		write()
		time.Sleep(15 * time.Second)
		write()
		if want := []time.Time{start.Add(30 * time.Second)}; !slices.Equal(r.deadlines, want) {
			t.Errorf("after half the timeout the deadlines are %v, want %v", r.deadlines, want)
		}
		time.Sleep(1)
		write()
		if want := start.Add(45*time.Second + 1); len(r.deadlines) != 2 || r.deadlines[1] != want {
			t.Errorf("later the deadlines are %v, the last should be %v", r.deadlines, want)
		}
	})
}

// TestSlowPeer: a peer is slow if a write call takes longer than the limit while more than 64 KiB
// are unsent.
func TestSlowPeer(t *testing.T) {
	for n, slow := range map[int]bool{64 << 10: false, 64<<10 + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			w, r := recordedWriter()
			r.during = func() {
				time.Sleep(time.Second)
				if w.slow(time.Second) {
					t.Errorf("%d bytes unsent: slow after the limit", n)
				}
				time.Sleep(1)
				if w.slow(time.Second) != slow {
					t.Errorf("%d bytes unsent: slow beyond the limit: %v", n, !slow)
				}
			}
			if err := w.append(encoded(n, 'a'), nil, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if w.slow(time.Second) {
				t.Error("slow without a write call")
			}
			w.uncork()
			if err := w.append(encoded(100<<10, 'a'), nil, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if w.slow(time.Second) || len(r.sizes) != 1 {
				t.Errorf("slow after a write call: %v, of %d", w.slow(time.Second), len(r.sizes))
			}
		})
	}
}

// TestPooledChunks: a coalescing buffer of up to 512 KiB is reused.
func TestPooledChunks(t *testing.T) {
	for n, want := range map[int]bool{512 << 10: true, 512<<10 + 1: false} {
		b := make([]byte, 1, n)
		s := segment{chunk: &b}
		s.recycle()
		if kept := len(b) == 0; kept != want || s.chunk != nil {
			t.Errorf("a buffer of %d bytes is kept: %v", n, kept)
		}
	}
}

// TestWaitUnsent: a waiter continues when fewer bytes than its limit are unsent, and when the
// writer has failed.
func TestWaitUnsent(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := recordedWriter()
			if err := w.append(encoded(10, 'a'), nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := w.waitUnsent(11); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- w.waitUnsent(10) }()
			synctest.Wait()
			if len(ended) != 0 {
				t.Error("no wait with as many bytes as the limit")
			}
			var want error
			if fails {
				want = errNotReading
				w.fail(want)
			} else {
				w.uncork()
			}
			if err := <-ended; err != want {
				t.Errorf("the wait ended with %v, want %v", err, want)
			}
		})
	}
}

// TestFailedWriter: all unwritten bytes are accounted for once, and nothing more is accepted.
func TestFailedWriter(t *testing.T) {
	w, r := recordedWriter()
	given, sent := 0, 0
	w.onWrote = func(n int) { given += n }
	for _, n := range []int{5, 100 << 10, 7} {
		if err := w.append(encoded(n, 'a'), nil, func() { sent++ }); err != nil {
			t.Fatal(err)
		}
	}
	w.fail(errNotReading)
	w.fail(errReadsSlowly)
	if given != 12+100<<10 || sent != 3 || w.unsent.Load() != 0 {
		t.Errorf("%d bytes accounted for, %d messages sent, %d bytes unsent", given, sent, w.unsent.Load())
	}
	if err := w.append(encoded(1, 'a'), nil, func() { sent++ }); !errors.Is(err, errNotReading) || sent != 4 {
		t.Errorf("append after a failure: %v, %d messages sent", err, sent)
	}
	w.uncork()
	if len(r.sizes) != 0 || w.unsent.Load() != 0 || given != 12+100<<10 {
		t.Errorf("%d writes after a failure, %d bytes unsent", len(r.sizes), w.unsent.Load())
	}
}
