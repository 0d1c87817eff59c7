package replog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// Reader reads a closed log, or a piece of it, from any good replica. It is not safe for
// concurrent use. It uses a window of 2 MiB and, for a payload of several frames, the memory for
// that payload.
type Reader struct {
	logs *Logs
	ctx  context.Context // the store's
	id   local.ID
	list logproto.List
	end  int64 // payloads that begin here or later are not read

	i     int   // index of the current extent
	start int64 // position at which it starts
	begun bool  // a replica of it is open
	off   int64 // offset of the next frame in it
	nodes []string
	dec   local.LogDecoder
	buf   []byte // window: buf[at:] holds the bytes from off on
	at    int
	err   error // sticky, with io.EOF
}

// newReader returns a reader of the payloads that begin in a piece, which starts with extent i.
func (logs *Logs) newReader(id local.ID, list *logproto.List, i int, p Piece) *Reader {
	return &Reader{logs: logs, ctx: logs.ctx, id: id, list: *list, i: i, start: p.Start, end: p.End}
}

// Next returns the next payload, valid until the next call, and the position after it. At the end
// the error is io.EOF. A *local.CorruptError names a frame that is good on no replica; ErrNoReplica
// means that no replica of an extent answers. Errors are sticky.
func (r *Reader) Next() (payload []byte, pos int64, err error) {
	for r.err == nil {
		// A payload that begins before the end may extend beyond it, unless the writer gave it up
		// and another payload begins there.
		from, unfinished := r.dec.Began()
		if r.start+r.off >= r.end && (!unfinished || from >= r.end) {
			r.err = io.EOF
			break
		}
		if !r.begun && !r.beginExtent() {
			break
		}
		if r.off == r.list.Extents[r.i].Length {
			r.start += r.off
			r.i, r.off, r.begun = r.i+1, 0, false
			continue
		}
		size, payload, whole, err := r.dec.Next(r.buf[r.at:])
		switch {
		case err != nil:
			r.otherReplica(err)
		case size == 0:
			r.fill()
		default:
			r.at += int(size)
			r.off += size
			if from, _ := r.dec.Began(); whole && from < r.end {
				return payload, r.dec.Position(), nil
			}
		}
	}
	return nil, 0, r.err
}

// beginExtent opens a replica of the next extent. It returns false at the end and on an error.
func (r *Reader) beginExtent() bool {
	if r.i == len(r.list.Extents) {
		r.err = io.EOF
		return false
	}
	x := &r.list.Extents[r.i]
	r.begun, r.off, r.buf, r.at = true, 0, r.buf[:0], 0
	if x.Length == 0 {
		return true
	}
	r.nodes = r.logs.readOrder(x.Replicas)
	return r.useReplica(nil)
}

// readOrder returns the nodes of an extent in the order in which to read from them: this node first, then the others
// in list order, last those that probably do not answer. Each of these costs a timeout, and a log can have many extents.
func (logs *Logs) readOrder(nodes []string) []string {
	rank := func(node string) int {
		switch {
		case node == logs.self:
			return 0
		case !logs.deps.Peers.Doubtful(node):
			return 1
		}
		return 2
	}
	ordered := slices.Clone(nodes)
	slices.SortStableFunc(ordered, func(a, b string) int { return rank(a) - rank(b) })
	return ordered
}

// useReplica opens the first good replica of those that are left.
func (r *Reader) useReplica(why error) bool {
	x := &r.list.Extents[r.i]
	errs := []error{why}
	for len(r.nodes) > 0 {
		salt, err := r.salt(r.nodes[0], x)
		if err == nil {
			r.dec.Start(fmt.Sprintf("extent %d of log %s on %s", x.Seq, r.id, r.nodes[0]), salt, r.start+r.off, r.off)
			r.buf, r.at = r.buf[:0], 0
			return true
		}
		errs = append(errs, fmt.Errorf("%s: %w", r.nodes[0], err))
		r.suspect(err)
		r.nodes = r.nodes[1:]
	}
	r.err = fmt.Errorf("read extent %d of log %s: %w", x.Seq, r.id, errors.Join(append(errs, ErrNoReplica)...))
	return false
}

// salt returns the salt of a replica's extent. It truncates the replica first if that is still to
// do.
func (r *Reader) salt(node string, x *logproto.Extent) (uint64, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.logs.deps.ReplyTimeout)
	defer cancel()
	p, err := r.logs.deps.Peers.Any(ctx, node)
	if err != nil {
		return 0, err
	}
	info, err := p.StatLog(ctx, r.id, x.Seq)
	if err == nil && info.Sealed {
		return info.Salt, nil
	}
	c := local.LogCut{Log: r.id, CutRequest: logproto.CutRequest{Seq: x.Seq, Epoch: r.list.Epoch, Start: r.start, Length: x.Length}}
	if err := r.logs.cutReplica(ctx, c, node, x.Replicas); err != nil {
		return 0, err
	}
	info, err = p.StatLog(ctx, r.id, x.Seq)
	return info.Salt, err
}

// otherReplica continues with another replica after an error.
func (r *Reader) otherReplica(why error) {
	r.logs.deps.Logger.Warn("log replica not readable, trying another", "log", r.id, "node", r.nodes[0], "err", why)
	r.suspect(why)
	r.nodes = r.nodes[1:]
	r.useReplica(why)
}

// suspect records that the node in use did not answer, if that is what err means.
func (r *Reader) suspect(err error) {
	if node := r.nodes[0]; node != r.logs.self && (errors.Is(err, api.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)) && r.ctx.Err() == nil {
		r.logs.deps.Peers.Suspect(node)
	}
}

// readerWindow is the size of the window. It holds two frames of any size, so that fewer reads
// repeat bytes.
const readerWindow = 2 * local.LogFrameBytesMax

// fill reads more bytes into the window.
func (r *Reader) fill() {
	x := &r.list.Extents[r.i]
	if cap(r.buf) < readerWindow {
		r.buf = append(make([]byte, 0, readerWindow), r.buf...)
	}
	r.buf = append(r.buf[:0], r.buf[r.at:]...)
	r.at = 0
	have := len(r.buf)
	if have >= local.LogFrameBytesMax || r.off+int64(have) == x.Length {
		r.otherReplica(&local.CorruptError{File: r.dec.Name, Offset: r.off, Reason: "frame extends beyond the end"})
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.logs.deps.ReplyTimeout)
	defer cancel()
	p, err := r.logs.deps.Peers.Any(ctx, r.nodes[0])
	n := 0
	if err == nil {
		ref := api.LogRead{Log: r.id, Seq: x.Seq, Start: r.start, Length: x.Length}
		n, err = p.ReadLog(ctx, ref, r.buf[have:have+local.LogFrameBytesMax], r.off+int64(have))
	}
	if err == nil && n == 0 {
		err = &local.CorruptError{File: r.dec.Name, Offset: r.off, Reason: "unexpected end of extent"}
	}
	if err != nil {
		r.otherReplica(err)
		return
	}
	r.buf = r.buf[:have+n]
}

// Close releases the reader.
func (r *Reader) Close() error {
	r.err, r.buf = fmt.Errorf("read log %s: %w", r.id, local.ErrClosed), nil
	return nil
}
