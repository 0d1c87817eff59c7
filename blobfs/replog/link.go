package replog

import (
	"context"
	"sync"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// linkKey identifies a replica.
type linkKey struct {
	seq  uint64
	node string
}

// link sends frames to one replica of an open extent. For a remote replica a goroutine sends the
// queued frames in messages of up to 1 MiB. Frames for the local disk are queued there at once.
type link struct {
	w     *Writer
	key   linkKey
	epoch uint64
	salt  uint64
	peer  api.Logs
	times *replicaTime // of the node

	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by Writer.mu.
	durable int64 // position up to which the replica is durable
	sent    int64 // position up to which frames were queued
	dropped bool  // the writer is about to continue without the replica
	// slowLogged means that a warning was logged that the replica is slow but kept.
	slowLogged bool

	// mu guards what follows. Never held across I/O. Taken after Writer.mu.
	mu      sync.Mutex
	queue   []queuedFrame
	wake    chan struct{} // capacity 1
	started bool
}

// queuedFrame is a frame to be sent; start is the position at which its extent starts.
type queuedFrame struct {
	b          []byte
	start, pos int64
}

func newLink(w *Writer, seq uint64, node string, epoch, salt uint64, p api.Logs) *link {
	l := &link{w: w, key: linkKey{seq, node}, epoch: epoch, salt: salt, peer: p, times: w.logs.times.of(node), wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(w.ctx)
	return l
}

func (l *link) stop() { l.cancel() }

// links are the links of a writer. Guarded by Writer.mu.
type links map[linkKey]*link

// drop ends a link.
func (all links) drop(seq uint64, node string) {
	k := linkKey{seq, node}
	if l := all[k]; l != nil {
		l.stop()
		delete(all, k)
	}
}

// single reports whether an extent has only one replica.
func (all links) single(seq uint64) bool {
	n := 0
	for k := range all {
		if k.seq == seq {
			n++
		}
	}
	return n == 1
}

// other reports whether another replica of the extent is open.
func (all links) other(than linkKey) bool {
	for k := range all {
		if k.seq == than.seq && k.node != than.node {
			return true
		}
	}
	return false
}

// sendFrames queues the frames between two positions. Called with mu held.
func (w *Writer) sendFrames(e logproto.Effect) {
	l := w.links[linkKey{e.Seq, e.Node}]
	if l == nil {
		return // the link was closed meanwhile
	}
	w.seq = e.Seq
	local := e.Node == w.logs.self
	now := w.now()
	var queued []queuedFrame
	for i := range w.window.frames {
		f := w.window.frames[i]
		if f.pos < e.Pos || f.end > e.End {
			continue
		}
		if f.salt != l.salt {
			f.resalt(l.salt, w.m.Acked())
			f.sent = now
		}
		f.shared = f.shared || !local
		queued = append(queued, queuedFrame{f.b, e.Start, f.pos})
		l.sent = max(l.sent, f.end)
	}
	if local {
		w.queueLocal(l, queued)
		return
	}
	l.push(queued)
}

// queueLocal queues frames for the local disk. They are written after mu is released.
func (w *Writer) queueLocal(l *link, frames []queuedFrame) {
	flush := false
	for _, f := range frames {
		a := local.LogAppend{Log: w.id, Seq: l.key.seq, Epoch: l.epoch, Start: f.start, Pos: f.pos, Frames: f.b, Trusted: true}
		more, known := w.logs.deps.Disks.EnqueueLog(a, func(length int64, err error) { w.answer(l, f.start, length, err) })
		if known != nil { // the caller holds mu
			w.after = append(w.after, func() { w.answer(l, f.start, known.Length, known.Err) })
		}
		flush = flush || more
	}
	if flush {
		single := w.links.single(l.key.seq)
		w.after = append(w.after, func() {
			more := true
			if single { // the appender waits for this disk only, so it may do the write
				more = w.logs.deps.Disks.FlushLogOnce(w.id, l.key.seq)
			}
			// Otherwise a stalled disk must not block a caller that would continue without it.
			if more && !w.logs.deps.Work.Go(func() { w.logs.deps.Disks.FlushLog(w.id, l.key.seq) }) {
				w.logs.deps.Disks.FlushLog(w.id, l.key.seq)
			}
		})
	}
}

// answer handles a replica's answer to an append.
func (w *Writer) answer(l *link, start, length int64, err error) {
	w.eventAsync(func() {
		if w.links[l.key] != l {
			return
		}
		if err != nil {
			w.failed(l.key.seq, l.key.node, err)
			return
		}
		w.answered(l, start+length)
		w.m.Durable(l.key.seq, l.key.node, length)
	})
}

// push queues frames for a remote replica.
func (l *link) push(frames []queuedFrame) {
	l.mu.Lock()
	l.queue = append(l.queue, frames...)
	start := !l.started
	l.started = true
	l.mu.Unlock()
	if start && !l.w.logs.deps.Work.Go(l.run) {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run sends the queued frames until the link is stopped.
func (l *link) run() {
	var buf []byte
	for {
		for {
			batch := l.take()
			if len(batch) == 0 {
				break
			}
			a := local.LogAppend{Log: l.w.id, Seq: l.key.seq, Epoch: l.epoch, Start: batch[0].start, Pos: batch[0].pos, Frames: batch[0].b}
			if len(batch) > 1 {
				buf = buf[:0]
				for _, f := range batch {
					buf = append(buf, f.b...)
				}
				a.Frames = buf
			}
			l.peer.AppendLog(l.ctx, a, func(length int64, err error) {
				if l.ctx.Err() == nil {
					l.w.answer(l, a.Start, length, err)
				}
			})
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
	}
}

// take returns the frames for the next message.
func (l *link) take() []queuedFrame {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, bytes := 0, 0
	for n < len(l.queue) && (n == 0 || bytes+len(l.queue[n].b) <= api.LogBytesMax) {
		bytes += len(l.queue[n].b)
		n++
	}
	batch := l.queue[:n:n]
	l.queue = l.queue[n:]
	return batch
}
