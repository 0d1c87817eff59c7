package twopass

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

func load32(p []byte, i int) uint32 { return binary.LittleEndian.Uint32(p[i:]) }
func load64(p []byte, i int) uint64 { return binary.LittleEndian.Uint64(p[i:]) }

// Multiplicative hashing; the constants are primes of xxHash.
const (
	prime1 = 0x9E3779B185EBCA87
	prime2 = 0xC2B2AE3D27D4EB4F
)

func hash8(v uint64) uint64 { return v * prime1 }
func hash6(v uint64) uint64 { return v << 16 * prime2 }
func hash5(v uint64) uint64 { return v << 24 * prime2 }

func hashAll(p []byte) (h uint64) {
	h = uint64(len(p)) * prime2
	for len(p) >= 8 {
		h = bits.RotateLeft64((h^load64(p, 0))*prime1, 31)
		p = p[8:]
	}
	for _, c := range p {
		h = (h ^ uint64(c)) * prime1
	}
	return h ^ h>>29
}

// index finds strings in the dictionary's text. An entry is a position in the upper 24 bits and 8
// bits of a hash below, so that most mismatches are rejected without reading the text. 0 means
// none; taking it for the text's first byte is harmless.
type index struct {
	text []byte
	done int // bytes of text in the tables

	longShift, shortShift uint
	long                  [][2]uint64 // by 8 bytes: four entries each, newest lowest, with a hash of the next 8
	short                 []uint32    // by 6 bytes: one entry each, with their hash

	byHead []uint16 // by hash of the first 5 bytes: start of the group in heads
	heads  []head   // longest first within a group
}

// init allocates tables for text of at most textMax bytes. They have entries for about half of the
// text's places: most places have a copy nearby.
func (x *index) init(textMax int) {
	log := uint(max(10, bits.Len(uint(max(textMax, 1)-1))))
	x.longShift, x.shortShift = 64-(log-4), 64-(log-3)
	x.long = make([][2]uint64, 1<<(log-4))
	x.byHead = make([]uint16, 1<<headLog+1)
	x.short = make([]uint32, 1<<(log-3))
}

// grow adds new text to the tables, every other place. A copy that begins between two places is
// found a byte later and extended backward.
func (x *index) grow(text []byte) {
	x.text = text
	i := max(x.done, 1)
	for ; i+16 <= len(text); i += 2 {
		v := load64(text, i)
		b := &x.long[hash8(v)>>x.longShift]
		b[1] = b[1]<<32 | b[0]>>32
		b[0] = b[0]<<32 | uint64(entry(i, hash8(load64(text, i+8))))
		h := hash6(v)
		x.short[h>>x.shortShift] = entry(i, h)
	}
	x.done = i
}

func entry(i int, h uint64) uint32 { return uint32(i)<<8 | tag(h) }

// tag returns bits of a hash that do not select the place in a table.
func tag(h uint64) uint32 { return uint32(h>>24) & 255 }

const (
	phraseHead = 5 // shortest phrase, in bytes
	headLog    = 14
)

// setPhrases builds the index of phrases.
func (x *index) setPhrases(ph []phrase) {
	x.byHead = make([]uint16, 1<<headLog+1)
	x.heads = make([]head, len(ph))
	hashes := make([]uint16, len(ph))
	order := make([]uint16, len(ph))
	for i, p := range ph {
		order[i] = uint16(i)
		hashes[i] = uint16(hash5(headOf(x.text, int(p.pos))) >> (64 - headLog))
	}
	slices.SortFunc(order, func(a, b uint16) int {
		return cmp.Or(cmp.Compare(hashes[a], hashes[b]), cmp.Compare(ph[b].n, ph[a].n), cmp.Compare(a, b))
	})
	for k, i := range order {
		p := ph[i]
		x.heads[k] = head{pos: p.pos, tail: load32(x.text, int(p.pos+p.n)-4), n: uint8(p.n), id: i}
		x.byHead[hashes[i]+1] = uint16(k + 1)
	}
	for h := range 1 << headLog {
		x.byHead[h+1] = max(x.byHead[h+1], x.byHead[h])
	}
}

// texts is the result of a lookup for a place: entries by eight bytes, and the phrases that may
// begin there. Entries by six bytes are needed too rarely to be included.
type texts struct {
	lo, hi   uint64
	from, to uint16
}

// at looks up the bytes at p[i:], of which there must be at least eight.
func (x *index) at(t *texts, p []byte, i int) {
	if x.text == nil {
		return
	}
	v := load64(p, i)
	h5 := hash5(v) >> (64 - headLog)
	heads := x.byHead[h5 : h5+2 : h5+2]
	t.from, t.to = heads[0], heads[1]
	b := &x.long[hash8(v)>>(x.longShift&63)]
	t.lo, t.hi = b[0], b[1]
}

const (
	// lanes has the lowest bit of each of two entries set.
	lanes = 1<<32 | 1
	// shortBelow is the length of a copy from which no lookup by six bytes is made.
	shortBelow = 8
)

// find returns the longest string found in the text that is a prefix of here, and its position, if
// it is longer than need and than four bytes.
func (x *index) find(here []byte, t *texts, need int) (at, n int) {
	if need = max(need, 4); need >= len(here) {
		return 0, 0
	}
	tail := load32(here, need-3)
	// Compare the tags of all four entries with one branch: have gets a bit per match, that of the
	// newest entry lowest.
	want := uint64(tag(hash8(load64(here, 8)))) * lanes
	lo := lanes<<8 - (t.lo^want)&(255*lanes)
	hi := lanes<<8 - (t.hi^want)&(255*lanes)
	have := lo>>8&1 | lo>>39&2 | hi>>6&4 | hi>>37&8
	for ; have != 0; have &= have - 1 {
		e := t.lo
		k := bits.TrailingZeros64(have)
		if k >= 2 {
			e = t.hi
		}
		p := int(uint32(e>>(k&1*32)) >> 8)
		if p+need >= len(x.text) || load32(x.text, p+need-3) != tail {
			continue
		}
		if k := same(here, x.text[p:]); k > need {
			at, n, need = p, k, k
			if need >= len(here) {
				return at, n
			}
			tail = load32(here, need-3)
		}
	}
	if n > 0 || need >= shortBelow {
		return at, n
	}
	h := hash6(load64(here, 0))
	e := x.short[h>>(x.shortShift&63)]
	if e&255 != tag(h) {
		return 0, 0
	}
	p := int(e >> 8)
	if p+need >= len(x.text) || load32(x.text, p+need-3) != tail {
		return 0, 0
	}
	if k := same(here, x.text[p:]); k > need {
		return p, k
	}
	return 0, 0
}

// phrase returns the index in heads of the longest phrase that is a prefix of here, if it is longer
// than need; otherwise -1.
func (x *index) phrase(here []byte, t *texts, need int) int {
	for k := int(t.from); k < int(t.to); k++ {
		ph := &x.heads[k]
		n := int(ph.n)
		if n <= need {
			return -1
		}
		// The last bytes distinguish most phrases with the same head.
		if n <= len(here) && ph.tail == load32(here, n-4) && same(here, x.text[ph.pos:]) >= n {
			return k
		}
	}
	return -1
}

// headOf loads eight bytes at i, padded with zeros at the end of p.
func headOf(p []byte, i int) uint64 {
	if i+8 <= len(p) {
		return load64(p, i)
	}
	var q [8]byte
	copy(q[:], p[i:])
	return binary.LittleEndian.Uint64(q[:])
}

// head is the index entry of a phrase.
type head struct {
	pos, tail uint32 // tail: its last four bytes
	id        uint16
	n         uint8
}
