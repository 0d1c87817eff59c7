package twopass

import (
	"encoding/binary"
	"math/bits"
)

// What a byte or a copy costs about, in quarters of a bit.
const (
	costLiteral = 22
	costOwn     = 30 // and one bit for each bit of how far back
	costDict    = 96
	costLast    = 28
	costPhrase  = 56
)

const (
	niceBytes = 48 // a copy of as much is taken without looking for a better one
	lazyBytes = 48 // nor for one that begins a byte later
	lazyGain  = 20 // what a copy must gain more to begin a byte later

	ownLog = 15 // log of the tables of a block's own bytes
)

// seq is a run of literals and the copy after it.
type seq struct {
	lits int32
	n    int32
	at   int32 // how far back; or the position, or the phrase's number
	kind uint8
}

// match is a copy that may be made at some place.
type match struct {
	gain int // in quarters of a bit, against literals
	n    int
	at   int // position in the block, or in the text
	id   int // phrase's number
	kind uint8
}

// matcher finds what repeats: the first pass.
type matcher struct {
	index index

	// Places of own bytes by 8 and by 4 of them, plus epoch: what is
	// below epoch is of an earlier block.
	long, short *[1 << ownLog]uint32
	epoch       uint32

	seqs []seq
	lits []byte

	last     int // as in run
	lastDict bool
}

// begin makes the tables fit for a block of n bytes.
func (m *matcher) begin(n int) {
	if m.long == nil {
		m.long, m.short = new([1 << ownLog]uint32), new([1 << ownLog]uint32)
	}
	if m.epoch == 0 || m.epoch > 1<<31 {
		clear(m.long[:])
		clear(m.short[:])
		m.epoch = 1
	}
}

// end forgets the block of n bytes.
func (m *matcher) end(n int) { m.epoch += uint32(n) }

func ownLong(v uint64) uint32  { return uint32(v * prime1 >> (64 - ownLog)) }
func ownShort(v uint64) uint32 { return uint32(v << 32 * prime1 >> (64 - ownLog)) }

// parse makes seqs and lits of src[at:end], a segment.
func (m *matcher) parse(src []byte, at, end int) {
	m.seqs, m.lits = m.seqs[:0], m.lits[:0]
	m.last, m.lastDict = 0, false
	src = src[:end]
	anchor, i := at, at
	stop := end - 16
	for i < stop {
		best := m.find(src, i, 0)
		if best.gain <= 0 {
			i += 1 + (i-anchor)>>7
			continue
		}
		for best.n < lazyBytes && !(best.kind >= fromLast && best.n >= 12) && i+1 < stop {
			next := m.find(src, i+1, best.gain+lazyGain)
			if next.gain <= best.gain+lazyGain {
				break
			}
			best = next
			i++
		}
		if best.kind != fromPhrase {
			for i > anchor && best.at > 0 && m.before(src, &best) == src[i-1] {
				i--
				best.at--
				best.n++
			}
		}
		m.lits = append(m.lits, src[anchor:i]...)
		m.add(&best, i, i-anchor)
		m.putInside(src, i+2, min(i+best.n, stop))
		i += best.n
		anchor = i
	}
	m.lits = append(m.lits, src[anchor:]...)
}

// putInside makes own bytes from i to end be found, every other one: the next
// of them is tried a byte later, and copies are made longer to the front.
func (m *matcher) putInside(src []byte, i, end int) {
	long, short, epoch := m.long, m.short, m.epoch
	for ; i < end; i += 2 {
		v := load64(src, i)
		long[ownLong(v)] = epoch + uint32(i)
		short[ownShort(v)] = epoch + uint32(i)
	}
}

// before returns the byte before the one that x begins with.
func (m *matcher) before(src []byte, x *match) byte {
	if x.kind == fromDict || x.kind == fromLast && m.lastDict {
		return m.index.text[x.at-1]
	}
	return src[x.at-1]
}

// add makes a seq of a copy to i.
func (m *matcher) add(x *match, i, lits int) {
	s := seq{lits: int32(lits), n: int32(x.n), kind: x.kind}
	switch x.kind {
	case fromBlock:
		reach := i - x.at
		if !m.lastDict && reach == m.last {
			s.kind = fromLast
		}
		s.at = int32(reach)
		m.last, m.lastDict = reach, false
	case fromDict:
		if m.lastDict && x.at-i == m.last {
			s.kind = fromLast
		}
		s.at = int32(x.at)
		m.last, m.lastDict = x.at-i, true
	case fromPhrase:
		s.at = int32(x.id)
		m.last, m.lastDict = x.at-i, true
	}
	m.seqs = append(m.seqs, s)
}

// same returns how many bytes a and b have in common.
func same(a, b []byte) (n int) {
	if len(a) > len(b) {
		a = a[:len(b)]
	}
	for len(a) >= 8 && len(b) >= 8 {
		if x := binary.LittleEndian.Uint64(a) ^ binary.LittleEndian.Uint64(b); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
		n += 8
		a, b = a[8:], b[8:]
	}
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return n + i
		}
	}
	return n + len(a)
}

// find returns the copy that gains most at i, and more than gain; at least 16
// bytes follow.
func (m *matcher) find(src []byte, i, gain int) (best match) {
	best.gain = gain
	v := load64(src, i)
	x := &m.index
	here := src[i:]
	if m.lastDict {
		if p := i + m.last; p >= 0 && p+matchMin <= len(x.text) && load32(x.text, p) == uint32(v) {
			n := same(here, x.text[p:])
			if g := n*costLiteral - costLast; g > best.gain {
				best = match{gain: g, n: n, at: p, kind: fromLast}
			}
		}
	} else if p := i - m.last; m.last > 0 && p >= 0 && load32(src, p) == uint32(v) {
		n := same(here, src[p:])
		if g := n*costLiteral - costLast; g > best.gain {
			best = match{gain: g, n: n, at: p, kind: fromLast}
		}
	}
	hl, hs := ownLong(v), ownShort(v)
	el, es := m.long[hl], m.short[hs]
	m.long[hl], m.short[hs] = m.epoch+uint32(i), m.epoch+uint32(i)
	if best.n >= niceBytes {
		return best
	}
	own := false
	if p := int(int32(el - m.epoch)); p >= 0 && p < i && el >= m.epoch && load64(src, p) == v && i-p < 1<<windowLog {
		own = true
		n := 8 + same(here[8:], src[p+8:])
		if g := n*costLiteral - costOwn - 4*log2(i-p); g > best.gain {
			best = match{gain: g, n: n, at: p, kind: fromBlock}
		}
	}
	if best.n < niceBytes {
		if len(x.phrases) > 0 {
			m.findPhrase(here, v, &best)
		}
		if best.n < niceBytes && len(x.text) > 0 {
			m.findText(here, v, &best)
		}
	}
	if !own && best.n < 16 {
		if p := int(int32(es - m.epoch)); p >= 0 && p < i && es >= m.epoch && load32(src, p) == uint32(v) && i-p < 1<<windowLog {
			n := 4 + same(here[4:], src[p+4:])
			if g := n*costLiteral - costOwn - 4*log2(i-p); g > best.gain {
				best = match{gain: g, n: n, at: p, kind: fromBlock}
			}
		}
	}
	return best
}

func (m *matcher) findText(here []byte, v uint64, best *match) {
	x := &m.index
	b := &x.long[hash8(v)>>x.longShift]
	t := tag(hash8(load64(here, 8)))
	need := (best.gain + costDict) / costLiteral
	if need > len(here)-4 {
		return
	}
	found := false
	for _, e := range b {
		if e == 0 {
			break
		}
		if e&255 != t {
			continue
		}
		p := int(e >> 8)
		if p+need+4 > len(x.text) {
			continue
		}
		if need >= 4 && load32(here, need-3) != load32(x.text, p+need-3) {
			continue
		}
		n := same(here, x.text[p:])
		if g := n*costLiteral - costDict; g > best.gain {
			found = true
			*best = match{gain: g, n: n, at: p, kind: fromDict}
			need = n
			if need > len(here)-4 {
				return
			}
		}
	}
	if found || best.n >= 16 || need >= 16 {
		return
	}
	if e := b[0]; e != 0 && e&255 != t {
		p := int(e >> 8)
		n := same(here, x.text[p:])
		if g := n*costLiteral - costDict; n >= 5 && g > best.gain {
			*best = match{gain: g, n: n, at: p, kind: fromDict}
			return
		}
	}
	if best.n >= 8 || need >= 8 {
		return
	}
	h := hash6(v)
	e := x.short[h>>x.shortShift]
	if e == 0 || e&255 != tag(h) {
		return
	}
	p := int(e >> 8)
	n := same(here, x.text[p:])
	if g := n*costLiteral - costDict; n >= 5 && g > best.gain {
		*best = match{gain: g, n: n, at: p, kind: fromDict}
	}
}

func (m *matcher) findPhrase(here []byte, v uint64, best *match) {
	x := &m.index
	k := x.byHead[hash5(v)>>(64-headLog)]
	for range headTries {
		if k == 0 {
			return
		}
		ph := &x.heads[k-1]
		n := int(ph.n)
		// The end tells most of those apart that begin alike.
		if n <= len(here) && ph.tail == load32(here, n-4) {
			g := n*costLiteral - costPhrase
			if g <= best.gain {
				return
			}
			if p := int(ph.pos); same(here[:n], x.text[p:]) == n {
				*best = match{gain: g, n: n, at: p, kind: fromPhrase, id: int(k - 1)}
				return
			}
		}
		k = ph.next
	}
}
