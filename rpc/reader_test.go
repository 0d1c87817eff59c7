package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"pgregory.net/rapid"
)

// drip is a connection whose reads return few bytes, as chosen by its generator.
type drip struct {
	net.Conn
	b   []byte
	rng *rand.Rand
	max int
}

func (d *drip) Read(p []byte) (int, error) {
	if len(d.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.b[:min(len(d.b), 1+d.rng.IntN(d.max))])
	d.b = d.b[n:]
	return n, nil
}

func (*drip) SetReadDeadline(time.Time) error { return nil }

// However a stream is split and however little memory is free, the reader returns the messages that
// were sent and releases all memory that it reserved.
func TestReaderYieldsWhatWasSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		framed := rapid.Bool().Draw(t, "framed")
		seed := rapid.Uint64().Draw(t, "seed")
		rng := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		var want [][]byte
		for i := range rapid.IntRange(1, 20).Draw(t, "messages") {
			size := rapid.SampledFrom([]int{0, 10, 1000, readBytesMin, 50_000, readBytesMax, bodyBytesMin, 700_000}).Draw(t, "size")
			m := plain(0, i, "m", []any{make([]byte, max(0, size-20+rng.IntN(40)))})
			want = append(want, m)
			if framed {
				m = frame(m)
			}
			stream = append(stream, m...)
		}
		conn := &drip{b: stream, rng: rng, max: rapid.SampledFrom([]int{20, 3000, 100_000, 1 << 20}).Draw(t, "most bytes a read")}
		var read atomic.Uint64
		r := newReader(conn, framed, 1<<20, time.Minute, &read)
		taken, spare := 0, 0
		free := rapid.SampledFrom([]int{0, 20_000, readBytesMax}).Draw(t, "free bytes for the buffer")
		refuse := rapid.IntRange(0, 3).Draw(t, "refuse") == 0 && framed
		r.reserve = func(n int) error {
			if refuse && rng.IntN(3) == 0 {
				return errNoMemory
			}
			taken += n
			return nil
		}
		r.unreserve = func(n int) { taken -= n }
		r.reserveBuffer = func(n int) bool {
			if spare+n > free {
				return false
			}
			spare += n
			return true
		}
		for i, w := range want {
			m, err := r.next()
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			if id, ok := peekID(m.body); m.refused && (!ok || int(id) != i) {
				t.Fatalf("message %d rejected as %d", i, id)
			}
			if !m.refused && !bytes.Equal(m.body, w) {
				t.Fatalf("message %d: %d bytes, want %d", i, len(m.body), len(w))
			}
			if m.charged > 2*len(w)+bodyBytesMin || m.owned == (m.charged == 0) && !m.refused {
				t.Fatalf("message of %d bytes: charged %d, owned %v", len(w), m.charged, m.owned)
			}
			taken -= m.charged
		}
		if _, err := r.next(); err != io.EOF || taken != 0 || spare != len(r.buf)-readBytesMin || read.Load() != uint64(len(stream)) {
			t.Fatalf("at the end: %v, %d bytes taken, buffer of %d with %d spare, %d read", err, taken, len(r.buf), spare, read.Load())
		}
	})
}

// A buffer that grew for a burst shrinks again.
func TestReadBufferShrinks(t *testing.T) {
	var stream []byte
	for range 200 {
		stream = append(stream, frame(plain(0, 1, "m", []any{make([]byte, 4000)}))...)
	}
	conn := &drip{b: stream, rng: rand.New(rand.NewPCG(1, 1)), max: 1 << 20}
	r := newReader(conn, true, 1<<20, time.Minute, new(atomic.Uint64))
	for range 200 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.buf) != readBytesMax {
		t.Errorf("buffer of %d bytes in a burst, want %d", len(r.buf), readBytesMax)
	}
	conn.max = 100
	conn.b = nil
	for range 200 {
		conn.b = append(conn.b, frame(plain(0, 1, "m", []any{}))...)
	}
	for range 200 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.buf) != readBytesMin {
		t.Errorf("buffer of %d bytes afterwards, want %d", len(r.buf), readBytesMin)
	}
}

// A message of the maximum size is read, and one that is a byte larger is rejected before memory is
// reserved for it. This holds in both modes, for the server's limit and for one lowered for the
// message.
func TestReaderMessageLimit(t *testing.T) {
	const limit = 300_000
	one := func(size int) []byte { return plain(0, 1, "m", []any{make([]byte, size)}) }
	many := func(size int) []byte { // as many values as bytes: no single length is over the limit
		params := make([]any, size)
		for i := range params {
			params[i] = 1
		}
		return plain(0, 1, "m", params)
	}
	for _, framed := range []bool{true, false} {
		for shape, of := range map[string]func(int) []byte{"one value": one, "many values": many} {
			for _, lowered := range []bool{true, false} {
				for _, max := range []int{limit, 20_000, 200} {
					envelope := len(of(max)) - max
					for over := range 2 {
						m := of(max - envelope + over)
						if len(m) != max+over {
							m = of(max - (len(m) - max) + 2*over)
						}
						if len(m) != max+over {
							t.Fatalf("a message of %d bytes, want %d", len(m), max+over)
						}
						stream := m
						if framed {
							stream = frame(m)
						}
						conn := &drip{b: stream, rng: rand.New(rand.NewPCG(1, 1)), max: 1000}
						r := newReader(conn, framed, max, time.Minute, new(atomic.Uint64))
						if lowered {
							r.max = 1 << 30
							r.refreshMax = func() { r.max = max }
						}
						taken := 0
						r.reserve = func(n int) error { taken += n; return nil }
						r.unreserve = func(n int) { taken -= n }
						got, err := r.next()
						var bad *wire.FormatError
						tooLarge := errors.Is(err, ErrTooLarge) || errors.As(err, &bad) && bad.Limit
						what := fmt.Sprintf("framed %v, %s, limit %d lowered %v: %d bytes", framed, shape, max, lowered, len(m))
						switch {
						case over == 0 && (err != nil || !bytes.Equal(got.body, m)):
							t.Errorf("%s: %v", what, err)
						case over > 0 && (!tooLarge || taken != 0):
							t.Errorf("%s: %v, %d bytes of memory taken", what, err, taken)
						}
					}
				}
			}
		}
	}
}
