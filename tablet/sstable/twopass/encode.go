package twopass

import (
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/huff0"
)

// Encoder encodes blocks, and the dictionary that they share if Learn was called. It is not safe
// for concurrent use. The zero value is ready.
type Encoder struct {
	// TextMax is the maximum length of the dictionary's text, in bytes. Zero means 1 MiB; at most
	// DictBytesMax. The first call of Learn fixes it.
	TextMax int

	// Worked, if not nil, is called by Learn for each piece of input processed, with its size in
	// bytes: a block, or part of one.
	Worked func(bytes int)

	m matcher

	text        []byte // of the dictionary; grows only
	textMax     int
	shift       uint
	phrases     []phrase
	gens        []generation
	sharedRatio [streams]float64 // compression ratio of a stream with the shared table

	s    [streams][]byte
	bits bitWriter
	own  huff0.Scratch
	body []byte
}

// Encode appends the encoded block src to dst. It is at most a few bytes longer than src. It uses
// the dictionary learned so far. Encode panics if src is larger than BlockBytesMax.
func (e *Encoder) Encode(dst, src []byte) []byte {
	if len(src) > BlockBytesMax {
		panic("BUG: two-pass block above 512 MiB")
	}
	dst = append(dst, byte(len(e.gens)))
	e.m.begin(len(src))
	for at := 0; at < len(src); at += segmentBytes {
		dst = e.segment(dst, src, at, min(at+segmentBytes, len(src)))
	}
	e.m.end(len(src))
	return dst
}

// segment appends the segment src[at:end].
func (e *Encoder) segment(dst, src []byte, at, end int) []byte {
	e.m.parse(src, at, end, lazyBytes)
	return e.code(dst, src[at:end])
}

// code appends the segment raw, which the matcher has parsed.
func (e *Encoder) code(dst, raw []byte) []byte {
	e.split()
	start := len(dst)
	dst = append(dst, modeCoded)
	e.body = e.body[:0]
	for i := range e.s {
		dst = e.stream(dst, i)
	}
	rest := e.bits.finish()
	dst = binary.AppendUvarint(dst, uint64(len(rest)))
	dst = append(dst, e.body...)
	dst = append(dst, rest...)
	if len(rest) > segmentBytes || len(dst)-start > len(raw) {
		dst = append(dst[:start], modeStored)
		dst = append(dst, raw...)
	}
	return dst
}

// seqBits is the maximum number of bits for a seq: two numbers by putLong, and a distance.
const seqBits = 2*(4+16) + windowLog

// split builds the streams from the matcher's output.
func (e *Encoder) split() {
	for i := range e.s {
		e.s[i] = e.s[i][:0]
	}
	e.s[streamLiterals] = append(e.s[streamLiterals], e.m.lits...)
	seqs := e.m.seqs
	// Slices have space for all seqs, so that every iteration can store a distance and a high byte;
	// values that do not apply are overwritten by the next iteration.
	tokens := slices.Grow(e.s[streamTokens], len(seqs))[:len(seqs)]
	distances := slices.Grow(e.s[streamDistances], len(seqs)+1)[:len(seqs)+1]
	highs := slices.Grow(e.s[streamHighs], len(seqs)+1)[:len(seqs)+1]
	nDistances, nHighs := 0, 0
	w := &e.bits
	w.reset(len(seqs) * seqBits / 8)
	shift := e.shift & 31
	for i := range seqs {
		q := &seqs[i]
		t := q.kind | uint8(min(q.lits, literalsLong))<<2
		if q.lits >= literalsLong {
			w.putLong(int(q.lits) - literalsLong + 1)
		}
		if q.kind == fromPhrase {
			if far := q.at - phrasesNear; far >= 0 {
				tokens[i] = t | uint8(phrasesNear>>8+far>>12)<<4
				w.put(uint64(far&4095), 12)
			} else {
				tokens[i] = t | uint8(q.at>>8)<<4
				w.put(uint64(q.at&255), 8)
			}
			continue
		}
		c := lengthClass(int(q.n))
		tokens[i] = t | uint8(c)<<4
		more := int(q.n) - lengthBase[c&15]
		if c == lengthLong {
			w.putLong(more + 1)
		} else {
			w.put(uint64(more), uint(lengthBits[c&15]))
		}
		// The kind is unpredictable, so a branch would cost more.
		k := uint(log2(int(q.at | 1)))
		distances[nDistances], highs[nHighs] = uint8(k), uint8(q.at>>shift)
		var n uint
		if q.kind == fromBlock {
			n = k
		}
		if q.kind == fromDict {
			n = shift
		}
		nDistances += int(1 - (q.kind|q.kind>>1)&1)
		nHighs += int(q.kind & 1)
		w.put(uint64(q.at)&(1<<(n&31)-1), n)
	}
	e.s[streamTokens], e.s[streamDistances], e.s[streamHighs] = tokens, distances[:nDistances], highs[:nHighs]
}

// stream appends the header of stream i to dst and its bytes to the body.
func (e *Encoder) stream(dst []byte, i int) []byte {
	p := e.s[i]
	out, form := p, streamRaw
	if isRun(p) {
		out, form = p[:1], streamRun
	} else if len(p) >= 16 {
		out, form = e.squeeze(p, i)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	dst = binary.AppendUvarint(dst, uint64(len(out)<<2|form))
	e.body = append(e.body, out...)
	return dst
}

// isRun reports whether p is one byte repeated at least twice.
func isRun(p []byte) bool {
	if len(p) < 2 {
		return false
	}
	for _, c := range p {
		if c != p[0] {
			return false
		}
	}
	return true
}

// squeeze returns p in the shortest form found. It uses the generation's table unless that does
// much worse than when it was made: making a table mostly costs more time than its savings are
// worth.
func (e *Encoder) squeeze(p []byte, i int) ([]byte, int) {
	best, form := p, streamRaw
	if n := len(e.gens); n > 0 && e.gens[n-1].tables[i] != nil {
		t := e.gens[n-1].tables[i]
		t.Reuse = huff0.ReusePolicyMust
		if out, ok := huffman(p, t); ok {
			best, form = out, streamShared
			if float64(len(out)) <= e.sharedRatio[i]*float64(len(p))*9/8+32 {
				return best, form
			}
		}
	}
	e.own.Reuse = huff0.ReusePolicyNone
	if out, ok := huffman(p, &e.own); ok && len(out) < len(best) {
		return out, streamOwn
	}
	return best, form
}

// huffman returns p as one Huffman stream or as four, if that is shorter than p.
func huffman(p []byte, s *huff0.Scratch) ([]byte, bool) {
	var out []byte
	var err error
	if len(p) >= fourWayBytes {
		out, _, err = huff0.Compress4X(p, s)
	} else {
		out, _, err = huff0.Compress1X(p, s)
	}
	return out, err == nil && len(out) < len(p)
}

// HasDict reports whether Learn has learned anything, so that blocks need the dictionary.
func (e *Encoder) HasDict() bool { return len(e.gens) > 0 }

// TextBytes returns the length of the dictionary's text.
func (e *Encoder) TextBytes() int { return len(e.text) }

// AppendDict appends the dictionary in the form that OpenDict decodes. It is valid for all blocks
// encoded so far.
func (e *Encoder) AppendDict(p []byte) []byte {
	d := Dict{text: e.text, shift: e.shift, phrases: e.phrases, gens: e.gens}
	return d.appendTo(p)
}
