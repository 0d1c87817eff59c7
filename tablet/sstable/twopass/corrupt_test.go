package twopass

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// typed reports whether err is of a documented type.
func typed(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNoDict) || errors.Is(err, ErrTooLarge)
}

// TestBlockCorrupt flips bits of blocks, truncates them, and requests other lengths. Truncated
// blocks and other lengths are always rejected. A flip may give another text, because checksums are
// the caller's, or a typed error.
func TestBlockCorrupt(t *testing.T) {
	rng := newRand(t)
	blocks := site(rng, 256<<10)
	e, d := learnt(t, blocks)
	alone := &Encoder{}
	noise := make([]byte, 40)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, p := range [][]byte{blocks[0][:6000], blocks[1][:700], blocks[2][:40], noise} {
		for _, stored := range [][]byte{e.Encode(nil, p), alone.Encode(nil, p)} {
			got := make([]byte, len(p))
			for cut := range stored {
				if err := d.Decode(got, stored[:cut]); !typed(err) {
					t.Fatalf("cut to %d of %d bytes: %v", cut, len(stored), err)
				}
			}
			if err := d.Decode(got, append(bytes.Clone(stored), 0)); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("with a byte more: %v", err)
			}
			for _, n := range []int{0, 1, len(p) - 1, len(p) + 1, 2 * len(p), len(p) + segmentBytes} {
				if err := d.Decode(make([]byte, n), stored); n != len(p) && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("requested %d bytes instead of %d: %v", n, len(p), err)
				}
			}
			refused := 0
			for bit := range len(stored) * 8 {
				bad := bytes.Clone(stored)
				bad[bit/8] ^= 1 << (bit % 8)
				err := d.Decode(got, bad)
				if err != nil && !typed(err) {
					t.Fatalf("bit %d: %v", bit, err)
				}
				if err != nil {
					refused++
				}
			}
			if len(stored) < len(p) && refused == 0 {
				t.Error("no flip was refused")
			}
		}
	}
}

// TestDictCorrupt does the same to a dictionary.
func TestDictCorrupt(t *testing.T) {
	e := &Encoder{TextMax: 2 << 10}
	e.Learn(site(newRand(t), 256<<10), 2<<10)
	dict := e.AppendDict(nil)
	for cut := range dict {
		if _, err := OpenDict(dict[:cut]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d of %d bytes: %v", cut, len(dict), err)
		}
	}
	if _, err := OpenDict(append(bytes.Clone(dict), 0)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("with a byte more: %v", err)
	}
	for bit := range len(dict) * 8 {
		bad := bytes.Clone(dict)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := OpenDict(bad); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
}

// TestDictHostile opens invalid dictionaries.
func TestDictHostile(t *testing.T) {
	uv := func(vs ...uint64) (p []byte) {
		for _, v := range vs {
			p = binary.AppendUvarint(p, v)
		}
		return p
	}
	cat := func(ps ...[]byte) []byte { return bytes.Join(ps, nil) }
	head := []byte{dictVersion, 8, 0}
	sound := cat(head, uv(1, 2, 4, 6), []byte("abcdef"))
	if _, err := OpenDict(sound); err != nil {
		t.Fatalf("a sound one: %v", err)
	}
	for name, p := range map[string][]byte{
		"version":                 cat([]byte{dictVersion + 1}, sound[1:]),
		"shift":                   cat([]byte{dictVersion, 25, 0}, sound[3:]),
		"generations":             cat([]byte{dictVersion, 8, GenerationsMax + 1}, bytes.Repeat([]byte{0}, 4*(GenerationsMax+1)), sound[3:]),
		"generations cut":         {dictVersion, 8, GenerationsMax},
		"phrases it has not":      cat(head, uv(PhrasesMax, 0)),
		"too many phrases":        cat(head, uv(PhrasesMax+1), bytes.Repeat([]byte{0, 4}, PhrasesMax+1), uv(6), []byte("abcdef")),
		"phrase beyond text":      cat(head, uv(1, 3, 4, 6), []byte("abcdef")),
		"phrase far beyond":       cat(head, uv(1, DictBytesMax, 255, 6), []byte("abcdef")),
		"phrase too short":        cat(head, uv(1, 2, 3, 6), []byte("abcdef")),
		"phrase too long":         cat(head, uv(1, 0, 256, 300), bytes.Repeat([]byte("x"), 300)),
		"text it has not":         cat(head, uv(0, DictBytesMax), []byte("abcdef")),
		"text above the limit":    cat(head, uv(0, DictBytesMax+1), make([]byte, DictBytesMax+1)),
		"length above all limits": cat(head, uv(0, 1<<63)),
	} {
		if d, err := OpenDict(p); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

// TestExact modifies the worked example's block: no stream may have unused, missing or out-of-range
// data.
func TestExact(t *testing.T) {
	dict, block := docBytes(t)
	d, err := OpenDict(dict)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(p []byte) []byte) []byte { return f(bytes.Clone(block)) }
	for name, p := range map[string][]byte{
		"bits left":        append(change(func(p []byte) []byte { p[0x0a]++; return p }), 0),
		"bits missing":     change(func(p []byte) []byte { p[0x0a]--; return p[:len(p)-1] }),
		"literals missing": change(func(p []byte) []byte { p[2], p[3] = 6, 6<<2; return append(p[:0x11], p[0x12:]...) }),
		"reach missing":    change(func(p []byte) []byte { p[6], p[7] = 0, 0; return append(p[:0x16], p[0x17:]...) }),
		"high missing":     change(func(p []byte) []byte { p[8], p[9] = 0, 0; return append(p[:0x17], p[0x18:]...) }),
		"reach left": change(func(p []byte) []byte {
			p[6], p[7] = 2, 2<<2
			return append(p[:0x17:0x17], append([]byte{3}, p[0x17:]...)...)
		}),
		"reach too far":   change(func(p []byte) []byte { p[0x16] = 5; return p }),
		"reach of 2^24":   change(func(p []byte) []byte { p[0x16] = 24; return p }),
		"high too high":   change(func(p []byte) []byte { p[0x17] = 1; return p }),
		"phrase":          change(func(p []byte) []byte { p[0x13] = 0x1f; return p }),
		"last of nothing": change(func(p []byte) []byte { p[0x12] = 0x7a; return p }),
		"mode":            change(func(p []byte) []byte { p[1] = 2; return p }),
		"table":           change(func(p []byte) []byte { p[5] |= streamShared; return p }),
	} {
		if err := d.Decode(make([]byte, 44), p); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSmallClaim bounds the decoded length that a few bytes can claim.
func TestSmallClaim(t *testing.T) {
	for _, c := range []struct{ encoded, most int }{{0, segmentBytes}, {1, segmentBytes}, {1 + segmentMin, 2 * segmentBytes}, {1 << 40, BlockBytesMax}} {
		if got := DecodedMax(c.encoded); got != c.most {
			t.Errorf("DecodedMax(%d) = %d, want %d", c.encoded, got, c.most)
		}
	}
	var none *Dict
	if err := none.Decode(make([]byte, BlockBytesMax+1), []byte{0}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a block above the limit: %v", err)
	}
}

// FuzzDecode decodes arbitrary bytes, with a dictionary: no panic, and typed errors.
func FuzzDecode(f *testing.F) {
	blocks := fixedSite()
	e, d := learnt(f, blocks)
	alone := &Encoder{}
	for _, p := range [][]byte{nil, []byte("a"), blocks[0][:300], blocks[0][:5000], bytes.Repeat([]byte("ab"), 40000)} {
		f.Add(e.Encode(nil, p), len(p))
		f.Add(alone.Encode(nil, p), len(p))
	}
	got := make([]byte, 3*segmentBytes)
	f.Fuzz(func(t *testing.T, p []byte, n int) {
		if n < 0 || n > len(got) {
			return
		}
		if err := d.Decode(got[:n], p); err != nil && !typed(err) {
			t.Fatal(err)
		}
	})
}

// FuzzDict opens arbitrary bytes as a dictionary, and decodes with the result.
func FuzzDict(f *testing.F) {
	blocks := fixedSite()
	e := &Encoder{TextMax: 1 << 10}
	e.Learn(blocks, 1<<10)
	f.Add(e.AppendDict(nil))
	f.Add([]byte{dictVersion, 8, 0, 1, 2, 4, 6, 'a', 'b', 'c', 'd', 'e', 'f'})
	stored := e.Encode(nil, blocks[0][:4000])
	got := make([]byte, 4000)
	f.Fuzz(func(t *testing.T, p []byte) {
		d, err := OpenDict(p)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if err := d.Decode(got, stored); err != nil && !typed(err) {
			t.Fatal(err)
		}
	})
}
