package blobfs

import (
	"context"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// linkKey names a replica.
type linkKey struct {
	seq  uint64
	node string
}

// logLink is the way to one replica of an open extent. That to another node has a goroutine, which
// sends what is queued in messages of up to 1 MiB; what goes to the disks here is queued there at once.
type logLink struct {
	w     *SpreadLogWriter
	key   linkKey
	epoch uint64
	salt  uint64
	peer  api.Logs

	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by SpreadLogWriter.mu.
	durable int64 // position
	givenUp bool  // the writer wants to go on without it
	// waitedFor means that it was logged that it is slow and not given up.
	waitedFor bool

	// mu guards what follows. Never held across I/O. Taken after SpreadLogWriter.mu.
	mu      sync.Mutex
	queue   []queuedFrame
	wake    chan struct{} // of capacity 1
	started bool
}

// queuedFrame is a frame on its way; start is where the extent starts.
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
		return // closed meanwhile
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
		w.queueHere(l, queued)
		return
	}
	l.push(queued)
}

// resalt makes a frame one of another extent. One that may be on its way to a replica of the
// extent before is left as it is, and copied.
func (w *SpreadLogWriter) resalt(f *logFrame, salt uint64) {
	if f.shared {
		f.b = append([]byte(nil), f.b...)
		f.shared = false
	}
	local.ResaltLogFrame(f.b, salt, f.pos, f.pos-w.m.Acked())
	f.salt = salt
}

// queueHere gives frames to the disks here. They are written after mu is free.
func (w *SpreadLogWriter) queueHere(l *logLink, frames []queuedFrame) {
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
		alone := w.alone(l.key.seq)
		w.after = append(w.after, func() {
			more := true
			if alone { // the appender waits for this disk and no other: it may as well do the work
				more = w.s.disks.FlushLogOnce(w.id, l.key.seq)
			}
			// Otherwise a disk that stalls must not hold up who would go on without it.
			if more && !w.s.spawn(func() { w.s.disks.FlushLog(w.id, l.key.seq) }) {
				w.s.disks.FlushLog(w.id, l.key.seq)
			}
		})
	}
}

// alone tells whether an extent has one replica. Called with mu held.
func (w *SpreadLogWriter) alone(seq uint64) bool {
	n := 0
	for k := range w.links {
		if k.seq == seq {
			n++
		}
	}
	return n == 1
}

// answer hears of a replica.
func (w *SpreadLogWriter) answer(l *logLink, start, length int64, err error) {
	w.later(func() {
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

// push queues frames for another node.
func (l *logLink) push(frames []queuedFrame) {
	l.mu.Lock()
	l.queue = append(l.queue, frames...)
	start := !l.started
	l.started = true
	l.mu.Unlock()
	if start && !l.w.s.spawn(l.run) {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run sends what is queued, until the link is stopped.
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

// take returns frames for one message.
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

// logPace is how long appends take, and from that how long one may take: like TCP's
// retransmission timer (RFC 6298), with twice its room, since going on elsewhere costs
// more than sending a packet again.
type logPace struct {
	cfg         LogConfig
	mean, swing time.Duration
	backoff     int // doublings, after replicas that were slow
	good        int // appends since
}

func (p *logPace) init(cfg LogConfig) { p.cfg = cfg }

func (p *logPace) took(d time.Duration) {
	if p.mean == 0 {
		p.mean, p.swing = d, d/2
		return
	}
	p.swing += (max(d-p.mean, p.mean-d) - p.swing) / 4
	p.mean += (d - p.mean) / 8
	if p.good++; p.good > 100 && p.backoff > 0 {
		p.good, p.backoff = 0, p.backoff-1
	}
}

func (p *logPace) slow() { p.backoff, p.good = min(p.backoff+1, 5), 0 }

func (p *logPace) deadline() time.Duration {
	d := max(p.mean+8*p.swing, p.cfg.DeadlineMin) << p.backoff
	return min(d, p.cfg.DeadlineMax)
}

// watch looks after slow replicas, and tries again for nodes if there are none.
func (w *SpreadLogWriter) watch() {
	for {
		var changed <-chan struct{}
		if f := w.s.cluster.Fleet; f != nil {
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
		w.later(w.look) // it must look again though a disk stalls
	}
}
