package twopass

import (
	"math/bits"
)

// Approximate costs, in quarters of a bit.
const (
	costLiteral = 22
	costOwn     = 30 // plus one bit for each bit of the distance
	costDict    = 96
	costLast    = 28
	costPhrase  = 56
)

const (
	niceBytes  = 32 // length of a copy that ends the search
	nicePhrase = 12 // length of a phrase that ends the search
	lazyBytes  = 12 // length of a copy from which none a byte later is tried
	lazyTrial  = 48 // lazyBytes while learning phrases, which improves them
	lazyGain   = 20 // extra gain required of a copy a byte later

	ownLog = 15 // log2 of the hash tables of the block's own bytes
)

// seq is a run of literals followed by a copy.
type seq struct {
	lits int32
	n    int32
	at   int32 // distance, position in the text, or number of the phrase
	kind uint8
}

// match is a candidate copy at some place. It has few enough fields to be kept in registers.
type match struct {
	gain int // in quarters of a bit, compared with literals
	n    int
	at   int // position in the block or text, or index in heads
	kind uint8
}

// matcher finds repetitions: the first pass.
type matcher struct {
	index index

	// Hash tables of places in the current block, by 8 and by 4 bytes, plus epoch. Values below
	// epoch are from earlier blocks.
	long, short *[1 << ownLog]uint32
	epoch       uint32

	seqs []seq
	lits []byte

	// The last copy: whether its source is the text, the source, and the source position relative
	// to the destination.
	lastDict bool
	lastFrom []byte
	lastAway int
}

// begin prepares the tables for a block of n bytes.
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
func (m *matcher) end(n int) {
	m.epoch += uint32(n)
	m.lastFrom = nil
}

func ownLong(h uint64) uint32  { return uint32(h >> (64 - ownLog)) }
func ownShort(v uint64) uint32 { return uint32(v << 32 * prime1 >> (64 - ownLog)) }

// parse sets seqs and lits for the segment src[at:end]. A copy of fewer than lazy bytes is compared
// with one that begins a byte later.
func (m *matcher) parse(src []byte, at, end, lazy int) {
	m.seqs, m.lits = m.seqs[:0], m.lits[:0]
	m.lastFrom, m.lastAway = nil, 0
	src = src[:end]
	anchor, i := at, at
	stop := end - 16
	// The index is queried for a place and the next one together, before the results are needed, to
	// hide memory latency.
	var known, after texts
	if i < stop {
		m.index.at(&known, src, i)
		m.index.at(&after, src, i+1)
	}
	for i < stop {
		best := m.find(src, i, 0, &known)
		if best.n == 0 {
			if step := 1 + (i-anchor)>>7; step == 1 {
				i++
				known = after
			} else {
				i = min(i+step, stop)
				m.index.at(&known, src, i)
			}
			m.index.at(&after, src, i+1)
			continue
		}
		if best.n < lazy && !(best.kind >= fromLast && best.n >= nicePhrase) && i+1 < stop {
			if next := m.find(src, i+1, best.gain+lazyGain, &after); next.n > 0 {
				best = next
				i++
			}
		}
		next := min(i+best.n, stop)
		m.index.at(&known, src, next)
		m.index.at(&after, src, next+1)
		m.take(src, best, i, anchor)
		i += best.n
		anchor = i
	}
	m.lits = append(m.lits, src[anchor:]...)
}

// take adds the copy x at i, and the literals since anchor. The copy is extended backward over
// equal bytes.
func (m *matcher) take(src []byte, x match, i, anchor int) {
	next := i + x.n
	id, dict := 0, x.kind == fromDict || x.kind == fromLast && m.lastDict
	if x.kind == fromPhrase {
		h := &m.index.heads[x.at]
		id, x.at, dict = int(h.id), int(h.pos), true
	} else if i > anchor {
		from := src
		if dict {
			from = m.index.text
		}
		for i > anchor && x.at > 0 && from[x.at-1] == src[i-1] {
			i--
			x.at--
		}
	}
	n := next - i
	if i > anchor {
		m.lits = append(m.lits, src[anchor:i]...)
	}
	away := x.at - i
	s := seq{lits: int32(i - anchor), n: int32(n), kind: x.kind, at: int32(id)}
	if x.kind != fromPhrase {
		switch {
		case m.lastFrom != nil && away == m.lastAway && dict == m.lastDict:
			s.kind = fromLast
		case dict:
			s.kind, s.at = fromDict, int32(x.at)
		default:
			s.kind, s.at = fromBlock, int32(-away)
		}
	}
	m.seqs = append(m.seqs, s)
	m.lastAway, m.lastDict = away, dict
	if dict {
		m.lastFrom = m.index.text
	} else {
		m.lastFrom = src
	}
	stop := len(src) - 16
	// One place at the start of a copy is indexed, because its source is indexed too, and three at
	// its end, where other copies may begin. The number is constant because a copy's length is
	// unpredictable.
	if next >= 6 && next <= stop+2 {
		m.put(src, i+2)
		m.put(src, next-6)
		m.put(src, next-4)
		m.put(src, next-2)
	}
}

// put indexes the place i of the block.
func (m *matcher) put(src []byte, i int) {
	v := load64(src, i)
	at := m.epoch + uint32(i)
	m.long[ownLong(hash8(v))], m.short[ownShort(v)] = at, at
}

// same returns the length of the common prefix of a and b.
func same(a, b []byte) (n int) {
	if len(a) >= 16 && len(b) >= 16 {
		// Compare sixteen bytes at once: whether the first eight are equal is unpredictable.
		x, y := load64(a, 0)^load64(b, 0), load64(a, 8)^load64(b, 8)
		if x|y != 0 {
			n = bits.TrailingZeros64(y)>>3 + 8
			if x != 0 {
				n = bits.TrailingZeros64(x) >> 3
			}
			return n
		}
		n = 16
	}
	if len(a) > len(b) {
		a = a[:len(b)]
	}
	for n+8 <= len(a) && n+8 <= len(b) {
		if x := load64(a, n) ^ load64(b, n); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
		n += 8
	}
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// find returns the copy at i with the highest gain above gain, or one with n == 0. At least 16
// bytes must follow i. known is the index's result for i.
func (m *matcher) find(src []byte, i, gain int, known *texts) (best match) {
	best.gain = gain
	here := src[i:]
	v := load64(here, 0)
	long, short := &m.long[ownLong(hash8(v))], &m.short[ownShort(v)]
	// Places of earlier blocks are below the epoch, so the difference wraps to far above i.
	longAt, shortAt := *long-m.epoch, *short-m.epoch
	now := m.epoch + uint32(i)
	*long, *short = now, now
	x := &m.index
	if p := i + m.lastAway; p >= 0 && p+matchMin <= len(m.lastFrom) && load32(m.lastFrom, p) == uint32(v) {
		n := 4 + same(here[4:], m.lastFrom[p+4:])
		if g := n*costLiteral - costLast; g > best.gain {
			best = match{gain: g, n: n, at: p, kind: fromLast}
		}
	}
	own := longAt < uint32(i) && load64(src, int(longAt)) == v
	if own {
		p := int(longAt)
		n := 8 + same(here[8:], src[p+8:])
		if g := n*costLiteral - costOwn - 4*log2(i-p); g > best.gain && i-p < 1<<windowLog {
			best = match{gain: g, n: n, at: p, kind: fromBlock}
		}
	}
	if best.n < niceBytes && x.text != nil {
		if known.from != known.to {
			if k := x.phrase(here, known, (best.gain+costPhrase)/costLiteral); k >= 0 {
				n := int(x.heads[k].n)
				best = match{gain: n*costLiteral - costPhrase, n: n, at: k, kind: fromPhrase}
			}
		}
		if best.n < niceBytes && !(best.kind == fromPhrase && best.n >= nicePhrase) {
			if p, n := x.find(here, known, (best.gain+costDict)/costLiteral); n > 0 {
				best = match{gain: n*costLiteral - costDict, n: n, at: p, kind: fromDict}
			}
		}
	}
	if !own && best.n < 16 && shortAt < uint32(i) && load32(src, int(shortAt)) == uint32(v) {
		p := int(shortAt)
		n := 4 + same(here[4:], src[p+4:])
		if g := n*costLiteral - costOwn - 4*log2(i-p); g > best.gain && i-p < 1<<windowLog {
			best = match{gain: g, n: n, at: p, kind: fromBlock}
		}
	}
	return best
}
