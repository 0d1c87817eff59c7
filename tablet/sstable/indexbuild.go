package sstable

// indexBlockBytes is the size that index blocks are cut at. 16 KiB: some 400
// data blocks of ordinary keys, small to read when the index does not stay
// in memory.
const indexBlockBytes = 16 << 10

// indexBuilder makes the index of a table, or of its filter blocks: a map
// from separators to handles. Its blocks are kept until the end of the
// file, so that they lie together and are read at once.
type indexBuilder struct {
	leaf    blockBuilder
	sep     []byte   // of the leaf under way
	leaves  [][]byte // finished
	leafSep [][]byte
	bytes   int // of leaves
	value   []byte
}

func newIndexBuilder() indexBuilder {
	// An interval of 1: each separator whole, so that the i-th entry is
	// found at once.
	return indexBuilder{leaf: blockBuilder{interval: 1}}
}

// add appends a separator. It is a lower bound: at or below every key of the
// block that h points to, and above every key before.
func (x *indexBuilder) add(sep []byte, h handle) {
	x.value = appendHandle(x.value[:0], h)
	if !x.leaf.empty() && x.leaf.sizeWith(len(sep), 0, len(x.value)) > indexBlockBytes {
		x.cut()
	}
	if x.leaf.empty() {
		x.sep = append(x.sep[:0], sep...)
	}
	x.leaf.add(sep, 0, x.value)
}

// cut ends the block under way.
func (x *indexBuilder) cut() {
	p := append([]byte(nil), x.leaf.finish()...)
	x.leaves = append(x.leaves, p)
	x.leafSep = append(x.leafSep, append([]byte(nil), x.sep...))
	x.bytes += len(p) + trailerBytes
	x.leaf.reset()
}

// size is about how many bytes the index will take.
func (x *indexBuilder) size() int { return x.bytes + x.leaf.size() + trailerBytes }
