package twopass

import "math/bits"

// Limits of the format. A decoder rejects values beyond them.
const (
	// BlockBytesMax is the maximum size of a block before compression, in bytes.
	BlockBytesMax = 512 << 20
	// DictBytesMax is the maximum size of a dictionary's text, in bytes.
	DictBytesMax = 4 << 20
	// PhrasesMax is the maximum number of phrases in a dictionary: those addressable by four bits
	// of a token and eight or twelve more.
	PhrasesMax = phrasesNear + 4<<12
	// GenerationsMax is the maximum number of generations in a dictionary.
	GenerationsMax = 16

	segmentBytes = 64 << 10 // raw, all but the last of a block
	matchMin     = 4        // bytes, for all kinds but phrases
	phraseMax    = 255      // bytes of a phrase
	phrasesNear  = 12 << 8  // phrases addressed by eight more bits
	windowLog    = 24       // distances are below 16 MiB
)

// Kinds of copies. The numbers are stored in files.
const (
	fromBlock  = 0 // earlier bytes of the same block
	fromDict   = 1 // the dictionary's text
	fromLast   = 2 // the same relative place as the previous copy
	fromPhrase = 3 // a phrase of the dictionary, whole
)

// Forms of a stream. The numbers are stored in files.
const (
	streamRaw    = 0
	streamShared = 1 // Huffman, by the table of the generation
	streamOwn    = 2 // Huffman, after its own table
	streamRun    = 3 // one byte, repeated
)

// Streams of a segment, in their order in the file.
const (
	streamLiterals  = 0
	streamTokens    = 1
	streamDistances = 2 // logarithms of distances within the block
	streamHighs     = 3 // high bytes of positions in the dictionary
	streams         = 4
)

const (
	modeStored = 0
	modeCoded  = 1
)

// fourWayBytes is the length from which a Huffman stream is split into four.
const fourWayBytes = 256

// lengthBase and lengthBits define the length of a copy by a token's class and the bits that
// follow. The last class is followed by a long().
var (
	lengthBase = [16]int{4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 21, 25, 33, 49, 81, 145}
	lengthBits = [16]uint8{0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 0}
)

const (
	lengthLong   = 15 // class
	literalsLong = 3  // value for three literals or more
)

// shortClass has the class of each length below 145.
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

// log2 returns the base-2 logarithm of n >= 1, rounded down.
func log2(n int) int { return bits.Len(uint(n)) - 1 }
