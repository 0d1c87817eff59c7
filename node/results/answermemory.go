package results

import (
	"context"
	"errors"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// SmallAnswerBytes is the size of answers that are not charged: the connections' buffers are bounded.
const SmallAnswerBytes = 64 << 10

// ErrMoreMemory stops a read at a row for which the answer has no memory. The read releases what it has read before it waits, and starts
// again: others would wait for that memory.
var ErrMoreMemory = errors.New("the answer needs more memory than is free now")

// Answer is the memory of one answer while rows of unknown size are read into it.
type Answer struct {
	Of     *Memory       // that it is taken from
	User   string        // charged for it; "" for none
	Trace  *trace.Record // of the request; may be nil
	Copies int64         // concurrent copies of the answer: being built, and being sent
	bytes  int           // Of the answer, at most
	weight int64         // charged for them
	Lacks  int           // bytes that the answer needed, after ErrMoreMemory
}

// weigh returns the memory of an answer of so many bytes, at most all memory for results.
func (r *Answer) weigh(bytes int) int64 { return min(r.Copies*int64(bytes), r.Of.All) }

// Fits reports whether the answer may have so many bytes. It charges free memory for them, and does not wait.
func (r *Answer) Fits(bytes int) bool {
	if bytes <= max(r.bytes, SmallAnswerBytes) {
		return true
	}
	w := r.weigh(bytes)
	if more := w - r.weight; more > 0 && !r.Of.Free.Try(r.User, more) {
		r.Lacks = bytes
		return false
	}
	r.bytes, r.weight = bytes, w
	return true
}

// Await releases the memory of the answer and waits for that of so many bytes. Errors: those of Memory.Take.
func (r *Answer) Await(ctx context.Context, bytes int) error {
	r.Release()
	w := r.weigh(bytes)
	if err := r.Of.acquire(ctx, r.User, w, r.Trace); err != nil {
		return err
	}
	r.bytes, r.weight = bytes, w
	return nil
}

// Build calls read to append an answer to an encoder, which it returns. It first waits for the memory of so many bytes and, while read ends
// with ErrMoreMemory, for twice what was missing: with small increments it would read everything again for each row. While it waits it holds no
// encoder, which would be as large as what was read. Errors: those of Await and read.
func (r *Answer) Build(ctx context.Context, bytes int, read func(*wire.Encoder) error) (*wire.Encoder, error) {
	for ; ; bytes = 2 * r.Lacks {
		if err := r.Await(ctx, max(r.Of.Batch(bytes), r.Lacks)); err != nil {
			return nil, err
		}
		e := wire.GetEncoder()
		if r.Lacks > 0 {
			e.Grow(r.bytes)
		}
		err := read(e)
		if err == nil {
			return e, nil
		}
		e.Release()
		if err != ErrMoreMemory {
			return nil, err
		}
	}
}

// Release releases the memory.
func (r *Answer) Release() {
	if r.weight > 0 {
		r.Of.Free.Release(r.User, r.weight)
	}
	r.bytes, r.weight = 0, 0
}

// UntilSent keeps the memory until the answer of c, which must follow, has been sent.
func (r *Answer) UntilSent(c *rpc.Call) {
	if r.weight > 0 {
		sent := *r
		c.OnSent(sent.Release)
	}
	r.bytes, r.weight = 0, 0
}
