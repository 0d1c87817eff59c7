package blobfs

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// linkKey identifies a replica.
type linkKey struct {
	seq  uint64
	node string
}

// logLink sends frames to one replica of an open extent. For a remote replica a goroutine sends the
// queued frames in messages of up to 1 MiB. Frames for the local disk are queued there at once.
type logLink struct {
	w     *SpreadLogWriter
	key   linkKey
	epoch uint64
	salt  uint64
	peer  api.Logs

	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by SpreadLogWriter.mu.
	durable int64 // position up to which the replica is durable
	dropped bool  // the writer is about to continue without the replica
	// slowLogged means that a warning was logged that the replica is slow but kept.
	slowLogged bool

	// mu guards what follows. Never held across I/O. Taken after SpreadLogWriter.mu.
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

func newLogLink(w *SpreadLogWriter, seq uint64, node string, epoch, salt uint64, p api.Logs) *logLink {
	l := &logLink{w: w, key: linkKey{seq, node}, epoch: epoch, salt: salt, peer: p, wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(w.ctx)
	return l
}

func (l *logLink) stop() { l.cancel() }

// dropLink ends a link. Called with mu held.
func (w *SpreadLogWriter) dropLink(seq uint64, node string) {
	k := linkKey{seq, node}
	if l := w.links[k]; l != nil {
		l.stop()
		delete(w.links, k)
	}
}

// sendFrames queues the frames between two positions. Called with mu held.
func (w *SpreadLogWriter) sendFrames(e logproto.Effect) {
	l := w.links[linkKey{e.Seq, e.Node}]
	if l == nil {
		return // the link was closed meanwhile
	}
	w.seq = e.Seq
	local := e.Node == w.s.self
	now := w.s.cluster.Clock.Now()
	var queued []queuedFrame
	for i := range w.frames {
		f := w.frames[i]
		if f.pos < e.Pos || f.end > e.End {
			continue
		}
		if f.salt != l.salt {
			w.resalt(f, l.salt)
			f.sent = now
		}
		f.shared = f.shared || !local
		queued = append(queued, queuedFrame{f.b, e.Start, f.pos})
	}
	if local {
		w.queueLocal(l, queued)
		return
	}
	l.push(queued)
}

// resalt re-encodes a frame for another extent. A frame that a link may be sending is copied first.
func (w *SpreadLogWriter) resalt(f *logFrame, salt uint64) {
	if f.shared {
		f.b = append([]byte(nil), f.b...)
		f.shared = false
	}
	local.ResaltLogFrame(f.b, salt, f.pos, f.pos-w.m.Acked())
	f.salt = salt
}

// queueLocal queues frames for the local disk. They are written after mu is released.
func (w *SpreadLogWriter) queueLocal(l *logLink, frames []queuedFrame) {
	flush := false
	for _, f := range frames {
		a := local.LogAppend{Log: w.id, Seq: l.key.seq, Epoch: l.epoch, Start: f.start, Pos: f.pos, Frames: f.b, Trusted: true}
		more, known := w.s.disks.EnqueueLog(a, func(length int64, err error) { w.answer(l, f.start, length, err) })
		if known != nil { // the caller holds mu
			w.after = append(w.after, func() { w.answer(l, f.start, known.Length, known.Err) })
		}
		flush = flush || more
	}
	if flush {
		single := w.singleReplica(l.key.seq)
		w.after = append(w.after, func() {
			more := true
			if single { // the appender waits for this disk only, so it may do the write
				more = w.s.disks.FlushLogOnce(w.id, l.key.seq)
			}
			// Otherwise a stalled disk must not block a caller that would continue without it.
			if more && !w.s.work.Go(func() { w.s.disks.FlushLog(w.id, l.key.seq) }) {
				w.s.disks.FlushLog(w.id, l.key.seq)
			}
		})
	}
}

// singleReplica reports whether an extent has only one replica. Called with mu held.
func (w *SpreadLogWriter) singleReplica(seq uint64) bool {
	n := 0
	for k := range w.links {
		if k.seq == seq {
			n++
		}
	}
	return n == 1
}

// answer handles a replica's answer to an append.
func (w *SpreadLogWriter) answer(l *logLink, start, length int64, err error) {
	w.eventAsync(func() {
		if w.links[l.key] != l {
			return
		}
		if err != nil {
			w.failed(l.key.seq, l.key.node, err)
			return
		}
		l.durable = max(l.durable, start+length)
		w.m.Durable(l.key.seq, l.key.node, length)
	})
}

// push queues frames for a remote replica.
func (l *logLink) push(frames []queuedFrame) {
	l.mu.Lock()
	l.queue = append(l.queue, frames...)
	start := !l.started
	l.started = true
	l.mu.Unlock()
	if start && !l.w.s.work.Go(l.run) {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run sends the queued frames until the link is stopped.
func (l *logLink) run() {
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
func (l *logLink) take() []queuedFrame {
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

// appendTimer estimates append times and derives the deadline of an append, like TCP's
// retransmission timer (RFC 6298). The margin is twice as large, since leaving an extent costs more
// than resending a packet.
type appendTimer struct {
	cfg             LogConfig
	mean, deviation time.Duration
	backoff         int // doublings after slow replicas
	good            int // appends since
}

func (p *appendTimer) init(cfg LogConfig) { p.cfg = cfg }

func (p *appendTimer) observe(d time.Duration) {
	if p.mean == 0 {
		p.mean, p.deviation = d, d/2
		return
	}
	p.deviation += (max(d-p.mean, p.mean-d) - p.deviation) / 4
	p.mean += (d - p.mean) / 8
	if p.good++; p.good > 100 && p.backoff > 0 {
		p.good, p.backoff = 0, p.backoff-1
	}
}

func (p *appendTimer) backOff() { p.backoff, p.good = min(p.backoff+1, 5), 0 }

func (p *appendTimer) deadline() time.Duration {
	d := max(p.mean+8*p.deviation, p.cfg.DeadlineMin) << p.backoff
	return min(d, p.cfg.DeadlineMax)
}

// watch runs the periodic checks until the writer ends.
func (w *SpreadLogWriter) watch() {
	for {
		var changed <-chan struct{}
		if f := w.s.cluster.Membership; f != nil {
			changed = f.Changed()
		}
		fired, stop := w.s.cluster.Clock.Timer(w.s.cluster.Logs.DeadlineMin / 4)
		select {
		case <-fired:
		case <-changed:
		case <-w.ctx.Done():
			stop()
			w.event(func() { w.stop(ErrClosed) })
			return
		}
		stop()
		w.eventAsync(w.tick) // must not block on a stalled disk
	}
}
