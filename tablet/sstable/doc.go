// Package sstable implements the SSTable of the paper (§4): a persistent, ordered, immutable map
// from keys to values, both arbitrary byte strings. Keys are ordered by bytes.Compare. The package
// does not know rows, cells or tablets. A function of the caller selects what parts of a key go
// into the filter.
//
// As in the paper, a file is a sequence of blocks, 64 KiB each by default, with an index that is
// loaded when the file is opened. A lookup costs at most one disk read (§4), and none if the filter
// excludes the key (§6).
//
// Differences from the paper and from LevelDB:
//
//   - Keys and values are separate within a block, so a lookup scans keys only, however long the
//     values are.
//   - Separators in the index are lower bounds instead of upper bounds: the first key of a block, cut
//     after the first byte that differs from the previous key. A seek to the start of a row therefore
//     finds the block with the row's first key, even though the row alone is not a key.
//   - The filter is a binary fuse filter instead of a Bloom filter. It needs a fifth less memory for
//     the same purpose. Schemas still call it "bloom".
//   - Each checksum also covers the block's offset, which detects a block at the wrong place.
//
// DESIGN.md has the reasons and the measurements.
//
// # Terms
//
//	block      a byte sequence with a kind and a checksum, compressed or not
//	frame      a block as stored, with its trailer
//	map block  a block with sorted keys and their values
//	separator  a lower bound for the keys of a block: a prefix of its first key
//	handle     the place of a block: offset and length
//	partition  of the filter: one filter block
//	properties metadata of the file: the package's own, and the caller's
//	dictionary the phrases shared by data blocks with two-pass compression
//
// # Goroutines
//
// None. Any number of goroutines may use a Table and a Cache concurrently; an Iter or a Writer must
// be used by one at a time. Concurrent cache misses of the same block share one read by one of the
// callers, which holds no lock meanwhile.
//
// # Invariants
//
//	S1. Keys are strictly ascending in a file. Add rejects any other key.
//	S2. A separator is <= every key of its block and > all keys before the block.
//	S3. No byte of a block is used before its checksum is verified, with the
//	    block's own offset and kind (I7).
//	S4. Lengths and counts in a block are checked before use: no length leads
//	    outside the block, and none makes a reader allocate more than 258 MiB
//	    at once (I11).
//	S5. The filter contains every prefix that Options.FilterPrefixes returned.
//	S6. Blocks are contiguous: every byte of a file is in the header, in a
//	    frame, or in the footer, and so under a checksum.
//	S7. Memory returned as a value is never written again.
//	S8. The blocks and rows in the cache together are at most its budget.
//
// # Format, versions 1 to 3
//
// A file has version 3 if its caller has set Options.PartialKeys, else version 2 if its compression is
// two-pass, otherwise version 1. Versions 2 and 3 may have what is described as two-pass below, and differ
// in nothing else: version 3 keeps files from programs that do not know what their keys lack.
//
// All integers of fixed width are little-endian; u8, u32, u64 are unsigned. A uvarint is that of
// encoding/binary: seven bits per byte, lowest first, the top bit set on all bytes but the last.
// Checksums are CRC-32C.
//
//	+--------+-------------+------------+---------------+--------------+
//	| header | data blocks | dictionary | filter blocks | filter index |
//	+--------+-------------+------------+---------------+--------------+
//	| index blocks | index root | properties | directory | footer |
//	+--------------+------------+------------+-----------+--------+
//
// Only two-pass compression has a dictionary, and only if the data blocks are large enough: the
// writer learns it from what the blocks repeat. There are no filter blocks and no filter index
// without FilterPrefixes, and no index root if there is only one index block. A table without
// entries has no data block, and an index block without entries.
//
// Header, 16 bytes:
//
//	+-------+---------+----------+
//	| magic | version | checksum |   magic: the bytes "SteleSST"
//	|   8   |   u32   |   u32    |   checksum: of the 12 bytes before
//	+-------+---------+----------+
//
// Frame, any block:
//
//	+--------------+------+-------------+------------+---------------+----------+
//	| stored bytes | kind | compression | raw length | stored length | checksum |
//	|      n       |  u8  |     u8      |    u32     |    u32 = n    |   u32    |
//	+--------------+------+-------------+------------+---------------+----------+
//
// The checksum is of the stored bytes, the 10 bytes of the trailer before it, and the offset of the
// frame in the file as a u64, which is not stored. The stored length allows a tool without an index
// to walk from the footer to the header, block by block.
//
//	kind  1 data  2 index  3 index root  4 filter  5 filter index
//	      6 properties  7 directory  8 dictionary
//	compression  1 none  2 s2 (block format)  3 zstd (one frame,
//	      which states its content size from 256 bytes on; no checksum)
//	      4 two-pass (a block of package twopass; data blocks only)
//
// Numbers of kinds and compressions are never reused. A block that compression does not shrink by
// an eighth is stored as none. A raw length is at most 270532608 (258 MiB).
//
// Map block, raw: the data blocks, and all others except filter blocks and the dictionary.
//
//	+--------+-------------+----------+---------+----------+------------------+
//	| values | key entries | restarts | entries | restarts | length of values |
//	|        |             |  8 each  |   u32   |   u32    |       u32        |
//	+--------+-------------+----------+---------+----------+------------------+
//
//	key entry  = shared uvarint, own uvarint, value uvarint, own bytes
//	restart    = offset u32 among the key entries, offset u32 among the values
//
// A key is the first "shared" bytes of the previous key followed by its "own" bytes. "value" is the
// length of its value. Values are in the order of the keys. Each restart points to an entry with a
// complete key (shared is 0) and to that entry's value; the first restart is 0, 0. Data blocks have
// a restart every RestartInterval entries, all other map blocks one per entry.
//
// Data blocks are cut so that the frame is at most the block size. A larger entry has a block of
// its own.
//
// Index block, index root, filter index, directory: the values are handles.
//
//	handle     = offset uvarint, stored length * 2 + compressed uvarint
//
// "compressed" is 1 unless the compression is none. The keys of an index block are the separators
// of data blocks. The keys of the index root are the first separators of index blocks, and those of
// the filter index are the separators at which filter blocks begin. The first key is empty. A later
// separator is the first key of its data block, cut after the first byte that differs from the last
// key of the previous block. Index blocks are cut at 16 KiB. The blocks that a map block points to
// are contiguous.
//
// The keys of the directory are "filter" (the filter index), "index" or "index-root", "properties",
// and, if there is a dictionary, "dictionary" (the block that twopass.OpenDict reads). Readers
// ignore unknown names.
//
// Properties: names that begin with "sstable." are the package's own. Numbers are in decimal.
// Readers ignore unknown names.
//
// Filter block: it contains the prefixes of the keys from its separator to the next one, as hashes
// by xxHash64 with seed 0.
//
//	+------+-------+----------+------+----------------+----------+--------------+
//	| type | zeros | prefixes | seed | segment length | segments | fingerprints |
//	|  u8  |   3   |   u32    | u64  |      u32       |   u32    |   u8 each    |
//	+------+-------+----------+------+----------------+----------+--------------+
//
// Type 1 is a binary fuse filter of (segments + 2) * segment length fingerprints. The segment
// length is a power of two, at most 2^18. With all arithmetic modulo 2^64, the filter contains a
// hash if
//
//	x  = mix(hash + seed)              mix: the 64-bit finalizer of MurmurHash3
//	h0 = x * segments * segment length / 2^64     (of the 128-bit product)
//	h1 = (h0 + segment length) ^ (x >> 18) % segment length
//	h2 = (h0 + 2 * segment length) ^ x % segment length
//	(x ^ x >> 32) % 256 = f[h0] ^ f[h1] ^ f[h2]
//
// Type 0, with all other fields zero and no fingerprints, contains every hash.
//
// Footer, 40 bytes:
//
//	+-----------+--------+-----------+------+---------+----------+-------+
//	| directory |  file  | directory | zero | version | checksum | magic |
//	|  offset   | length |  stored   |      |         |          |       |
//	|    u64    |  u64   |    u32    | u32  |   u32   |   u32    |   8   |
//	+-----------+--------+-----------+------+---------+----------+-------+
//
// The checksum is of the 28 bytes before it. The last 16 bytes are the same in every version. A
// file that needs more of its reader than this specification has a higher version.
//
// # Worked example
//
// Three entries, "ab" = "1", "abc" = "22", "b" = "", without compression, with two entries per
// restart, a filter of the first byte, named "first", and the caller's property "k" = "v". This is
// testdata/example.golden.
//
// The header:
//
//	0000  53 74 65 6c 65 53 53 54  magic
//	0008  01 00 00 00              version: 1
//	000c  ab 2e a9 0e              checksum
//
// The data block:
//
//	0010  31                       value "1"
//	0011  32 32                    value "22"
//	0013  00 02 01 61 62           shared 0, own 2, value 1: "ab"
//	0018  02 01 02 63              shared 2, own 1, value 2: "ab" + "c"
//	001c  00 01 00 62              shared 0, own 1, value 0: "b", whole
//	0020  00 00 00 00 00 00 00 00  restart: key at 0, value at 0
//	0028  09 00 00 00 03 00 00 00  restart: key at 9, value at 3
//	0030  03 00 00 00              entries: 3
//	0034  02 00 00 00              restarts: 2
//	0038  03 00 00 00              length of the values: 3
//	003c  01                       kind: data
//	003d  01                       compression: none
//	003e  2c 00 00 00              raw length: 44
//	0042  2c 00 00 00              stored length: 44
//	0046  10 ae a7 5e              checksum
//
// The filter block:
//
//	004a  01 00 00 00              type: binary fuse
//	004e  02 00 00 00              prefixes: 2, which are "a" and "b"
//	0052  c1 5c 02 89 ec 2d 0a 91  seed
//	005a  04 00 00 00              segment length: 4
//	005e  01 00 00 00              segments: 1
//	0062  00 00 00 00 38 00 00 00 00 00 51 00  fingerprints
//	006e  04                       kind: filter
//	006f  01                       compression: none
//	0070  24 00 00 00              raw length: 36
//	0074  24 00 00 00              stored length: 36
//	0078  13 4d a1 66              checksum
//
// The filter index:
//
//	007c  4a 48                    block at 90, 36 bytes, not compressed
//	007e  00 00 02                 shared 0, own 0, value 2: the empty key
//	0081  00 00 00 00 00 00 00 00  restart: key at 0, value at 0
//	0089  01 00 00 00              entries: 1
//	008d  01 00 00 00              restarts: 1
//	0091  02 00 00 00              length of the values: 2
//	0095  05                       kind: filter index
//	0096  01                       compression: none
//	0097  19 00 00 00              raw length: 25
//	009b  19 00 00 00              stored length: 25
//	009f  9c 90 56 37              checksum
//
// The index, which points to the data block:
//
//	00a3  10 58                    block at 16, 44 bytes, not compressed
//	00a5  00 00 02                 shared 0, own 0, value 2: the empty key
//	00a8  00 00 00 00 00 00 00 00  restart: key at 0, value at 0
//	00b0  01 00 00 00              entries: 1
//	00b4  01 00 00 00              restarts: 1
//	00b8  02 00 00 00              length of the values: 2
//	00bc  02                       kind: index
//	00bd  01                       compression: none
//	00be  19 00 00 00              raw length: 25
//	00c2  19 00 00 00              stored length: 25
//	00c6  7c 6a 38 95              checksum
//
// The properties:
//
//	00ca  76 36 35 35 33 36 31 31 35 38 33 38 39 66 69 72  the values, concatenated
//	00da  73 74 32 61 62 33 39 62 39
//	00e3  00 01 01 6b              k = v
//	00e7  00 13 05 73 73 74 61 62 6c 65 2e 62 6c 6f 63 6b  sstable.block-bytes = 65536
//	00f7  2d 62 79 74 65 73
//	00fd  00 13 01 73 73 74 61 62 6c 65 2e 63 6f 6d 70 72  sstable.compression = 1
//	010d  65 73 73 69 6f 6e
//	0113  00 13 01 73 73 74 61 62 6c 65 2e 64 61 74 61 2d  sstable.data-blocks = 1
//	0123  62 6c 6f 63 6b 73
//	0129  00 12 02 73 73 74 61 62 6c 65 2e 64 61 74 61 2d  sstable.data-bytes = 58
//	0139  62 79 74 65 73
//	013e  00 0f 01 73 73 74 61 62 6c 65 2e 65 6e 74 72 69  sstable.entries = 3
//	014e  65 73
//	0150  00 14 02 73 73 74 61 62 6c 65 2e 66 69 6c 74 65  sstable.filter-bytes = 89
//	0160  72 2d 62 79 74 65 73
//	0167  00 13 05 73 73 74 61 62 6c 65 2e 66 69 6c 74 65  sstable.filter-name = first
//	0177  72 2d 6e 61 6d 65
//	017d  00 17 01 73 73 74 61 62 6c 65 2e 66 69 6c 74 65  sstable.filter-prefixes = 2
//	018d  72 2d 70 72 65 66 69 78 65 73
//	0197  00 11 02 73 73 74 61 62 6c 65 2e 66 69 72 73 74  sstable.first-key = ab
//	01a7  2d 6b 65 79
//	01ab  00 13 02 73 73 74 61 62 6c 65 2e 69 6e 64 65 78  sstable.index-bytes = 39
//	01bb  2d 62 79 74 65 73
//	01c1  00 10 01 73 73 74 61 62 6c 65 2e 6c 61 73 74 2d  sstable.last-key = b
//	01d1  6b 65 79
//	01d4  00 11 01 73 73 74 61 62 6c 65 2e 72 61 77 2d 62  sstable.raw-bytes = 9
//	01e4  79 74 65 73
//	01e8  00 00 00 00 00 00 00 00  restart: key at 0, value at 0
//	01f0  04 00 00 00 01 00 00 00  restart: key at 4, value at 1
//	01f8  1a 00 00 00 06 00 00 00  restart: key at 26, value at 6
//	0200  30 00 00 00 07 00 00 00  restart: key at 48, value at 7
//	0208  46 00 00 00 08 00 00 00  restart: key at 70, value at 8
//	0210  5b 00 00 00 0a 00 00 00  restart: key at 91, value at 10
//	0218  6d 00 00 00 0b 00 00 00  restart: key at 109, value at 11
//	0220  84 00 00 00 0d 00 00 00  restart: key at 132, value at 13
//	0228  9a 00 00 00 12 00 00 00  restart: key at 154, value at 18
//	0230  b4 00 00 00 13 00 00 00  restart: key at 180, value at 19
//	0238  c8 00 00 00 15 00 00 00  restart: key at 200, value at 21
//	0240  de 00 00 00 17 00 00 00  restart: key at 222, value at 23
//	0248  f1 00 00 00 18 00 00 00  restart: key at 241, value at 24
//	0250  0d 00 00 00              entries: 13
//	0254  0d 00 00 00              restarts: 13
//	0258  19 00 00 00              length of the values: 25
//	025c  06                       kind: properties
//	025d  01                       compression: none
//	025e  92 01 00 00              raw length: 402
//	0262  92 01 00 00              stored length: 402
//	0266  62 18 47 d8              checksum
//
// The directory:
//
//	026a  7c 32 a3                 filter index
//	026d  01 32 ca                 index
//	0270  01 a4 06                 properties
//	0273  00 06 02 66 69 6c 74 65 72  filter
//	027c  00 05 03 69 6e 64 65 78  index
//	0284  00 0a 04 70 72 6f 70 65 72 74 69 65 73  properties
//	0291  00 00 00 00 00 00 00 00  restart: key at 0, value at 0
//	0299  09 00 00 00 02 00 00 00  restart: key at 9, value at 2
//	02a1  11 00 00 00 05 00 00 00  restart: key at 17, value at 5
//	02a9  03 00 00 00              entries: 3
//	02ad  03 00 00 00              restarts: 3
//	02b1  09 00 00 00              length of the values: 9
//	02b5  07                       kind: directory
//	02b6  01                       compression: none
//	02b7  4b 00 00 00              raw length: 75
//	02bb  4b 00 00 00              stored length: 75
//	02bf  f4 6d 02 81              checksum
//
// The footer:
//
//	02c3  6a 02 00 00 00 00 00 00  offset of the directory: 618
//	02cb  eb 02 00 00 00 00 00 00  length of the file: 747
//	02d3  4b 00 00 00              stored length of the directory: 75
//	02d7  00 00 00 00              zero
//	02db  01 00 00 00              version: 1
//	02df  9d f4 ca 26              checksum
//	02e3  53 74 65 6c 65 53 53 54  magic
package sstable
