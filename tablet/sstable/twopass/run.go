package twopass

// wide is the size of a fast copy where there is space for it. Excess bytes are overwritten later.
const wide = 16

// run executes the tokens: it copies literals, dictionary text and earlier bytes to dst[at:]. dst
// ends with the segment.
func (dec *decoder) run(d *Dict, s *[streams][]byte, dst []byte, at int) error {
	distances, highs := s[streamDistances], s[streamHighs]
	litsLeft := len(s[streamLiterals])
	lits := dec.bufs[streamLiterals][:litsLeft+wide] // s[streamLiterals] with padding
	b := &dec.bits
	last, lastDict := 0, false // the last copy: its distance, or its text position less at
	for _, t := range s[streamTokens] {
		n := int(t >> 2 & 3)
		if n == literalsLong {
			n += b.long() - 1
		}
		if n > litsLeft || n > len(dst)-at {
			return badLits
		}
		copyLiterals(dst, at, lits, n)
		at, lits, litsLeft = at+n, lits[n:], litsLeft-n

		class, kind := t>>4, t&3
		if kind == fromPhrase {
			id := b.phrase(int(class))
			if id >= len(d.phrases) {
				return badPhrase
			}
			n = int(d.phrases[id].n)
			last, lastDict = int(d.phrases[id].pos)-at, true
		} else {
			n = b.length(class)
		}
		if n > len(dst)-at {
			return badLength
		}
		switch kind {
		case fromBlock:
			if len(distances) == 0 {
				return badMissing
			}
			r := uint(distances[0])
			distances = distances[1:]
			if r >= windowLog {
				return badDistance
			}
			last, lastDict = 1<<r|b.take(r), false
		case fromDict:
			if len(highs) == 0 {
				return badMissing
			}
			pos := int(highs[0])<<d.shift | b.take(d.shift)
			highs = highs[1:]
			last, lastDict = pos-at, true
		}
		if lastDict {
			if pos := at + last; pos < 0 || pos > len(d.text)-n {
				return badDict
			}
			copyText(dst, at, d.text, at+last, n)
		} else {
			if last <= 0 || last > at {
				return badDistance
			}
			copyBefore(dst, at, last, n)
		}
		at += n
	}
	if len(dst)-at != litsLeft || len(distances) != 0 || len(highs) != 0 || (b.pos+7)>>3 != len(b.p) {
		return badLeft
	}
	copy(dst[at:], lits)
	return nil
}

// copyLiterals copies n bytes to dst[at:], which must have space for them; lits has wide more
// bytes.
func copyLiterals(dst []byte, at int, lits []byte, n int) {
	if n <= wide && at+wide <= len(dst) {
		*(*[wide]byte)(dst[at:]) = *(*[wide]byte)(lits)
	} else {
		copy(dst[at:], lits[:n])
	}
}

// copyText copies n bytes of the text at pos to dst[at:], which must have space for them.
func copyText(dst []byte, at int, text []byte, pos, n int) {
	if n <= 2*wide && at+2*wide <= len(dst) && pos+2*wide <= len(text) {
		to, from := dst[at:at+2*wide], text[pos:pos+2*wide]
		*(*[wide]byte)(to) = *(*[wide]byte)(from)
		*(*[wide]byte)(to[wide:]) = *(*[wide]byte)(from[wide:])
		return
	}
	copy(dst[at:at+n], text[pos:pos+n])
}

// copyBefore copies n bytes from a distance of reach before dst[at] to dst[at:], which must have
// space for them. Source and destination may overlap; then the bytes repeat.
func copyBefore(dst []byte, at, distance, n int) {
	from := at - distance
	switch {
	case distance >= wide && n <= 2*wide && at+2*wide <= len(dst):
		*(*[wide]byte)(dst[at:]) = *(*[wide]byte)(dst[from:])
		*(*[wide]byte)(dst[at+wide:]) = *(*[wide]byte)(dst[from+wide:])
	case distance >= n:
		copy(dst[at:at+n], dst[from:from+n])
	default:
		for n > 0 {
			k := copy(dst[at:at+n], dst[from:at])
			at += k
			n -= k
		}
	}
}
