package memtable

import (
	"sync/atomic"
	"unsafe"
)

const (
	// A ref is a chunk's index and a word offset in the chunk: 12 and 20 bits. So a table has at
	// most 4,096 chunks of up to 1,048,576 words (4 MiB). An allocation larger than a chunk gets a
	// chunk of its own and offset 0.
	offsetBits = 20
	offsetMask = 1<<offsetBits - 1
	chunksMax  = 1 << (32 - offsetBits)

	// Chunks start small, because a server may have thousands of idle tablets, and double up to 1
	// MiB: 256 Ki words.
	chunkWordsMin = 1 << 7
	chunkWordsMax = 1 << 18
	chunkDoubles  = 11 // from chunkWordsMin to chunkWordsMax

	wordBytes = 4
)

type ref uint32

type chunk struct {
	words []uint32 // links are loaded and stored atomically
	bytes []byte   // the same memory
}

// arena allocates word-aligned memory, which is never freed individually.
type arena struct {
	chunks atomic.Pointer[[]chunk] // replaced, never changed, by alloc
	used   int                     // words used of the last chunk
	bytes  atomic.Int64            // memory allocated
}

// alloc allocates n words. The first allocation is ref 0: in the arena of nodes, the head.
func (a *arena) alloc(n int) (ref, bool) {
	var chunks []chunk
	if p := a.chunks.Load(); p != nil {
		chunks = *p
	}
	last := len(chunks) - 1
	if last < 0 || a.used+n > len(chunks[last].words) {
		if len(chunks) == chunksMax {
			return 0, false
		}
		size := min(chunkWordsMin<<min(len(chunks), chunkDoubles), chunkWordsMax)
		words := make([]uint32, max(size, n))
		grown := append(chunks[:len(chunks):len(chunks)], chunk{
			words: words,
			bytes: unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*wordBytes),
		})
		a.chunks.Store(&grown)
		a.bytes.Add(int64(len(words) * wordBytes))
		a.used = 0
		last = len(chunks)
	}
	r := ref(last<<offsetBits | a.used)
	a.used += n
	return r, true
}

func (a *arena) at(r ref) (chunk, int) {
	return (*a.chunks.Load())[r>>offsetBits], int(r & offsetMask)
}
