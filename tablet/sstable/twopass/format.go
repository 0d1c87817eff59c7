package twopass

import "math/bits"

// Limits of the format. A decoder refuses what is beyond them.
const (
	// BlockBytesMax is the largest block, in bytes before compression.
	BlockBytesMax = 512 << 20
	// DictBytesMax is the largest text of a dictionary.
	DictBytesMax = 4 << 20
	// PhrasesMax is the largest number of phrases of a dictionary: those
	// that four bits of a token and eight or twelve more can name.
	PhrasesMax = phrasesNear + 4<<12
	// GenerationsMax is the largest number of sets of tables of a dictionary.
	GenerationsMax = 16

	segmentBytes = 64 << 10 // raw, all but the last of a block
	matchMin     = 4        // bytes, for all kinds but phrases
	phraseMax    = 255      // bytes of a phrase
	phrasesNear  = 12 << 8  // phrases that eight bits more name
	windowLog    = 24       // an own match reaches back less than 16 MiB
)

// What a token copies. The numbers are in files.
const (
	fromBlock  = 0 // bytes before, of the same block
	fromDict   = 1 // the dictionary's text
	fromLast   = 2 // as far from here as the copy before was
	fromPhrase = 3 // a phrase of the dictionary, whole
)

// How a stream is stored. The numbers are in files.
const (
	streamRaw    = 0
	streamShared = 1 // Huffman, by the table of the generation
	streamOwn    = 2 // Huffman, behind its table
	streamRun    = 3 // one byte, over and over
)

// The streams of a segment, in the order in which they lie.
const (
	streamLiterals = 0
	streamTokens   = 1
	streamReaches  = 2 // logarithms of how far back own matches lie
	streamHighs    = 3 // high bytes of positions in the dictionary
	streams        = 4
)

const (
	modeStored = 0
	modeCoded  = 1
)

// fourWayBytes is the length from which a Huffman stream is made of four.
const fourWayBytes = 256

// lengthBase and lengthBits make the length of a copy from a token's class and
// the bits that follow it. The last class has a length of bits of its own.
var (
	lengthBase = [16]int{4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 21, 25, 33, 49, 81, 145}
	lengthBits = [16]uint8{0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 0}
)

const (
	lengthLong   = 15 // class
	literalsLong = 3  // class: three literals or more
)

// shortClass gives the class of a length below 145.
var shortClass = func() (t [145]uint8) {
	for c := range lengthLong {
		for n := lengthBase[c]; n < lengthBase[c+1]; n++ {
			t[n] = uint8(c)
		}
	}
	return t
}()

func lengthClass(n int) int {
	if n < len(shortClass) {
		return int(shortClass[n])
	}
	return lengthLong
}

// log2 of n >= 1, rounded down.
func log2(n int) int { return bits.Len(uint(n)) - 1 }
