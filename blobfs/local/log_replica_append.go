package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/vfs"
)

// QueueLog queues frames for a replica and does not retain a.Frames. It calls done once: with the
// replica's durable bytes of frames, which include these frames, or with an error:
// *logproto.FencedError; logproto.ErrGap, ErrExtentClosed or ErrNoExtent; *TooLargeError if the
// queue is full; ErrFolderRetired. Calls take effect in the order in which they are made. QueueLog
// does not wait for the disk. If it returns true, the caller must call FlushLog.
func (s *logReplicas) QueueLog(a LogAppend, done func(length int64, err error)) (flush bool) {
	flush, known := s.EnqueueLog(a, done)
	if known != nil {
		done(known.Length, known.Err)
	}
	return flush
}

// AppendResult is the result of an append to a replica.
type AppendResult struct {
	Length int64
	Err    error
}

// EnqueueLog is QueueLog, except that it returns a result that is known at once instead of calling
// done. Otherwise done may be called before EnqueueLog returns.
func (s *logReplicas) EnqueueLog(a LogAppend, done func(length int64, err error)) (flush bool, known *AppendResult) {
	l := s.log(a.Log, false)
	if l == nil {
		return false, &AppendResult{0, logproto.ErrNoExtent}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.extents[a.Seq]
	if e == nil {
		return false, &AppendResult{0, logproto.ErrNoExtent}
	}
	length, wait, err := e.queueLocked(a, done)
	if planted.On(planted.NotFenced) && (errors.As(err, new(*logproto.FencedError)) || errors.Is(err, logproto.ErrExtentClosed)) {
		length, err = a.Pos+int64(len(a.Frames))-a.Start, nil
	}
	if !wait {
		return false, &AppendResult{length, err}
	}
	if !e.flushing {
		e.flushing, flush = true, true
	}
	return flush, nil
}

// queueLocked reports whether done will be called later. If not, it returns the result.
func (e *replicaExtent) queueLocked(a LogAppend, done func(int64, error)) (length int64, wait bool, err error) {
	if err := e.checkAppend(a); err != nil {
		return 0, false, err
	}
	m := logproto.AppendRequest{Seq: a.Seq, Epoch: a.Epoch, Start: a.Start, Pos: a.Pos, End: a.Pos + int64(len(a.Frames))}
	again, err := e.x.Append(m)
	switch {
	case err != nil:
		return 0, false, err
	case again && e.x.Durable >= m.End-m.Start:
		return e.x.Durable, false, nil
	case !again:
		if len(e.queue) == 0 {
			e.queue = append(e.queue, make([]byte, pageBytes)...)
		}
		e.queue = append(e.queue, a.Frames...)
	}
	if planted.On(planted.AckBeforeSync) {
		go done(m.End-m.Start, nil)
		done = func(int64, error) {}
	}
	e.waiters = append(e.waiters, queueWaiter{m.End - m.Start, done})
	return 0, true, nil
}

// checkAppend rejects appends that the protocol state machine does not check: invalid frames, or too
// many.
func (e *replicaExtent) checkAppend(a LogAppend) error {
	n := int64(len(a.Frames))
	switch {
	case e.damage != nil:
		return e.damage
	case e.stopped:
		return logproto.ErrExtentClosed
	case int64(len(e.queue))+n > queueBytesMax:
		return &TooLargeError{Limit: queueBytesMax, Got: int64(len(e.queue)) + n}
	case a.Start < 0 || a.Pos < a.Start || a.Pos-a.Start > e.f.header.bytes-pageBytes-n:
		return fmt.Errorf("append %d bytes at %d of an extent of %d: %w", n, a.Pos-a.Start, e.f.header.bytes-pageBytes, logproto.ErrMismatch)
	}
	if a.Trusted {
		return nil
	}
	return checkFrames(a.Frames, e.f.header.salt, a.Pos)
}

// checkFrames returns an error unless b is whole frames of an extent, starting at position pos.
func checkFrames(b []byte, salt uint64, pos int64) error {
	_, err := goodFrames(b, salt, pos)
	return err
}

// goodFrames returns how many bytes at the beginning of b are whole valid frames of an extent,
// starting at position pos, and what is wrong with the next one.
func goodFrames(b []byte, salt uint64, pos int64) (at int64, err error) {
	for at < int64(len(b)) {
		rest := b[at:]
		size, ok := int64(0), false
		if len(rest) >= frameHeaderBytes {
			size, ok = peekFrame(rest, salt, pos+at)
		}
		if !ok || size > int64(len(rest)) {
			return at, &CorruptError{File: "frames to append", Offset: at, Reason: fmt.Sprintf("no frame with position %d", pos+at)}
		}
		_, got, want, ok := decodeFrame(rest[:size])
		if got != want || !ok {
			return at, &CorruptError{File: "frames to append", Offset: at, Got: got, Want: want}
		}
		at += size
	}
	return at, nil
}

// FlushLog writes the queue of a replica, batch by batch until it is empty, each with one write and
// sync, and calls the callbacks.
func (s *logReplicas) FlushLog(log ID, seq uint64) {
	l := s.log(log, false)
	if l == nil {
		return
	}
	l.mu.Lock()
	e := l.extents[seq]
	l.mu.Unlock()
	for e != nil && s.flushBatch(e) {
	}
}

// FlushLogOnce is FlushLog for one batch. If it returns true, the queue is not empty and the caller
// must call FlushLog.
func (s *logReplicas) FlushLogOnce(log ID, seq uint64) bool {
	l := s.log(log, false)
	if l == nil {
		return false
	}
	l.mu.Lock()
	e := l.extents[seq]
	l.mu.Unlock()
	if e == nil || !s.flushBatch(e) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.flushing = len(e.waiters) > 0
	return e.flushing
}

// flushBatch writes one batch and reports whether there may be more.
func (s *logReplicas) flushBatch(e *replicaExtent) bool {
	l := e.log
	e.io.Lock()
	l.mu.Lock()
	if len(e.waiters) == 0 {
		e.flushing = false
		l.mu.Unlock()
		e.io.Unlock()
		return false
	}
	waiters, batch := e.waiters, e.queue
	e.waiters, e.queue, e.other = nil, e.other[:0], nil
	from, to := e.x.Durable, e.x.Durable
	if len(batch) > 0 {
		to += int64(len(batch)) - pageBytes
	}
	h := e.f.header
	if !e.x.Started {
		meta := e.x.Meta
		meta.Started = true
		h = h.with(meta)
	}
	l.mu.Unlock()

	var err error
	if to > from {
		moment.Pass("before frames of a log are written", "")
		err = s.writeBatch(e, h, batch, from)
		moment.Pass("frames of a log are durable", "")
	}
	l.mu.Lock()
	if err == nil && to > from {
		e.x.Flushed(to)
		e.f.header = h
		if cap(batch) <= 2*frameBytesMax { // do not retain a larger one
			e.other = batch[:0]
		}
	}
	var refused []queueWaiter
	if err != nil {
		e.x.Closed, e.damage = true, err
		refused, e.waiters, e.queue = e.waiters, nil, nil
	}
	length := e.x.Durable
	l.mu.Unlock()
	e.io.Unlock()
	for _, w := range append(waiters, refused...) {
		w.done(length, err)
	}
	return true
}

// writeBatch makes a batch durable, together with the header if it is the first one.
func (s *logReplicas) writeBatch(e *replicaExtent, h logHeader, batch []byte, from int64) (err error) {
	if err := s.beginReadOnly(context.Background()); err != nil {
		return err
	}
	defer s.end()
	folder := e.f.folder
	if folder.isRetired() {
		return folder.retiredError()
	}
	if e.file == nil {
		if e.file, err = folder.fs.Open(e.f.path()); err != nil {
			e.file = nil
			folder.failed(err)
			return err
		}
	}
	at := int64(0)
	if h.generation != e.f.header.generation {
		h.encode(batch)
	} else {
		batch, at = batch[pageBytes:], pageBytes+from
	}
	if _, err = vfs.AppendAt(e.file, batch, at); err == nil {
		err = e.file.Sync()
	}
	if err != nil && folder.failed(err) && folder.isRetired() {
		err = folder.retiredError()
	}
	return err
}
