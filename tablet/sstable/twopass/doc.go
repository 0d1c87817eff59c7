// Package twopass compresses the blocks of an SSTable with the two passes of the paper (§6,
// "Compression"): the first finds long common strings as Bentley and McIlroy do; the second is a
// fast pass over the remainder. Pages of one site, which are adjacent in a Webtable, share most of
// their bytes.
//
// Differences from the paper:
//
//   - Each block is decoded alone, and yet the first pass covers the whole file: strings that many
//     blocks repeat are in a dictionary, which the file has once and an open table keeps in memory. To
//     use the paper's window, a reader would have to decode the preceding data.
//   - The second pass does not search a small window of its own. One search finds long and short
//     copies, in the dictionary and in the block. The remainder, literals and tokens, is
//     Huffman-coded, with tables shared by blocks.
//   - The strings that are most often copied whole are phrases with a short number.
//
// A block may have any length up to 512 MiB. The caller keeps checksums and the uncompressed length
// of each block.
//
// # Terms
//
//	dictionary  text, phrases in it and tables, shared by the blocks of a file
//	text        pieces of blocks that other blocks repeat, concatenated
//	phrase      a part of the text that is copied whole
//	generation  one set of tables; a new one is made when text is added
//	segment     64 KiB of a block, or its last part: the unit of coding
//	stream      the bytes of one type in a segment
//	token       a number of literals followed by a copy
//	distance    of a copy within a block: how far back its source is
//
// # Goroutines
//
// None. Any number of goroutines may use a Dict concurrently; an Encoder must be used by one at a
// time.
//
// # Invariants
//
//	TP1. A block is decoded with its dictionary and nothing else.
//	TP2. A dictionary only grows: a block encoded before it grew is decoded
//	    the same afterwards.
//	TP3. Every length in a block or a dictionary is checked before use.
//	    Decoding uses only pooled buffers of fixed size, and its steps are
//	    bounded by the bytes of input and output.
//	TP4. An encoded block is at most two bytes, and one for each further
//	    segment, longer than its content.
//
// # Format, version 1
//
// A uvarint is that of encoding/binary: seven bits per byte, lowest first, the top bit set on all
// bytes but the last. Bits are taken from bytes lowest first.
//
// Block:
//
//	+------------+---------+---------+-----+
//	| generation | segment | segment | ... |   generation: 0 for none of a
//	|     u8     |         |         |     |   dictionary; 1 is the first
//	+------------+---------+---------+-----+
//
// Segment, as stored, or coded:
//
//	+----------+-----------------------+
//	| mode u8  | as many bytes as the  |
//	|    0     | segment has           |
//	+----------+-----------------------+
//
//	+----------+-----------+----------+------------+---------+----------------+
//	| mode u8  | literals: |  tokens: | distances: | highs:  |      bits:     |
//	|    1     |  header   |  header  |   header   | header  | uvarint, bytes |
//	+----------+-----------+----------+------------+---------+----------------+
//	| literals | tokens    | distances|   highs    | bits    |
//	+----------+-----------+----------+------------+---------+
//
//	header = bytes uvarint, stored bytes * 4 + form uvarint
//	form     0 raw  1 Huffman, table of the generation
//	         2 Huffman after its table  3 one byte, repeated
//
// Huffman is that of RFC 8878 (4.2), with its tables: a single stream below 256 bytes, four streams
// with the jump table from 256 bytes.
//
// Tokens are executed in order: some literals, then a copy. The literals after the last copy end
// the segment.
//
//	token    = kind + 4 * literals + 16 * class
//	kind       0 block: from earlier bytes of the same block
//	           1 dictionary: from a position in the text
//	           2 last: from the same place relative to the output as the copy
//	             before in this segment, in the text or in the block
//	           3 phrase
//	literals   0 to 2, or 3 for three and more: long() - 1 more
//	class      of the length of the copy; of a phrase's number
//
//	class      0  1  2  3  4  5   6   7   8   9   10  11  12  13  14  15
//	length     4  5  6  7  8  9   11  13  15  17  21  25  33  49  81  145
//	more bits  0  0  0  0  0  1   1   1   1   2   2   3   4   5   6   long() - 1
//
// The other parameters of a copy are read in this order:
//
//	the literals' long()
//	a phrase's number: 256 * class and 8 bits for classes below 12, else
//	  3072 + 4096 * (class - 12) and 12 bits; then nothing else
//	the length's bits
//	block: the next byte of distances, r < 24, and r bits: the distance is
//	  2^r plus these
//	dictionary: the next byte of highs, shifted by the dictionary's shift,
//	  and as many bits
//
//	long()   = n in 4 bits, then n bits: 2^n plus these
//
// The source of a copy is entirely in the text, or starts in the block before the destination. A
// source in the block may overlap the destination, and then repeats. Segments of a block can refer
// to the bytes of earlier ones, and to no other state of them. All streams and the bits are used up
// exactly.
//
// Dictionary:
//
//	+---------+-------+-------------+---------+---------+--------+------+
//	| version | shift | generations | tables  | phrases | length | text |
//	|  u8: 1  |  u8   |     u8      | 4 each  |         | uvarint|      |
//	+---------+-------+-------------+---------+---------+--------+------+
//
//	table    = bytes uvarint, as in RFC 8878 (4.2.1); 0 bytes: none
//	phrases  = phrases uvarint, then for each its position uvarint, less the
//	           previous one's, and its length uvarint
//
// The tables are for literals, tokens, distances and highs, in this order. Every 256 phrases the
// previous position is reset to 0. There are at most 16 generations, 19456 phrases of 4 to 255
// bytes, and 4 MiB of text. The shift is at most 24.
//
// # Worked example
//
// The dictionary has the text "<i>tablet</i>", one phrase, "tablet", and one
// generation without tables.
//
//	0000  01                    version: 1
//	0001  04                    shift: 4
//	0002  01                    generations: 1
//	0003  00 00 00 00           no tables
//	0007  01                    phrases: 1
//	0008  03 06                 at 3, 6 bytes
//	000a  0d                    text: 13 bytes
//	000b  3c 69 3e 74 61 62 6c 65 74 3c 2f 69 3e
//
// The block is "A <i>tablet</i>, a tablet</i>, a tablet</i>."
//
//	0000  01                    generation: 1
//	0001  01                    mode: coded
//	0002  07 1c                 literals: 7 bytes, raw
//	0004  04 10                 tokens: 4 bytes, raw
//	0006  01 04                 distances: 1 byte, raw
//	0008  01 04                 highs: 1 byte, raw
//	000a  03                    bits: 3 bytes
//	000b  41 20 2c 20 61 20 2e  "A ", ", a ", "."
//	0012  79                    2 literals, dictionary, class 7: 13 bytes or 14
//	0013  0f                    3 literals or more, phrase, class 0
//	0014  02                    no literal, last, class 0: 4 bytes, "</i>"
//	0015  70                    no literal, block, class 7: 13 bytes or 14
//	0016  03                    distance: 8 to 15
//	0017  00                    high byte of the position: 0
//	0018  20 00 34              0, 0000 (13 bytes from 0); 0001, 0 (4 literals),
//	                            00000000 (phrase 0); 1, 110 (14 bytes, distance 14)
package twopass
