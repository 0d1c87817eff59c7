package node

import (
	"context"
	"errors"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// smallAnswerBytes is the size of answers that are not charged: the connections' buffers are bounded.
const smallAnswerBytes = 64 << 10

// errMoreMemory stops a read at a row for which the answer has no memory. The read releases what it has read before it waits, and starts
// again: others would wait for that memory.
var errMoreMemory = errors.New("the answer needs more memory than is free now")

// answerMemory is the memory of one answer while rows of unknown size are read into it.
type answerMemory struct {
	of     *resultMemory
	user   string // charged for it; "" for none
	copies int64  // concurrent copies of the answer: being built, and being sent
	bytes  int    // of the answer, at most
	weight int64  // charged for them
	lacks  int    // bytes that the answer needed, after errMoreMemory
}

// weigh returns the memory of an answer of so many bytes, at most all memory for results.
func (r *answerMemory) weigh(bytes int) int64 { return min(r.copies*int64(bytes), r.of.all) }

// fits reports whether the answer may have so many bytes. It charges free memory for them, and does not wait.
func (r *answerMemory) fits(bytes int) bool {
	if bytes <= max(r.bytes, smallAnswerBytes) {
		return true
	}
	w := r.weigh(bytes)
	if more := w - r.weight; more > 0 && !r.of.free.Try(r.user, more) {
		r.lacks = bytes
		return false
	}
	r.bytes, r.weight = bytes, w
	return true
}

// await releases the memory of the answer and waits for that of so many bytes. Errors: those of resultMemory.take.
func (r *answerMemory) await(ctx context.Context, bytes int) error {
	r.release()
	w := r.weigh(bytes)
	if err := r.of.acquire(ctx, r.user, w); err != nil {
		return err
	}
	r.bytes, r.weight = bytes, w
	return nil
}

// build calls read to append an answer to an encoder, which it returns. It first waits for the memory of so many bytes and, while read ends
// with errMoreMemory, for twice what was missing: with small increments it would read everything again for each row. While it waits it holds no
// encoder, which would be as large as what was read. Errors: those of await and read.
func (r *answerMemory) build(ctx context.Context, bytes int, read func(*wire.Encoder) error) (*wire.Encoder, error) {
	for ; ; bytes = 2 * r.lacks {
		if err := r.await(ctx, max(r.of.batch(bytes), r.lacks)); err != nil {
			return nil, err
		}
		e := wire.GetEncoder()
		if r.lacks > 0 {
			e.Grow(r.bytes)
		}
		err := read(e)
		if err == nil {
			return e, nil
		}
		e.Release()
		if err != errMoreMemory {
			return nil, err
		}
	}
}

func (r *answerMemory) release() {
	if r.weight > 0 {
		r.of.free.Release(r.user, r.weight)
	}
	r.bytes, r.weight = 0, 0
}

// untilSent keeps the memory until the answer of c, which must follow, has been sent.
func (r *answerMemory) untilSent(c *rpc.Call) {
	if r.weight > 0 {
		sent := *r
		c.OnSent(sent.release)
	}
	r.bytes, r.weight = 0, 0
}
