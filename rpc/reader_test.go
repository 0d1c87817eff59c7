package rpc

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drip is a connection whose reads return as little as its generator says.
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

// However a stream is cut and however little room there is, the reader yields the
// messages that were sent, and gives back all that it took.
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
		room := rapid.SampledFrom([]int{0, 20_000, readBytesMax}).Draw(t, "room for the buffer")
		refuse := rapid.IntRange(0, 3).Draw(t, "refuse") == 0 && framed
		r.grow = func(n int) error {
			if refuse && rng.IntN(3) == 0 {
				return errNoRoom
			}
			taken += n
			return nil
		}
		r.ungrow = func(n int) { taken -= n }
		r.spare = func(n int) bool {
			if spare+n > room {
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
				t.Fatalf("message %d refused as %d", i, id)
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

// A buffer that grew for a burst does not stay large for ever.
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
