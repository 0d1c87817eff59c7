package twopass

import (
	"encoding/binary"
	"slices"
)

// bitWriter appends bits, the lowest first.
type bitWriter struct {
	out []byte
	at  int // out is written up to here, and eight bytes beyond are free
	acc uint64
	n   uint
}

// reset forgets everything and makes room for so many bytes.
func (w *bitWriter) reset(n int) {
	n += 16
	*w = bitWriter{out: slices.Grow(w.out[:0], n)[:n]}
}

// put appends the lowest n bits of v, which has no others; n is at most 32.
// It writes eight bytes each time, whether or not one is full: that cannot be
// guessed.
func (w *bitWriter) put(v uint64, n uint) {
	acc, have := w.acc|v<<(w.n&7), w.n+n
	binary.LittleEndian.PutUint64(w.out[w.at:], acc)
	w.at += int(have >> 3)
	w.acc, w.n = acc>>(have&^7&63), have&7
}

// putLong appends v >= 1 as four bits that say how many follow the highest
// one, and those; v is below 1 << 16.
func (w *bitWriter) putLong(v int) {
	n := uint(log2(v)) & 15
	w.put(uint64(n)|(uint64(v)&(1<<n-1))<<4, 4+n)
}

func (w *bitWriter) finish() []byte {
	return w.out[:w.at+int(w.n+7)>>3]
}

// bitReader reads what a bitWriter wrote. Beyond the end it reads zeros; who
// uses it asks at the end how far it came.
type bitReader struct {
	p   []byte
	pos int // in bits
}

// peek returns the next bits, at least 57 of them.
func (r *bitReader) peek() uint64 {
	at := r.pos >> 3
	if uint(at)+8 <= uint(len(r.p)) {
		return binary.LittleEndian.Uint64(r.p[at:at+8]) >> (uint(r.pos) & 7)
	}
	return r.peekEnd(at)
}

func (r *bitReader) peekEnd(at int) uint64 {
	var last [8]byte
	if at < len(r.p) {
		copy(last[:], r.p[at:])
	}
	return binary.LittleEndian.Uint64(last[:]) >> (uint(r.pos) & 7)
}

// long reads what putLong wrote.
func (r *bitReader) long() int {
	v := r.peek()
	n := uint(v & 15)
	r.pos += int(4 + n)
	return 1<<n | int(v>>4&(1<<n-1))
}

// take reads n bits, at most 32.
func (r *bitReader) take(n uint) int {
	v := int(r.peek() & (1<<n - 1))
	r.pos += int(n)
	return v
}

// length reads what a copy's class leaves open of its length.
func (r *bitReader) length(class uint8) int {
	class &= 15
	if class == lengthLong {
		return lengthBase[lengthLong] + r.long() - 1
	}
	return lengthBase[class] + r.take(uint(lengthBits[class]))
}

// phrase reads what a phrase's class leaves open of its number.
func (r *bitReader) phrase(class int) int {
	if far := class - phrasesNear>>8; far >= 0 {
		return phrasesNear + far<<12 + r.take(12)
	}
	return class<<8 + r.take(8)
}
