package twopass

import (
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

// ways is how many places with the same eight bytes the index of the
// dictionary keeps.
const ways = 4

// index finds text of the dictionary. An entry is a position in the upper 24
// bits and 8 bits of a hash below, so that most of what differs is not looked
// at; 0 is none, and so the text's first byte is never found.
type index struct {
	text []byte
	done int // text up to here is in the tables

	longShift, shortShift uint
	long                  [][ways]uint32 // by 8 bytes, with a hash of the next 8
	short                 []uint32       // by 6 bytes, with their hash

	phrases []phrase
	byHead  []uint16 // phrases' numbers + 1, by their first bytes, the longest first
	heads   []head   // by number
}

// init makes room for so many bytes of text. The tables hold about half of
// the text's places: there is a copy nearby of most.
func (x *index) init(textMax int) {
	log := uint(max(10, bits.Len(uint(max(textMax, 1)-1))))
	x.longShift, x.shortShift = 64-(log-4), 64-(log-3)
	x.long = make([][ways]uint32, 1<<(log-4))
	x.short = make([]uint32, 1<<(log-3))
}

// grow puts new text into the tables, every other place: a copy that begins
// between two is found a byte later and made longer to the front.
func (x *index) grow(text []byte) {
	x.text = text
	i := max(x.done, 1)
	for ; i+16 <= len(text); i += 2 {
		v := load64(text, i)
		b := &x.long[hash8(v)>>x.longShift]
		b[3], b[2], b[1] = b[2], b[1], b[0]
		b[0] = entry(i, hash8(load64(text, i+8)))
		h := hash6(v)
		x.short[h>>x.shortShift] = entry(i, h)
	}
	x.done = i
}

func entry(i int, h uint64) uint32 { return uint32(i)<<8 | tag(h) }

// tag takes bits of a hash that do not choose a place in a table.
func tag(h uint64) uint32 { return uint32(h>>24) & 255 }

const (
	phraseHead = 5 // shortest phrase, in bytes
	headLog    = 14
	headTries  = 16
)

// setPhrases makes phrases be found.
func (x *index) setPhrases(ph []phrase) {
	x.phrases = ph
	x.byHead = make([]uint16, 1<<headLog)
	x.heads = make([]head, len(ph))
	order := make([]uint16, len(ph))
	for i := range order {
		order[i] = uint16(i)
	}
	// The longest is put in front last.
	slices.SortStableFunc(order, func(a, b uint16) int { return int(ph[a].n) - int(ph[b].n) })
	for _, i := range order {
		h := hash5(headOf(x.text, int(ph[i].pos))) >> (64 - headLog)
		x.heads[i] = head{pos: ph[i].pos, tail: load32(x.text, int(ph[i].pos+ph[i].n)-4), n: uint16(ph[i].n), next: x.byHead[h]}
		x.byHead[h] = i + 1
	}
}

// headOf loads eight bytes, or those that are there.
func headOf(p []byte, i int) uint64 {
	if i+8 <= len(p) {
		return load64(p, i)
	}
	var q [8]byte
	copy(q[:], p[i:])
	return binary.LittleEndian.Uint64(q[:])
}

// head is what it takes to find a phrase.
type head struct {
	pos, tail uint32 // tail: its last four bytes
	n         uint16
	next      uint16 // number + 1 of the next shorter with the same hash
}
