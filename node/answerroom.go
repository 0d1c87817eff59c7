package node

import (
	"context"
	"errors"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// smallAnswerBytes is what a call answers without asking for memory: the connections' buffers are bounded.
const smallAnswerBytes = 64 << 10

// errMoreRoom ends a read that has come to a row for which there is no memory in its answer. It releases what it has read before it
// waits, and begins again: that is memory, for which others would wait.
var errMoreRoom = errors.New("the answer takes more memory than there is for it at the moment")

// answerRoom is the memory of one answer while it is read, of rows whose sizes are not known before.
type answerRoom struct {
	of     *resultMemory
	user   string // whose share it is taken from; "" has none
	copies int64  // of the answer that there are at a time: as it is built, and as it is sent
	bytes  int    // that it may have
	weight int64  // that was taken for them
	lacks  int    // bytes that it would have had to have, after errMoreRoom
}

// weigh returns what an answer of so many bytes takes. One above all that there is takes that, and so is alone.
func (r *answerRoom) weigh(bytes int) int64 { return min(r.copies*int64(bytes), r.of.all) }

// fits tells whether an answer may have so many bytes. It takes what is free for that, and waits for nothing.
func (r *answerRoom) fits(bytes int) bool {
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

// await waits for the memory of an answer of so many bytes, for which it gives back what it has. Errors: as resultMemory.take.
func (r *answerRoom) await(ctx context.Context, bytes int) error {
	r.giveBack()
	w := r.weigh(bytes)
	if err := r.of.acquire(ctx, r.user, w); err != nil {
		return err
	}
	r.bytes, r.weight = bytes, w
	return nil
}

// build has read append an answer to an encoder, which is the caller's then. It waits for the memory of so many bytes before,
// and, while read ends with errMoreRoom, for that of twice what it lacked: a little more each time would have it read all of it as often
// as there are rows. Who waits has no encoder, which would be as large as what it has read. Errors: those of await and read.
func (r *answerRoom) build(ctx context.Context, bytes int, read func(*wire.Encoder) error) (*wire.Encoder, error) {
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
		if err != errMoreRoom {
			return nil, err
		}
	}
}

func (r *answerRoom) giveBack() {
	if r.weight > 0 {
		r.of.free.Release(r.user, r.weight)
	}
	r.bytes, r.weight = 0, 0
}

// untilSent keeps the memory until the answer of c has been sent, which must follow.
func (r *answerRoom) untilSent(c *rpc.Call) {
	if r.weight > 0 {
		sent := *r
		c.OnSent(sent.giveBack)
	}
	r.bytes, r.weight = 0, 0
}
