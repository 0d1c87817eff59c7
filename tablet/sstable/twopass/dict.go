package twopass

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/huff0"
)

const dictVersion = 1

// phrase is the place of a phrase in the dictionary's text.
type phrase struct {
	pos uint32
	n   uint32
}

// generation has the tables shared by many blocks.
type generation struct {
	raw      [streams][]byte // tables as stored; empty: none
	tables   [streams]*huff0.Scratch
	decoders [streams]*huff0.Decoder
}

// read decodes the stored tables.
func (g *generation) read() error {
	for i, p := range g.raw {
		if len(p) == 0 {
			continue
		}
		s, rest, err := huff0.ReadTable(p, nil)
		if err != nil || len(rest) != 0 {
			return fmt.Errorf("%w: table %d of a dictionary", ErrCorrupt, i)
		}
		g.tables[i], g.decoders[i] = s, s.Decoder()
	}
	return nil
}

// Dict is the data shared by the blocks of a file: text, phrases in it, and tables. It is immutable
// and safe for concurrent use.
type Dict struct {
	text    []byte
	shift   uint // bits of a position below its high byte
	phrases []phrase
	gens    []generation
	memory  int64
}

// OpenDict decodes the output of Encoder.AppendDict. It does not retain p. The error wraps
// ErrCorrupt.
func OpenDict(p []byte) (*Dict, error) {
	d := &Dict{}
	bad := func(what string) (*Dict, error) {
		return nil, fmt.Errorf("%w: dictionary of %d bytes: %s", ErrCorrupt, len(p), what)
	}
	if len(p) < 3 || p[0] != dictVersion {
		return bad("unknown version")
	}
	gens := int(p[2])
	d.shift = uint(p[1])
	if d.shift > 24 || gens > GenerationsMax {
		return bad("numbers out of range")
	}
	r := reader{p: p[3:]}
	for range gens {
		g, err := readGeneration(&r)
		if r.bad {
			return bad("tables truncated")
		}
		if err != nil {
			return nil, err
		}
		d.gens = append(d.gens, g)
	}
	if problem := d.readText(&r); problem != "" {
		return bad(problem)
	}
	d.memory = int64(cap(d.text)) + 8*int64(len(d.phrases)) + int64(gens)*streams*8<<10
	return d, nil
}

// readText reads the phrases and the text, which end the dictionary. It returns what is wrong with
// them, or an empty string.
func (d *Dict) readText(r *reader) (problem string) {
	n := r.uvarint(PhrasesMax)
	if n > len(r.p)/2 {
		return "phrases truncated"
	}
	d.phrases = readPhrases(r, n)
	textLen := r.uvarint(DictBytesMax)
	text := r.bytes(textLen)
	if r.bad || len(r.p) != 0 {
		return "text has a wrong length"
	}
	for _, ph := range d.phrases {
		if ph.n < matchMin || int(ph.pos+ph.n) > textLen {
			return "phrase outside the text"
		}
	}
	d.text = append(make([]byte, 0, textLen), text...)
	return ""
}

// readGeneration reads the tables of one generation. If r is bad afterwards, they are truncated.
func readGeneration(r *reader) (g generation, err error) {
	for i := range g.raw {
		g.raw[i] = append([]byte(nil), r.bytes(r.uvarint(255))...)
	}
	if r.bad {
		return g, nil
	}
	return g, g.read()
}

// readPhrases reads n phrases, whose positions the caller checks.
func readPhrases(r *reader, n int) []phrase {
	all := make([]phrase, n)
	at := 0
	for i := range all {
		if i%phraseGroup == 0 {
			at = 0
		}
		at += r.uvarint(DictBytesMax)
		all[i] = phrase{uint32(at), uint32(r.uvarint(phraseMax))}
	}
	return all
}

// MemoryBytes returns the approximate memory of the dictionary.
func (d *Dict) MemoryBytes() int64 { return d.memory }

// TextBytes returns the length of the text.
func (d *Dict) TextBytes() int { return len(d.text) }

// phraseGroup is the number of consecutive phrases sorted by position, which are stored as
// differences.
const phraseGroup = 256

func (d *Dict) appendTo(p []byte) []byte {
	p = append(p, dictVersion, byte(d.shift), byte(len(d.gens)))
	for i := range d.gens {
		for _, t := range d.gens[i].raw {
			p = binary.AppendUvarint(p, uint64(len(t)))
			p = append(p, t...)
		}
	}
	p = binary.AppendUvarint(p, uint64(len(d.phrases)))
	at := uint32(0)
	for i, ph := range d.phrases {
		if i%phraseGroup == 0 {
			at = 0
		}
		p = binary.AppendUvarint(p, uint64(ph.pos-at))
		p = binary.AppendUvarint(p, uint64(ph.n))
		at = ph.pos
	}
	p = binary.AppendUvarint(p, uint64(len(d.text)))
	return append(p, d.text...)
}

// reader decodes values from p. After a missing value, or one above its limit, bad is set and it
// returns zeros.
type reader struct {
	p   []byte
	bad bool
}

func (r *reader) uvarint(limit int) int {
	v, n := binary.Uvarint(r.p)
	if n <= 0 || v > uint64(limit) {
		r.bad, r.p = true, nil
		return 0
	}
	r.p = r.p[n:]
	return int(v)
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.p) {
		r.bad, r.p = true, nil
		return nil
	}
	p := r.p[:n]
	r.p = r.p[n:]
	return p
}
