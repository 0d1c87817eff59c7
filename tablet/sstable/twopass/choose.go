package twopass

import "slices"

// How text is chosen.
const (
	countLog   = 20   // log of the counters
	sampleLog  = 5    // log: of so many places one counts
	pieceBytes = 1536 // of text that are taken together
	countMax   = 64   // more blocks with the same text make it no better
	worthMin   = 6    // of a piece: what one place is worth may be chance
	rounds     = 4
)

// chooser weighs text by how many blocks have it.
type chooser struct {
	text   []byte
	count  []uint16 // blocks that have what begins at a place, by hash
	last   []uint16 // the last block that had it
	inside []uint16 // how often it is in the piece under way
}

// place is where something that counts begins.
type place struct {
	at int32
	h  uint32
}

// choose appends to text at most n bytes that several blocks have and text has
// not.
func choose(text []byte, blocks [][]byte, n int) []byte {
	c := &chooser{
		text:   text,
		count:  make([]uint16, 1<<countLog),
		last:   make([]uint16, 1<<countLog),
		inside: make([]uint16, 1<<countLog),
	}
	places := make([][]place, len(blocks))
	total := 0
	for i, b := range blocks {
		total += len(b)
		places[i] = sample(b)
		for _, p := range places[i] {
			if c.last[p.h] != uint16(i+1) {
				c.last[p.h] = uint16(i + 1)
				c.count[p.h]++
			}
		}
	}
	for _, p := range sample(text) {
		c.count[p.h] = 0
	}
	limit := len(text) + n
	// From each so many bytes the best piece is taken, again and again.
	every := int32(max(2*pieceBytes, total/max(1, n/pieceBytes)))
	for range rounds {
		before := len(c.text)
		for i, b := range blocks {
			for left := places[i]; len(left) > 0 && len(c.text) < limit; {
				k := slices.IndexFunc(left, func(p place) bool { return p.at >= left[0].at+every })
				if k < 0 {
					k = len(left)
				}
				c.take(b, left[:k], limit)
				left = left[k:]
			}
		}
		if len(c.text) == before || len(c.text) >= limit {
			break
		}
	}
	return c.text
}

// sample returns the places of p that count: those whose hash says so, so that
// the same text counts wherever it is.
func sample(p []byte) []place {
	out := make([]place, 0, len(p)>>sampleLog+len(p)>>(sampleLog+2))
	for i := 0; i+8 <= len(p); i++ {
		if h := hash8(load64(p, i)); h>>(64-sampleLog) == 0 {
			out = append(out, place{int32(i), uint32(h>>20) & (1<<countLog - 1)})
		}
	}
	return out
}

func (c *chooser) value(h uint32) int {
	return min(max(int(c.count[h])-1, 0), countMax)
}

// take appends the piece of b that is worth most among those from one of the
// places to another.
func (c *chooser) take(b []byte, places []place, limit int) {
	best, score, from, to, left := 0, 0, 0, 0, 0
	for right := range places {
		h := places[right].h
		if c.inside[h] == 0 {
			score += c.value(h)
		}
		c.inside[h]++
		for places[right].at-places[left].at >= pieceBytes {
			h := places[left].h
			if c.inside[h]--; c.inside[h] == 0 {
				score -= c.value(h)
			}
			left++
		}
		if score > best {
			best, from, to = score, left, right+1
		}
	}
	for _, p := range places[left:] {
		c.inside[p.h] = 0
	}
	for from < to && c.value(places[from].h) == 0 {
		from++
	}
	for to > from && c.value(places[to-1].h) == 0 {
		to--
	}
	if best < worthMin {
		return
	}
	// What is common reaches some way beyond the places that tell.
	piece := b[max(0, int(places[from].at)-16):min(len(b), int(places[to-1].at)+24)]
	c.text = append(c.text, piece[:min(len(piece), limit-len(c.text))]...)
	for _, p := range places[from:to] {
		c.count[p.h] = 0
	}
}
