package twopass

import (
	"encoding/binary"
	"slices"
)

// bitWriter appends bits, lowest first.
type bitWriter struct {
	out []byte
	at  int // bytes written to out; eight more are available
	acc uint64
	n   uint
}

// reset empties the writer and allocates n bytes.
func (w *bitWriter) reset(n int) {
	n += 16
	*w = bitWriter{out: slices.Grow(w.out[:0], n)[:n]}
}

// put appends the lowest n bits of v; the others must be zero; n is at most 32. It always writes
// eight bytes: a branch on whether a byte is complete would be unpredictable.
func (w *bitWriter) put(v uint64, n uint) {
	acc, have := w.acc|v<<(w.n&7), w.n+n
	binary.LittleEndian.PutUint64(w.out[w.at:], acc)
	w.at += int(have >> 3)
	w.acc, w.n = acc>>(have&^7&63), have&7
}

// putLong appends v as four bits with the number of bits below the highest one, followed by those.
// v is >= 1 and < 1 << 16.
func (w *bitWriter) putLong(v int) {
	n := uint(log2(v)) & 15
	w.put(uint64(n)|(uint64(v)&(1<<n-1))<<4, 4+n)
}

func (w *bitWriter) finish() []byte {
	return w.out[:w.at+int(w.n+7)>>3]
}

// bitReader reads the output of a bitWriter. It reads zeros beyond the end; the caller checks the
// final position.
type bitReader struct {
	p   []byte
	pos int // in bits
}

// peek returns at least the next 57 bits.
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

// long reads a value written by putLong.
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

// length reads the rest of a copy's length with the given class.
func (r *bitReader) length(class uint8) int {
	class &= 15
	if class == lengthLong {
		return lengthBase[lengthLong] + r.long() - 1
	}
	return lengthBase[class] + r.take(uint(lengthBits[class]))
}

// phrase reads the rest of a phrase's number with the given class.
func (r *bitReader) phrase(class int) int {
	if far := class - phrasesNear>>8; far >= 0 {
		return phrasesNear + far<<12 + r.take(12)
	}
	return class<<8 + r.take(8)
}
