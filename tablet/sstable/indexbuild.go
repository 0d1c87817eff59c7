package sstable

// indexBlockBytes is the size at which index blocks are cut. 16 KiB: about 400 data blocks with
// ordinary keys, and a short read if the index is not held in memory.
const indexBlockBytes = 16 << 10

// indexBuilder builds the index of a table: a map from separators to handles. Index blocks are kept
// until the end of the file, so that they are contiguous and read at once.
type indexBuilder struct {
	leaf    blockBuilder
	sep     []byte   // of the current leaf
	leaves  [][]byte // finished
	leafSep [][]byte
	bytes   int // of leaves
	value   []byte
}

func newIndexBuilder() indexBuilder {
	// An interval of 1: every separator is complete, so entry i is found directly.
	return indexBuilder{leaf: blockBuilder{interval: 1}}
}

// add appends a separator. It must be <= every key of the block at h, and above every key before
// it.
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

// cut ends the current index block.
func (x *indexBuilder) cut() {
	p := append([]byte(nil), x.leaf.finish()...)
	x.leaves = append(x.leaves, p)
	x.leafSep = append(x.leafSep, append([]byte(nil), x.sep...))
	x.bytes += len(p) + trailerBytes
	x.leaf.reset()
}

// size returns the approximate size of the index.
func (x *indexBuilder) size() int { return x.bytes + x.leaf.size() + trailerBytes }
