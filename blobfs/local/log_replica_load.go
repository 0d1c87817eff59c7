package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
)

// load finds the end of a replica that Open found, and makes its frames and header durable: the
// page cache may have data that was never synced. The log's op must be held.
func (s *logReplicas) load(e *replicaExtent) error {
	l := e.log
	l.mu.Lock()
	loaded, damage, h := e.loaded, e.damage, e.f.header
	l.mu.Unlock()
	if loaded || damage != nil {
		return damage
	}
	e.io.Lock()
	defer e.io.Unlock()
	end, err := h.length, error(nil)
	if h.started && !h.sealed {
		end, err = s.recoverReplica(e)
	}
	if err == nil && !s.cfg.ReadOnly {
		h = h.with(h.meta())
		err = e.f.writeHeaderLocked(h, &l.mu)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var damaged *CorruptError
	if err != nil && !errors.As(err, &damaged) {
		return err
	}
	if err != nil {
		e.damage = err
		s.cfg.Logger.Error("log replica damaged", "log", l.id, "extent", h.seq, "err", err)
	}
	e.x.Restart(h.meta(), end)
	e.loaded = true
	return err
}

// recoverReplica returns the bytes of valid frames and makes them durable. An invalid frame before a
// valid one is a hole that a crash left in the last batches, unless the valid one records that the
// place was acknowledged. With a *CorruptError the bytes before the damage are good.
func (s *logReplicas) recoverReplica(e *replicaExtent) (int64, error) {
	file, err := e.f.folder.fs.OpenRead(e.f.path())
	if err != nil {
		return 0, asCorrupt(err)
	}
	defer file.Close()
	scan := newFrameScanner(file, e.f, e.f.header.bytes, newScanBuffer(e.f.header.bytes))
	sure := int64(pageBytes) // frames before this file offset were acknowledged, according to the last valid frame
	for {
		at := scan.off
		f, err := scan.next()
		if err == nil {
			sure = max(sure, at-f.ahead)
			continue
		}
		var bad *CorruptError
		if !errors.As(err, &bad) {
			return 0, err
		}
		acked, err := scan.ackedAfter(at)
		switch {
		case err != nil:
			return 0, err
		case acked > at:
			return at - pageBytes, bad
		}
		return at - pageBytes, s.rewrite(e.f, file, sure, at)
	}
}

// ackedAfter returns the file offset up to which frames were acknowledged, according to the valid
// frames after off.
func (s *frameScanner) ackedAfter(off int64) (int64, error) {
	acked := int64(0)
	for off += pageBytes; off+pageBytes <= s.limit; off += pageBytes {
		f, err := s.at(off)
		var bad *CorruptError
		if err == nil {
			acked = max(acked, off-f.ahead)
		} else if !errors.As(err, &bad) {
			return 0, err
		}
	}
	return acked, nil
}

// rewrite writes the bytes from at to end again and syncs.
func (s *logReplicas) rewrite(f *logFile, from vfs.File, at, end int64) error {
	if at >= end || s.cfg.ReadOnly {
		return nil
	}
	if f.folder.isRetired() {
		return f.folder.retiredError()
	}
	file, err := f.folder.fs.Open(f.path())
	if err != nil {
		f.folder.failed(err)
		return err
	}
	defer file.Close()
	file = vfs.Stable(file) // acknowledged frames must survive a power loss at any time
	buf := make([]byte, min(frameBytesMax, end-at))
	for ; at < end; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), end-at)]
		if _, err := readFull(from, buf, at); err != nil {
			return readError(err, f.path(), at)
		}
		if _, err := file.WriteAt(buf, at); err != nil {
			f.folder.failed(err)
			return err
		}
	}
	if err := file.Sync(); err != nil {
		f.folder.failed(err)
		return err
	}
	return nil
}

// LogSource is the source of a refill: another replica that was cut.
type LogSource struct {
	Server string
	Epoch  uint64 // of the writer that opened the extent
	Salt   uint64
	// Read reads up to len(p) bytes of frames at off.
	Read func(ctx context.Context, p []byte, off int64) (int, error)
}

// RefillLog copies the bytes that a replica lacks from src and cuts the replica. If there is no
// replica, or it is damaged, or it has the bytes of another extent, a new one is made, see rebuild.
// Errors are those of OpenLogReplica, of CutLog and of src.
func (s *logReplicas) RefillLog(ctx context.Context, c LogCut, src LogSource) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	l := s.log(c.Log, true)
	l.op.Lock()
	defer l.op.Unlock()
	e := l.extents[c.Seq]
	if e != nil {
		if err := s.useReplica(e); err != nil {
			return err
		}
	}
	if e == nil || !s.refillable(e, src) {
		return s.rebuild(ctx, l, e, c, src)
	}
	if err := c.check(e.f.header.bytes); err != nil {
		return err
	}
	l.mu.Lock()
	meta, from, need, err := e.x.NextRefill(c.CutRequest)
	e.stopped = need && err == nil
	l.mu.Unlock()
	if err != nil || !need {
		return err
	}
	e.io.Lock()
	err = (&frameSources{c: c, src: src}).fill(ctx, e.f, from)
	e.io.Unlock()
	if err != nil {
		l.mu.Lock()
		e.stopped, e.x.Closed = false, true
		l.mu.Unlock()
		return err
	}
	return s.change(e, meta, c.Length, logproto.ErrExtentClosed)
}

// refillable reports whether a replica's bytes can be kept.
func (s *logReplicas) refillable(e *replicaExtent, src LogSource) bool {
	err := s.load(e)
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return err == nil && e.f.header.salt == src.Salt && !e.f.folder.isRetired()
}

// rebuild makes a replica in another file, cuts it, and then puts it in the place of old, which may be
// nil. Each frame is from old, if it is good there, or from src. Until the new replica is durable the
// old one stays as it is: src may fail, and the old one may have frames that no other replica has.
// Since the file replaces one of equal size, it may use half of the reserve. l.op must be held.
func (s *logReplicas) rebuild(ctx context.Context, l *replicaLog, old *replicaExtent, c LogCut, src LogSource) error {
	if c.Epoch < src.Epoch {
		return &logproto.FencedError{Epoch: src.Epoch}
	}
	if err := c.check(s.cfg.ExtentBytes); err != nil {
		return err
	}
	meta := logproto.Meta{Epoch: src.Epoch, Fence: c.Epoch, Started: true, Start: c.Start, Sealed: true, Length: c.Length}
	e := &replicaExtent{log: l, x: &logproto.ReplicaExtent{Seq: c.Seq}, loaded: true, createdRound: s.round.Load()}
	from := frameSources{c: c, src: src}
	if old != nil {
		meta.Fence, e.createdRound = max(meta.Fence, old.x.Fence), old.createdRound
		var closeFile func()
		from.good, closeFile = old.remains(c, src)
		defer closeFile()
	}
	var err error
	if e.f, err = s.spares.take(old != nil); err != nil {
		return err
	}
	if err := from.fillSpare(ctx, e.f, meta); err != nil {
		_ = s.spares.recycleFile(e.f) // an error was passed to failed
		return err
	}
	e.x.Restart(meta, meta.Length)
	return s.swap(l, old, e)
}

// remains returns a scanner of the frames that a replica has of an extent, nil if it has none. The
// caller must call closeFile.
func (e *replicaExtent) remains(c LogCut, src LogSource) (good *frameScanner, closeFile func()) {
	e.log.mu.Lock()
	f := *e.f
	e.log.mu.Unlock()
	h := &f.header
	if !h.started || h.salt != src.Salt || h.start != c.Start {
		return nil, func() {}
	}
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return nil, func() {}
	}
	x := newFrameScanner(file, &f, min(h.bytes, pageBytes+c.Length), newScanBuffer(h.bytes))
	return &x, func() { file.Close() }
}

// swap puts a durable replica in the place of old, if that is not nil, and releases old's files.
func (s *logReplicas) swap(l *replicaLog, old, e *replicaExtent) error {
	if old != nil {
		old.io.Lock()
		defer old.io.Unlock()
	}
	var waiters []queueWaiter
	l.mu.Lock()
	if old != nil {
		waiters = old.waiters
		old.waiters, old.queue, old.stopped = nil, nil, true
		l.r.Remove(e.x.Seq)
	}
	l.r.Add(e.x)
	l.extents[e.x.Seq] = e
	l.mu.Unlock()
	for _, w := range waiters {
		w.done(0, logproto.ErrExtentClosed)
	}
	if old == nil {
		return nil
	}
	old.closeFile()
	if old.f.folder.isRetired() {
		return nil // the file stays
	}
	return s.recycleFiles(old)
}

// recycleFiles recycles the files of a replica that is no longer in the index.
func (s *logReplicas) recycleFiles(e *replicaExtent) error {
	var errs []error
	for _, f := range append(e.others, e.f) {
		errs = append(errs, s.spares.recycleFile(f))
	}
	return errors.Join(errs...)
}

// frameSources are where a refill gets the frames of an extent from.
type frameSources struct {
	c    LogCut
	src  LogSource
	good *frameScanner // of the damaged replica that is replaced; nil if there is none
}

// fillSpare makes a spare a replica that is cut.
func (x *frameSources) fillSpare(ctx context.Context, f *logFile, meta logproto.Meta) error {
	h := logHeader{state: logFileSpare, generation: f.header.generation + 1, bytes: f.header.bytes}
	// If a crash leaves the file a spare, the higher generation shows that it was used.
	if err := f.writeHeader(h); err != nil {
		return err
	}
	if err := x.fill(ctx, f, 0); err != nil {
		return err
	}
	h.state, h.log, h.seq, h.salt, h.server = logFileReplica, x.c.Log, x.c.Seq, x.src.Salt, x.src.Server
	return f.writeHeader(h.with(meta))
}

// fill copies, verifies and syncs the frames of an extent from offset at on. The header does not
// cover them yet.
func (x *frameSources) fill(ctx context.Context, f *logFile, at int64) error {
	file, err := f.folder.fs.Open(f.path())
	if err != nil {
		f.folder.failed(err)
		return err
	}
	defer file.Close()
	buf := make([]byte, 0, 2*frameBytesMax)
	for at < x.c.Length {
		if buf = x.local(buf[:0], at); len(buf) == 0 {
			if buf, err = x.remote(ctx, buf, at); err != nil {
				return err
			}
		}
		if _, err := file.WriteAt(buf, pageBytes+at); err != nil {
			f.folder.failed(err)
			return err
		}
		at += int64(len(buf))
	}
	if err := file.Sync(); err != nil {
		f.folder.failed(err)
		return err
	}
	return nil
}

// local appends the good frames of the replaced replica at an offset to buf, up to its capacity.
func (x *frameSources) local(buf []byte, at int64) []byte {
	if x.good == nil {
		return buf
	}
	for len(buf)+frameBytesMax <= cap(buf) {
		off := pageBytes + at + int64(len(buf))
		f, err := x.good.at(off)
		if err != nil {
			return buf
		}
		b, err := x.good.view(off, f.bytes)
		if err != nil {
			return buf
		}
		buf = append(buf, b...)
	}
	return buf
}

// remote appends the frames of the source at an offset to buf: at least one, and all are good.
func (x *frameSources) remote(ctx context.Context, buf []byte, at int64) ([]byte, error) {
	for {
		p := buf[len(buf):min(int64(cap(buf)), x.c.Length-at, int64(len(buf))+frameBytesMax)]
		n, err := x.src.Read(ctx, p, at+int64(len(buf)))
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+n]
		if good, _ := goodFrames(buf, x.src.Salt, x.c.Start+at); good > 0 {
			return buf[:good], nil
		}
		if n == 0 {
			return nil, &CorruptError{File: fmt.Sprintf("extent %d of log %s", x.c.Seq, x.c.Log), Offset: at, Reason: "invalid frame"}
		}
	}
}
