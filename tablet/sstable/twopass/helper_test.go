package twopass

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

// madePage makes a synthetic page of a site: a common frame with words of its own.
func madePage(rng *rand.Rand) []byte {
	p := []byte("<!DOCTYPE html><html><head><title>A page of the site</title>" +
		"<link rel=\"stylesheet\" href=\"/static/style.css\" type=\"text/css\" /></head><body class=\"main\">" +
		"<div class=\"navigation\"><ul><li><a href=\"/index.html\">index</a></li><li><a href=\"/about.html\">about</a></li></ul></div>\n")
	for range 20 + rng.IntN(100) {
		p = fmt.Appendf(p, "<p class=\"text\">The <code class=\"literal\"><span class=\"pre\">%s</span></code> of %d", word(rng), rng.IntN(1000))
		for range rng.IntN(12) {
			p = append(p, ' ')
			p = append(p, word(rng)...)
		}
		p = append(p, ".</p>\n"...)
	}
	return append(p, "<div class=\"footer\">Copyright, the authors. Last updated on some day.</div></body></html>\n"...)
}

// newRand returns a generator with the seed of the test.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testseed.New(t), 0))
}

// site makes blocks of pages, about n bytes together.
func site(rng *rand.Rand, n int) [][]byte {
	var text []byte
	for len(text) < n {
		text = append(text, madePage(rng)...)
	}
	var out [][]byte
	for len(text) > 0 {
		k := min(len(text), benchBlock)
		out = append(out, text[:k:k])
		text = text[k:]
	}
	return out
}

// learnt returns an encoder that has learned from blocks, and its dictionary.
func learnt(t testing.TB, blocks [][]byte) (*Encoder, *Dict) {
	t.Helper()
	e := &Encoder{TextMax: 64 << 10}
	e.Learn(blocks, 64<<10)
	d, err := OpenDict(e.AppendDict(nil))
	if err != nil {
		t.Fatal(err)
	}
	return e, d
}

// word returns one of two thousand words, the first ones more often.
func word(rng *rand.Rand) string {
	n := rng.IntN(1 + rng.IntN(2000))
	p := []byte{byte('a' + n%26)}
	for k := n; k > 0; k /= 7 {
		p = append(p, "aeioulnst"[k%9], "bcdfghkmprsv"[k%12])
	}
	return string(p)
}

// fixedSite is the same each time, for fuzzing seeds and the golden file.
func fixedSite() [][]byte { return site(rand.New(rand.NewPCG(7, 7)), 256<<10) }
