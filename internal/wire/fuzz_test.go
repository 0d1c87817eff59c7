package wire

import (
	"runtime"
	"testing"
)

// FuzzCheckDecode checks W1 and W2: Check and Decoder agree, and a Walker fed byte by byte returns
// the same result as Check.
func FuzzCheckDecode(f *testing.F) {
	var e Encoder
	encodeRow(&e)
	f.Add(e.Bytes())
	f.Add([]byte{0x94, 0, 1, 0xa3, 'g', 'e', 't', 0x90})
	f.Add([]byte{0xdd, 255, 255, 255, 255})
	f.Add([]byte{0xd8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x82, 0xa1, 'a', 0xcb, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0xc7, 1, 2, 3})
	lim := Limits{Bytes: 1 << 16}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Check(b, lim)
		var w Walker
		w.Reset(lim)
		var wn int
		var werr error
		for i := 0; i <= len(b); i++ {
			if wn, werr = w.Walk(b[:i]); werr != ErrIncomplete {
				break
			}
			if w.Need() <= i {
				t.Fatalf("needs %d bytes, has %d, yet incomplete", w.Need(), i)
			}
		}
		if wn != n || (err == nil) != (werr == nil) || (err == ErrIncomplete) != (werr == ErrIncomplete) {
			t.Fatalf("Check says %d, %v; Walker %d, %v", n, err, wn, werr)
		}
		d := NewDecoder(b)
		walk(&d, 0)
		if err == nil && (d.Err() != nil || d.Offset() != n) {
			t.Fatalf("Check accepts %d bytes; Decoder stops at %d: %v", n, d.Offset(), d.Err())
		}
		d = NewDecoder(b)
		if raw := d.Raw(); err == nil && len(raw) != n {
			t.Fatalf("Check accepts %d bytes; Raw returns %d", n, len(raw))
		}
	})
}

// W2, for the Decoder on unchecked bytes: allocations stay within the input's size.
func TestDecoderAllocatesWithinInput(t *testing.T) {
	var e Encoder
	e.Array(1000)
	for range 1000 {
		e.Array(2)
		e.Str("a text of some thirty-two bytes.")
		e.Int(1 << 40)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d := NewDecoder(e.Bytes())
	walk(&d, 0)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; d.Err() != nil || got > uint64(e.Len()) {
		t.Errorf("decoding %d bytes allocated %d: %v", e.Len(), got, d.Err())
	}
}
