// Package ikey encodes the internal keys of a tablet, whose bytes.Compare order is the order of a
// tablet's entries. The memtable and the SSTable order keys by their bytes only (paper §4: an
// SSTable is a map from byte strings to byte strings).
//
// # Layout
//
// Integers are big-endian. "esc(x)" is x with each 0x00 byte written as
// 0x00 0xFF, so that the terminator 0x00 0x01 sorts before every continuation
// of x. "inv(n)" is the 64-bit complement of n: larger numbers sort first.
//
//	key    = row | delete row | seq          a DeleteRow
//	       | row | family | delete family | seq
//	       | row | family | column | delete column | seq
//	       | row | family | column | cell | inv(timestamp) | seq
//	       | row | family | column | operand | inv(timestamp) | seq
//
//	row    = esc(row key) 00 01              at least 3 bytes
//	family = name 00 | id (4 bytes)          name has no 00 byte (see table)
//	column = esc(qualifier) 00 01
//	seq    = inv(sequence number)            8 bytes
//
//	delete row    = 00                       sorts before every family name
//	delete family = 00 00                    sorts before every column: those
//	                                         start with 00 01, 00 FF or 01..FF
//	delete column = 00
//	cell          = 01
//	operand       = 02
//
// Within a row, deletion entries come before the entries that they cover: a forward reader sees
// each deletion before the first cell that it can hide. Families are in the order of their names,
// columns in the order of their qualifiers, versions newest first, and entries of one version
// latest commit first.
//
// The family id distinguishes families of the same name: a family that was dropped and created
// again has a new id, so the cells of the old one are never returned.
//
// A family has either cells or, if it is an aggregate family, operands. The operands of a column and a timestamp are neighbours: their
// fold is the cell. A version that does not know operands rejects their keys as malformed.
//
// The value of a cell entry is the cell's value, and that of an operand is one, or the fold of several. The value of a delete column entry is two 8-byte
// integers, start and end of the range of timestamps that it covers (end 0: no end). Other deletion
// entries have no value.
//
// # Worked example
//
// Row "a", family "f" with id 2, qualifier "q", timestamp 5, sequence 7:
//
//	61 00 01 | 66 00 00 00 00 02 | 71 00 01 | 01 | ff ff ff ff ff ff ff fa | ff ff ff ff ff ff ff f8
//
// # Differences from the paper
//
// The paper does not specify the encoding of keys. An order-preserving encoding costs a few bytes
// per key before prefix compression, and allows comparison by memcmp everywhere: in the memtable,
// in block search, in merges.
package ikey
