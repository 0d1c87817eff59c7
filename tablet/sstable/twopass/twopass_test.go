package twopass

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// randomBlock makes a block of one of many types.
func randomBlock(rng *rand.Rand) []byte {
	n := rng.IntN(300 << 10)
	switch rng.IntN(3) {
	case 0:
		n = rng.IntN(64)
	case 1:
		n = rng.IntN(5000)
	}
	p := make([]byte, 0, n)
	sort := rng.IntN(5)
	for len(p) < n {
		switch {
		case sort == 0: // noise
			p = append(p, byte(rng.Uint32()))
		case sort == 1: // one byte
			p = append(p, 'x')
		case sort == 2 || len(p) < 2: // few letters
			p = append(p, byte('a'+rng.IntN(3)))
		case sort == 3: // repeats at any distance and of any length
			if rng.IntN(3) == 0 {
				p = append(p, byte(rng.Uint32()))
				continue
			}
			at := rng.IntN(len(p))
			k := 1 << rng.IntN(14)
			for range rng.IntN(k) + 1 {
				p = append(p, p[at])
				at++
			}
		default:
			p = append(p, madePage(rng)...)
		}
	}
	return p[:n]
}

func roundTrip(t *testing.T, e *Encoder, dict func() *Dict, p []byte) {
	t.Helper()
	stored := e.Encode([]byte("before"), p)
	if string(stored[:6]) != "before" {
		t.Fatal("what was in the destination is gone")
	}
	stored = stored[6:]
	if over := len(stored) - len(p); over > 1+len(p)/segmentBytes+1 {
		t.Fatalf("a block of %d bytes grew by %d", len(p), over)
	}
	if len(p) > DecodedMax(len(stored)) {
		t.Fatalf("a block of %d bytes is above DecodedMax(%d) = %d", len(p), len(stored), DecodedMax(len(stored)))
	}
	got := make([]byte, len(p))
	if err := dict().Decode(got, stored); err != nil {
		t.Fatalf("block of %d bytes: %v", len(p), err)
	}
	if !bytes.Equal(got, p) {
		t.Fatalf("block of %d bytes is another after a round trip", len(p))
	}
}

// TestRoundTrip encodes blocks of many types, without a dictionary and with one.
func TestRoundTrip(t *testing.T) {
	rng := newRand(t)
	alone := &Encoder{}
	e, d := learnt(t, site(rng, 512<<10))
	for range 150 {
		p := randomBlock(rng)
		roundTrip(t, alone, func() *Dict { return nil }, p)
		roundTrip(t, e, func() *Dict { return d }, p)
	}
}

// TestGenerations decodes blocks of all generations with the last dictionary, calls Learn more
// often than there can be generations, and checks the limit.
func TestGenerations(t *testing.T) {
	rng := newRand(t)
	e := &Encoder{TextMax: 96 << 10}
	type block struct{ raw, stored []byte }
	var all []block
	for g := range GenerationsMax + 4 {
		some := site(rng, 128<<10)
		e.Learn(some, (g+1)*8<<10)
		if want := min((g+1)*8<<10, e.TextMax); e.TextBytes() > want {
			t.Fatalf("text of %d bytes after generation %d, want at most %d", e.TextBytes(), g+1, want)
		}
		for _, p := range some {
			all = append(all, block{p, e.Encode(nil, p)})
		}
	}
	if e.Wants() {
		t.Error("the encoder wants to learn beyond its last generation")
	}
	dict := e.AppendDict(nil)
	d, err := OpenDict(dict)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.gens) != GenerationsMax {
		t.Errorf("%d generations, want %d", len(d.gens), GenerationsMax)
	}
	for i, b := range all {
		got := make([]byte, len(b.raw))
		if err := d.Decode(got, b.stored); err != nil || !bytes.Equal(got, b.raw) {
			t.Fatalf("block %d of %d: %v", i, len(all), err)
		}
	}
	if again := d.appendTo(nil); !bytes.Equal(again, dict) {
		t.Error("a dictionary that was read is written otherwise")
	}
}

// TestGain verifies that text shared by pages is stored once, in the dictionary, wherever the pages
// are.
func TestGain(t *testing.T) {
	rng := newRand(t)
	blocks := site(rng, 2<<20)
	size := func(e *Encoder) (n int) {
		for _, p := range blocks {
			n += len(e.Encode(nil, p))
		}
		return n
	}
	alone := size(&Encoder{})
	e, d := learnt(t, blocks)
	with := size(e) + len(e.AppendDict(nil))
	if with > alone*9/10 {
		t.Errorf("%d bytes with a dictionary, %d without", with, alone)
	}
	if len(d.phrases) == 0 || d.TextBytes() == 0 || d.MemoryBytes() < int64(d.TextBytes()) {
		t.Errorf("dictionary of %d phrases, %d bytes of text, %d of memory", len(d.phrases), d.TextBytes(), d.MemoryBytes())
	}
	// A page that was seen before costs next to nothing.
	page := blocks[0][:8<<10]
	twice := append(bytes.Clone(page), page...)
	if one, two := len(e.Encode(nil, page)), len(e.Encode(nil, twice)); two > one+64 {
		t.Errorf("%d bytes once, %d twice", one, two)
	}
}

// TestChoose verifies that the text has what several blocks contain, once, and nothing that only
// one contains.
func TestChoose(t *testing.T) {
	rng := newRand(t)
	noise := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		return p
	}
	// Places are sampled by their content, so by chance here: more of one text is found than of
	// another.
	const texts, sharedBytes = 10, 2000
	found := 0
	for range texts {
		shared := noise(sharedBytes)
		var blocks [][]byte
		for range 8 {
			blocks = append(blocks, bytes.Join([][]byte{noise(20000), shared, noise(20000)}, nil))
		}
		text := choose([]byte("before"), blocks, 8000, func(int) {})
		if !bytes.HasPrefix(text, []byte("before")) {
			t.Error("the text that was there is gone")
		}
		// Pieces are cut at sampled places, which may be chance matches, so they have some noise at
		// their ends.
		if n := len(text); n < 1500 || n > 4500 {
			t.Errorf("%d bytes of text for %d that are shared", n, sharedBytes)
		}
		for at := 0; at+32 <= len(shared); at += 32 {
			if bytes.Contains(text, shared[at:at+32]) {
				found += 32
			}
		}
		if more := choose(text, blocks, 8000, func(int) {}); len(more) > len(text)+2*pieceBytes {
			t.Errorf("chosen again, %d bytes more", len(more)-len(text))
		}
	}
	if found < texts*sharedBytes*3/4 {
		t.Errorf("%d of %d bytes that are shared were found", found, texts*sharedBytes)
	}
}

// TestLearnReportsWork verifies that Learn calls Worked with small pieces, and learns the same without
// it.
func TestLearnReportsWork(t *testing.T) {
	blocks := site(newRand(t), 2<<20)
	var silent, telling Encoder
	reported, pieces, largest := 0, 0, 0
	telling.Worked = func(bytes int) {
		reported, pieces, largest = reported+bytes, pieces+1, max(largest, bytes)
	}
	silent.Learn(blocks, 64<<10)
	telling.Learn(blocks, 64<<10)
	if largest > benchBlock || pieces < 3*len(blocks) {
		t.Errorf("reported %d pieces of %d blocks, the largest of %d bytes", pieces, len(blocks), largest)
	}
	if reported < 2*2<<20 {
		t.Errorf("reported %d bytes of work on 2 MiB, which are chosen from and parsed", reported)
	}
	if !bytes.Equal(silent.AppendDict(nil), telling.AppendDict(nil)) {
		t.Error("what is learnt is not the same")
	}
}

// TestKinds verifies that the other tests cover each kind of copy and each form of a stream.
func TestKinds(t *testing.T) {
	rng := newRand(t)
	blocks := site(rng, 1<<20)
	e, _ := learnt(t, blocks)
	var kinds [4]int
	var forms [4]int
	count := func(e *Encoder, p []byte) {
		e.Encode(nil, p)
		for _, q := range e.m.seqs {
			kinds[q.kind]++
		}
		for i := range e.s {
			head := e.stream(nil, i)
			r := reader{p: head}
			r.uvarint(segmentBytes)
			forms[r.uvarint(segmentBytes<<2|3)&3]++
		}
	}
	for _, p := range blocks {
		count(e, p)
	}
	for range 20 {
		count(e, randomBlock(rng))
	}
	// Copies with distances of 64 to 127 bytes.
	fixed := rand.New(rand.NewPCG(3, 4))
	var near []byte
	for i := range 20 {
		near = append(near, "the same forty bytes each time, no others"...)
		for range 30 + i {
			near = append(near, byte(fixed.Uint32()))
		}
	}
	count(&Encoder{}, near)
	for k, n := range kinds {
		if n == 0 {
			t.Errorf("no copy of kind %d", k)
		}
	}
	for f, n := range forms {
		if n == 0 {
			t.Errorf("no stream of form %d", f)
		}
	}
}

// TestDictGone distinguishes a missing dictionary from corrupt bytes.
func TestDictGone(t *testing.T) {
	blocks := site(newRand(t), 256<<10)
	e, _ := learnt(t, blocks)
	stored := e.Encode(nil, blocks[0])
	got := make([]byte, len(blocks[0]))
	var none *Dict
	if err := none.Decode(got, stored); !errors.Is(err, ErrNoDict) {
		t.Errorf("without a dictionary: %v", err)
	}
	stored[0] = 2
	_, d := learnt(t, blocks)
	if err := d.Decode(got, stored); !errors.Is(err, ErrNoDict) {
		t.Errorf("of a generation that is not there: %v", err)
	}
}

// TestConcurrent decodes with one dictionary on many goroutines.
func TestConcurrent(t *testing.T) {
	blocks := site(newRand(t), 512<<10)
	e, d := learnt(t, blocks)
	var stored [][]byte
	for _, p := range blocks {
		stored = append(stored, e.Encode(nil, p))
	}
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		wg.Go(func() {
			got := make([]byte, benchBlock)
			for i, p := range blocks {
				if err := d.Decode(got[:len(p)], stored[i]); err != nil || !bytes.Equal(got[:len(p)], p) {
					errs <- fmt.Errorf("block %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// TestAllocs verifies that encoding and decoding do not allocate once warm.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector makes pools forget: nothing to count")
		return
	}
	blocks := site(newRand(t), 512<<10)
	e, d := learnt(t, blocks)
	alone := &Encoder{}
	var none *Dict
	buf := make([]byte, 0, 2*benchBlock)
	got := make([]byte, len(blocks[0]))
	for _, c := range []struct {
		name string
		e    *Encoder
		d    *Dict
	}{{"with a dictionary", e, d}, {"without", alone, none}} {
		for range 3 {
			buf = c.e.Encode(buf[:0], blocks[0])
		}
		if n := testing.AllocsPerRun(50, func() { buf = c.e.Encode(buf[:0], blocks[0]) }); n >= 1 {
			t.Errorf("%s, encoding allocates %.1f times", c.name, n)
		}
		decode := func() {
			if err := c.d.Decode(got, buf); err != nil {
				t.Fatal(err)
			}
		}
		decode()
		if n := testing.AllocsPerRun(50, decode); n >= 1 {
			t.Errorf("%s, decoding allocates %.1f times", c.name, n)
		}
	}
}
