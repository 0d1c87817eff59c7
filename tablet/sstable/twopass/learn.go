package twopass

import (
	"bytes"
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/huff0"
)

// Limits of learning.
const (
	// LearnShare is a good ratio of input to text: one byte of text for every so many bytes. More
	// text costs more to store than it saves.
	LearnShare = 40

	textMaxDefault = 1 << 20

	chooseBytes = 4 << 20   // read to choose text
	trialBytes  = 3 << 20   // parsed to learn phrases
	tableBytes  = 512 << 10 // parsed to make tables
	indexPart   = 32 << 10  // text indexed in one step
	phraseTimes = 2         // minimum occurrences in the trial
	phraseShare = 8         // divisor of the first text reserved for phrases
)

// Learn adds to the dictionary what blocks repeat and the dictionary lacks, up to textMax bytes of
// text in total, and makes tables for the blocks encoded afterwards. It does not retain blocks. The
// text never grows above TextMax. After GenerationsMax calls Learn does nothing.
func (e *Encoder) Learn(blocks [][]byte, textMax int) {
	if len(e.gens) == GenerationsMax {
		return
	}
	first := len(e.gens) == 0
	if first {
		e.settle()
	}
	textMax = min(textMax, e.textMax)
	if n := textMax - len(e.text); n > 0 {
		if first {
			n -= n / phraseShare
		}
		e.text = choose(e.text, pick(blocks, chooseBytes), n, e.worked)
		e.index()
	}
	if first {
		e.learnPhrases(pick(blocks, trialBytes), textMax)
	}
	e.learnTables(pick(blocks, tableBytes))
}

// Wants reports whether another call of Learn would be worthwhile.
func (e *Encoder) Wants() bool {
	return len(e.gens) == 0 || len(e.gens) < GenerationsMax && len(e.text) < e.textMax-e.textMax/16
}

// settle fixes the maximum length of the text, and with it the encoding of positions.
func (e *Encoder) settle() {
	e.textMax = e.TextMax
	if e.textMax <= 0 {
		e.textMax = textMaxDefault
	}
	e.textMax = min(e.textMax, DictBytesMax)
	e.shift = uint(max(0, bits.Len(uint(e.textMax-1))-8))
	e.text = make([]byte, 0, e.textMax)
	e.m.index.init(e.textMax)
}

func (e *Encoder) worked(bytes int) {
	if e.Worked != nil {
		e.Worked(bytes)
	}
}

// index adds new text to the matcher's index.
func (e *Encoder) index() {
	for n := e.m.index.done; n < len(e.text); {
		n = min(n+indexPart, len(e.text))
		e.m.index.grow(e.text[:n])
		e.worked(indexPart)
	}
}

// pick returns blocks at even intervals, about n bytes together.
func pick(blocks [][]byte, n int) [][]byte {
	total := 0
	for _, b := range blocks {
		total += len(b)
	}
	every := max(1, total/n)
	var out [][]byte
	for i := every / 2; i < len(blocks); i += every {
		out = append(out, blocks[i])
	}
	return out
}

// trial parses blocks and calls f after each segment, which begins at offset at of its block.
func (e *Encoder) trial(blocks [][]byte, lazy int, f func(block, at int)) {
	left := 2 * trialBytes
	for i, b := range blocks {
		e.m.begin(len(b))
		for at := 0; at < len(b) && left > 0; at += segmentBytes {
			end := min(at+segmentBytes, len(b))
			e.m.parse(b, at, end, lazy)
			f(i, at)
			left -= end - at
			e.worked(end - at)
		}
		e.m.end(len(b))
	}
}

// found is a string that was copied whole in a trial. It has no pointers, because there are many.
type found struct {
	hash       uint64
	times      uint32
	at         int32 // position in the dictionary's text, or -1
	block, off int32 // first occurrence
	n          uint8
}

// tally counts distinct strings of blocks, up to a maximum number of them.
type tally struct {
	blocks [][]byte
	slots  []uint32 // hash table of indexes in all, plus one
	all    []found
}

const (
	tallyLog = 17
	// copyBytes is the assumed length of a copy, for the initial capacity. It is 31 bytes for
	// pages.
	copyBytes = 24
)

func newTally(blocks [][]byte) *tally {
	total := 0
	for _, b := range blocks {
		total += len(b)
	}
	return &tally{blocks: blocks, slots: make([]uint32, 2<<tallyLog), all: make([]found, 0, min(total/copyBytes, 1<<tallyLog))}
}

func (t *tally) text(f *found) []byte { return t.blocks[f.block][f.off:][:f.n] }

// add counts n bytes of a block and returns their entry, or nil if there are too many others.
func (t *tally) add(block, off, n int) *found {
	h := hashAll(t.blocks[block][off:][:n])
	for s := h >> (63 - tallyLog); ; s++ {
		slot := &t.slots[s%(2<<tallyLog)]
		if *slot == 0 {
			if len(t.all) == 1<<tallyLog {
				return nil
			}
			t.all = append(t.all, found{hash: h, at: -1, block: int32(block), off: int32(off), n: uint8(n)})
			*slot = uint32(len(t.all))
		}
		if f := &t.all[*slot-1]; f.hash == h {
			f.times++
			return f
		}
	}
}

// best returns the strings that were found often enough, most frequent first.
func (t *tally) best() []found {
	var keys []uint64
	for i := range t.all {
		if n := t.all[i].times; n >= phraseTimes {
			keys = append(keys, uint64(math.MaxUint32-n)<<32|uint64(i))
		}
	}
	slices.Sort(keys)
	out := make([]found, 0, PhrasesMax)
	for _, k := range keys[:min(len(keys), PhrasesMax)] {
		out = append(out, t.all[uint32(k)])
	}
	return out
}

// learnPhrases finds the strings that are most often copied whole.
func (e *Encoder) learnPhrases(blocks [][]byte, textMax int) {
	var ph []phrase
	t := e.tallyCopies(blocks)
	for _, f := range t.best() {
		p := t.text(&f)
		if f.at < 0 || !bytes.HasPrefix(e.text[f.at:], p) {
			if len(e.text)+len(p) > textMax {
				continue
			}
			f.at = int32(len(e.text))
			e.text = append(e.text, p...)
		}
		ph = append(ph, phrase{uint32(f.at), uint32(len(p))})
	}
	for g := range slices.Chunk(ph, phraseGroup) {
		slices.SortFunc(g, func(a, b phrase) int {
			return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.n, b.n))
		})
	}
	e.phrases = ph
	e.index()
	e.m.index.setPhrases(ph)
}

// tallyCopies counts the strings that a trial of the blocks copies, and that may be phrases.
func (e *Encoder) tallyCopies(blocks [][]byte) *tally {
	t := newTally(blocks)
	e.trial(blocks, lazyTrial, func(block, at int) {
		for i := range e.m.seqs {
			q := &e.m.seqs[i]
			at += int(q.lits)
			if n := int(q.n); n >= phraseHead && n <= phraseMax {
				if f := t.add(block, at, n); f != nil && q.kind == fromDict {
					f.at = q.at
				}
			}
			at += int(q.n)
		}
	})
	return t
}

// learnTables makes a generation of tables from blocks.
func (e *Encoder) learnTables(blocks [][]byte) {
	var all [streams][]byte
	e.trial(blocks, lazyBytes, func(int, int) {
		e.split()
		for i, s := range e.s {
			all[i] = append(all[i], s...)
		}
	})
	var g generation
	for i, s := range all {
		if table, ratio := sharedTable(s); table != nil {
			g.raw[i], e.sharedRatio[i] = table, ratio
		}
	}
	if err := g.read(); err != nil {
		panic("BUG: " + err.Error())
	}
	e.gens = append(e.gens, g)
}

// sharedTable returns the Huffman table for streams like s, and the ratio by which it compresses s. The
// table is nil if s is too short or does not compress.
func sharedTable(s []byte) (table []byte, ratio float64) {
	s = s[:min(len(s), huff0.BlockSizeMax-256)]
	n := len(s)
	if n < 64 {
		return nil, 0
	}
	// Add each byte once, so that every byte has a code in the table.
	for c := range 256 {
		s = append(s, byte(c))
	}
	var made huff0.Scratch
	out, _, err := huff0.Compress4X(s, &made)
	if err != nil {
		return nil, 0
	}
	return append([]byte(nil), made.OutTable...), float64(len(out)) / float64(n)
}
