// Package twopass compresses the blocks of an SSTable by the two passes of the
// paper (§6, "Compression"): the first finds long common strings, as Bentley
// and McIlroy do; the second is a fast one over what is left. Pages of one
// site, which lie side by side in a Webtable, share most of their bytes.
//
// Where we depart from the paper:
//
//   - Each block is decoded alone, and yet the first pass reaches over the whole
//     file: what many blocks repeat is put into a dictionary that the file
//     has once and an open table keeps in memory. The paper's window would
//     have to be decoded to be looked at.
//   - The second pass is not a search in a small window of its own. One search
//     finds long and short copies, in the dictionary and in the block, and
//     what is left, literals and tokens, is Huffman-coded, with tables that
//     blocks share.
//   - What is copied most often, whole, is a phrase with a short number.
//
// A block may be of any length up to 512 MiB. Checksums are the caller's, and
// so is the length of a block before compression.
//
// # Nouns
//
//	dictionary  text, phrases in it and tables, which the blocks of a file share
//	text        pieces of blocks that others have too, one after the other
//	phrase      a part of the text that is copied whole
//	generation  one set of tables: as text is added, blocks use it otherwise
//	segment     64 KiB of a block, or its last part: what is coded together
//	stream      the bytes of one sort of a segment
//	token       says what is copied after how many literals
//	reach       how far before the place copied to an own copy lies
//
// # Goroutines
//
// None. A Dict may be used by any number of goroutines at once, an Encoder by
// one at a time.
//
// # Invariants
//
//	W1. A block is decoded with its dictionary and nothing else.
//	W2. A dictionary only grows: a block that was made before is decoded the
//	    same after.
//	W3. No length in a block or a dictionary is believed before it is checked;
//	    decoding takes no memory but pooled buffers of fixed size, and ends
//	    after at most as many steps as bytes are asked for and given.
//	W4. A block is at most two bytes, and one more for each further segment,
//	    above what it holds.
//
// # Format, version 1
//
// A uvarint is one of encoding/binary: seven bits a byte, the lowest first, the
// top bit set on all but the last. Bits are taken from bytes the lowest first.
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
//	+----------+-----------+----------+-----------+---------+----------------+
//	| mode u8  | literals: |  tokens: | reaches:  | highs:  |      bits:     |
//	|    1     |  header   |  header  |  header   | header  | uvarint, bytes |
//	+----------+-----------+----------+-----------+---------+----------------+
//	| literals | tokens    | reaches  | highs     | bits    |
//	+----------+-----------+----------+-----------+---------+
//
//	header = bytes uvarint, stored bytes * 4 + form uvarint
//	form     0 as they are  1 Huffman, table of the generation
//	         2 Huffman behind its table  3 one byte, for all
//
// Huffman is that of RFC 8878 (4.2), with its tables: a single stream below 256
// bytes, four streams with the jump table from 256 bytes on.
//
// Tokens are followed one after the other: some literals, then a copy. The
// literals that remain after the last end the segment.
//
//	token    = kind + 4 * literals + 16 * class
//	kind       0 own: bytes before in the same block
//	           1 dictionary: from a position in the text
//	           2 last: a dictionary's or an own copy, as the one before in this
//	             segment, from as far on in the text or as far back
//	           3 phrase
//	literals   0 to 2, or 3 for three and more: long() - 1 more
//	class      of the length of the copy; of a phrase's number
//
//	class      0  1  2  3  4  5   6   7   8   9   10  11  12  13  14  15
//	length     4  5  6  7  8  9   11  13  15  17  21  25  33  49  81  145
//	more bits  0  0  0  0  0  1   1   1   1   2   2   3   4   5   6   long() - 1
//
// What else a copy needs is taken in this order:
//
//	the literals' long()
//	a phrase's number: 256 * class and 8 bits for classes below 12, else
//	  3072 + 4096 * (class - 12) and 12 bits; and nothing further
//	the length's bits
//	own: the next byte of reaches, r < 24, and r bits: reach is 2^r and those
//	dictionary: the next byte of highs, shifted, and as many bits as the
//	  dictionary says
//
//	long()   = n of 4 bits, then n bits: 2^n and those
//
// A copy lies wholly in the text, or wholly before the place that it is copied
// to, from the block's beginning on; an own one may overlap that place, and
// then repeats. Segments of a block know the bytes of those before, and
// nothing else of them. All streams and the bits are used up exactly.
//
// Dictionary:
//
//	+---------+-------+-------------+---------+---------+--------+------+
//	| version | shift | generations | tables  | phrases | length | text |
//	|  u8: 1  |  u8   |     u8      | 4 each  |         | uvarint|      |
//	+---------+-------+-------------+---------+---------+--------+------+
//
//	table    = bytes uvarint, as RFC 8878 (4.2.1) has it; 0 bytes: none
//	phrases  = phrases uvarint, then each one's position uvarint, less that of
//	           the one before, and its length uvarint
//
// The tables are for literals, tokens, reaches and highs. Each 256 phrases the
// position before is 0 again. There are at most 16 generations, 19456 phrases
// of 4 to 255 bytes, and 4 MiB of text. The shift is at most 24.
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
//	0002  07 1c                 literals: 7 bytes, as they are
//	0004  04 10                 tokens: 4 bytes, as they are
//	0006  01 04                 reaches: 1 byte, as it is
//	0008  01 04                 highs: 1 byte, as it is
//	000a  03                    bits: 3 bytes
//	000b  41 20 2c 20 61 20 2e  "A ", ", a ", "."
//	0012  79                    2 literals, dictionary, class 7: 13 bytes or 14
//	0013  0f                    3 literals or more, phrase, class 0
//	0014  02                    no literal, last, class 0: 4 bytes, "</i>"
//	0015  70                    no literal, own, class 7: 13 bytes or 14
//	0016  03                    reach: 8 to 15
//	0017  00                    high byte of the position: 0
//	0018  20 00 34              0, 0000 (13 bytes from 0); 0001, 0 (4 literals),
//	                            00000000 (phrase 0); 1, 110 (14 bytes, reach 14)
package twopass
