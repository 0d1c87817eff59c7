package twopass

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/huff0"
)

// decoder is the state of decoding a segment, other than input and output.
type decoder struct {
	bufs [streams][]byte
	own  *huff0.Scratch // for a stream's own table
	bits bitReader
}

var decoders = sync.Pool{New: func() any {
	d := &decoder{own: new(huff0.Scratch)}
	for i := range d.bufs {
		d.bufs[i] = make([]byte, segmentBytes+wide)
	}
	return d
}}

// segmentMin is the minimum length of a coded segment: its mode, and the headers of its streams
// and of the bits.
const segmentMin = 2 + 2*streams

// DecodedMax bounds the decoded length of a block with the given encoded length. A caller that gets
// the length from untrusted input checks it before allocating.
func DecodedMax(encoded int) int {
	return min(max(encoded-1, 0)/segmentMin*segmentBytes+segmentBytes, BlockBytesMax)
}

// Decode decodes the block src into dst. The block must have exactly the length of dst, which the
// caller knows and has bounded. d is the encoder's dictionary, or nil if it had none. src and dst
// must not overlap.
//
// The error wraps ErrCorrupt, ErrNoDict or ErrTooLarge. After an error the content of dst is
// undefined.
func (d *Dict) Decode(dst, src []byte) error {
	if len(dst) > BlockBytesMax {
		return ErrTooLarge
	}
	if len(src) == 0 {
		return fmt.Errorf("%w: no header", ErrCorrupt)
	}
	g := &noTables
	if n := int(src[0]); n == 0 {
		d = &noDict
	} else if d == nil || n > len(d.gens) {
		return fmt.Errorf("%w: generation %d", ErrNoDict, n)
	} else {
		g = &d.gens[n-1]
	}
	r := reader{p: src[1:]}
	if err := decodeSegments(d, g, &r, dst); err != nil {
		return err
	}
	if len(r.p) != 0 {
		return fmt.Errorf("%w: %d bytes after the last segment", ErrCorrupt, len(r.p))
	}
	return nil
}

// decodeSegments decodes the segments of a block into dst.
func decodeSegments(d *Dict, g *generation, r *reader, dst []byte) error {
	dec := decoders.Get().(*decoder)
	defer decoders.Put(dec)
	for at := 0; at < len(dst); {
		end := min(at+segmentBytes, len(dst))
		if err := dec.segment(d, g, r, dst, at, end); err != nil {
			return fmt.Errorf("%w: segment at %d of %d: %s", ErrCorrupt, at, len(dst), err)
		}
		at = end
	}
	return nil
}

var (
	noDict   Dict
	noTables generation
)

// reason is the defect of a segment. The values are constants, so errors do not allocate.
type reason string

func (r reason) Error() string { return string(r) }

const (
	badHeader   reason = "header out of range"
	badStream   reason = "stream length differs from its header"
	badTable    reason = "no such table"
	badLength   reason = "copy beyond the end of the segment"
	badLits     reason = "more literals than stored"
	badDistance reason = "copy from before the block"
	badDict     reason = "copy from outside the dictionary"
	badPhrase   reason = "no such phrase"
	badLeft     reason = "unused input after the last token"
	badStored   reason = "stored segment truncated"
	badMode     reason = "unknown mode"
	badMissing  reason = "stream exhausted"
)

// segment decodes a segment into dst[at:end].
func (dec *decoder) segment(d *Dict, g *generation, r *reader, dst []byte, at, end int) error {
	mode := r.bytes(1)
	if mode == nil {
		return badHeader
	}
	size := end - at
	if mode[0] == modeStored {
		p := r.bytes(size)
		if p == nil {
			return badStored
		}
		copy(dst[at:end], p)
		return nil
	}
	if mode[0] != modeCoded {
		return badMode
	}
	var count, form [streams]int
	limits := [streams]int{size, size / matchMin, size / matchMin, size / matchMin}
	for i := range count {
		count[i] = r.uvarint(limits[i])
		form[i] = r.uvarint(segmentBytes<<2 | 3)
	}
	bits := r.uvarint(segmentBytes)
	if r.bad {
		return badHeader
	}
	var s [streams][]byte
	for i := range s {
		var err error
		if s[i], err = dec.stream(i, g, r, count[i], form[i]); err != nil {
			return err
		}
	}
	dec.bits = bitReader{p: r.bytes(bits)}
	if r.bad {
		return badHeader
	}
	return dec.run(d, &s, dst[:end], at)
}

// stream returns the count bytes of stream i.
func (dec *decoder) stream(i int, g *generation, r *reader, count, form int) ([]byte, error) {
	p := r.bytes(form >> 2)
	if r.bad {
		return nil, badHeader
	}
	var table *huff0.Decoder
	switch form & 3 {
	case streamRaw:
		if len(p) != count {
			return nil, badStream
		}
		return append(dec.bufs[i][:0], p...), nil
	case streamRun:
		if len(p) != 1 {
			return nil, badStream
		}
		b := dec.bufs[i][:count]
		for k := range b {
			b[k] = p[0]
		}
		return b, nil
	case streamShared:
		if table = g.decoders[i]; table == nil {
			return nil, badTable
		}
	case streamOwn:
		var err error
		if dec.own, p, err = huff0.ReadTable(p, dec.own); err != nil {
			return nil, badTable
		}
		table = dec.own.Decoder()
	}
	var out []byte
	var err error
	if count >= fourWayBytes {
		out, err = table.Decompress4X(dec.bufs[i][:0:count], p)
	} else {
		out, err = table.Decompress1X(dec.bufs[i][:0:count], p)
	}
	if err != nil || len(out) != count {
		return nil, badStream
	}
	return out, nil
}
