package twopass

import (
	"encoding/binary"
	"slices"
)

// Parameters of the choice of text.
const (
	countLog   = 18   // log2 of the number of counters
	sampleLog  = 5    // log2 of the places per sampled place
	pieceBytes = 1536 // length of a piece of text
	countMax   = 64   // more blocks with the same text add no value
	valueMin   = 6    // minimum value of a piece: a single place may repeat by chance
	rounds     = 4
	choosePart = 4 // a round reads only sampled places: the work for one byte in four
)

// chooser selects text by the number of blocks that contain it.
type chooser struct {
	text   []byte
	counts *[1 << countLog]counter // by hash of the bytes at a place
	none   counter                 // for places without a counter; has no value
}

// counter is for the bytes at a sampled place.
type counter struct {
	tag    uint16 // bits of the hash: identifies the bytes that own the counter
	blocks uint16 // number of blocks with these bytes
	last   uint16 // the last of these blocks
	inside uint16 // occurrences in the current piece
}

// place is a sampled place in a block.
type place struct {
	at int32
	h  uint32
}

// choose appends to text at most n bytes that several blocks contain and text does not. It calls
// worked for each block.
func choose(text []byte, blocks [][]byte, n int, worked func(bytes int)) []byte {
	c := &chooser{text: text, counts: new([1 << countLog]counter)}
	places, total := c.countAll(blocks, worked)
	for _, p := range sample(text) {
		c.at(p).blocks = 0
	}
	limit := len(text) + n
	// From each interval of so many bytes the best piece is taken, in several rounds.
	every := int32(max(2*pieceBytes, total/max(1, n/pieceBytes)))
	for range rounds {
		before := len(c.text)
		for i, b := range blocks {
			// Few places have value after the first rounds.
			places[i] = slices.DeleteFunc(places[i], func(p place) bool { return c.at(p).value() == 0 })
			for left := places[i]; len(left) > 0 && len(c.text) < limit; {
				k := slices.IndexFunc(left, func(p place) bool { return p.at >= left[0].at+every })
				if k < 0 {
					k = len(left)
				}
				c.take(b, left[:k], limit)
				left = left[k:]
			}
			worked(len(b) / choosePart)
		}
		if len(c.text) == before || len(c.text) >= limit {
			break
		}
	}
	return c.text
}

// countAll counts the sampled places of all blocks, and returns them and the blocks' size.
func (c *chooser) countAll(blocks [][]byte, worked func(bytes int)) (places [][]place, total int) {
	places = make([][]place, len(blocks))
	for i, b := range blocks {
		total += len(b)
		places[i] = sample(b)
		for _, p := range places[i] {
			c.count(p, uint16(i+1))
		}
		worked(len(b))
	}
	return places, total
}

// sample returns the sampled places of p. A place is selected by its hash, so the same text is
// sampled wherever it is.
func sample(p []byte) []place {
	out := make([]place, 0, len(p)>>sampleLog+len(p)>>(sampleLog+2))
	for i := int32(0); len(p) >= 8; i++ {
		if h := hash8(binary.LittleEndian.Uint64(p)); h>>(64-sampleLog) == 0 {
			out = append(out, place{i, uint32(h >> 20)})
		}
		p = p[1:]
	}
	return out
}

// count records that a block has the bytes at p. A counter with only one block can be taken over by
// other bytes.
func (c *chooser) count(p place, block uint16) {
	k := &c.counts[p.h%(1<<countLog)]
	if k.tag != p.tag() && k.blocks <= 1 {
		*k = counter{tag: p.tag()}
	}
	if k.tag == p.tag() && k.last != block {
		k.last = block
		k.blocks++
	}
}

func (c *chooser) at(p place) *counter {
	if k := &c.counts[p.h%(1<<countLog)]; k.tag == p.tag() {
		return k
	}
	return &c.none
}

func (p place) tag() uint16 { return uint16(p.h >> 16) }

func (k *counter) value() int { return min(max(int(k.blocks)-1, 0), countMax) }

// take appends the piece of b with the highest value among those that start at one of the places
// and end at another.
func (c *chooser) take(b []byte, places []place, limit int) {
	best, from, to := c.best(places)
	for from < to && c.at(places[from]).value() == 0 {
		from++
	}
	for to > from && c.at(places[to-1]).value() == 0 {
		to--
	}
	if best < valueMin {
		return
	}
	// The common text extends a little beyond the sampled places.
	piece := b[max(0, int(places[from].at)-16):min(len(b), int(places[to-1].at)+24)]
	c.text = append(c.text, piece[:min(len(piece), limit-len(c.text))]...)
	for _, p := range places[from:to] {
		c.at(p).blocks = 0
	}
}

// best returns the range of the places, within pieceBytes, that has the highest value, and that
// value.
func (c *chooser) best(places []place) (best, from, to int) {
	score, left := 0, 0
	for right, p := range places {
		k := c.at(p)
		if k.inside == 0 {
			score += k.value()
		}
		k.inside++
		for p.at-places[left].at >= pieceBytes {
			k := c.at(places[left])
			if k.inside--; k.inside == 0 {
				score -= k.value()
			}
			left++
		}
		if score > best {
			best, from, to = score, left, right+1
		}
	}
	for _, p := range places[left:] {
		c.at(p).inside = 0
	}
	return best, from, to
}
