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
// replica, or it has the bytes of another extent, it is created again. Errors are those of
// OpenLogReplica, of CutLog and of src.
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
	if e != nil && !s.refillable(e, src) {
		if err := s.replaceReplica(l, e); err != nil {
			return err
		}
		e = nil
	}
	if e == nil {
		o := LogOpen{Log: c.Log, Server: src.Server, Seq: c.Seq, Epoch: src.Epoch, Salt: src.Salt}
		var err error
		if e, err = s.makeReplica(l, o, logproto.Meta{Epoch: src.Epoch, Fence: c.Epoch}); err != nil {
			return err
		}
		l.mu.Lock()
		e.x.Closed = true
		l.mu.Unlock()
	}
	if err := e.checkCut(c); err != nil {
		return err
	}
	l.mu.Lock()
	meta, from, need, err := e.x.NextRefill(c.CutRequest)
	e.stopped = need && err == nil
	l.mu.Unlock()
	if err != nil || !need {
		return err
	}
	if err := s.fill(ctx, e, src, c, from); err != nil {
		l.mu.Lock()
		e.stopped, e.x.Closed = false, true
		l.mu.Unlock()
		return err
	}
	return s.change(e, meta, logproto.ErrExtentClosed)
}

// refillable reports whether a replica's bytes can be kept.
func (s *logReplicas) refillable(e *replicaExtent, src LogSource) bool {
	err := s.load(e)
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return err == nil && e.f.header.salt == src.Salt && !e.f.folder.isRetired()
}

// replaceReplica discards a replica's file, because another one will replace it.
func (s *logReplicas) replaceReplica(l *replicaLog, e *replicaExtent) error {
	e.io.Lock()
	defer e.io.Unlock()
	l.mu.Lock()
	waiters := e.waiters
	e.waiters, e.queue, e.stopped = nil, nil, true
	l.r.Remove(e.x.Seq)
	delete(l.extents, e.x.Seq)
	l.mu.Unlock()
	for _, w := range waiters {
		w.done(0, logproto.ErrExtentClosed)
	}
	e.closeFile()
	if e.f.folder.isRetired() {
		return nil // the file stays
	}
	return s.spares.recycleFile(e.f)
}

// fill copies, verifies and syncs the bytes that a replica lacks. The header does not cover them
// yet.
func (s *logReplicas) fill(ctx context.Context, e *replicaExtent, src LogSource, c LogCut, from int64) error {
	e.io.Lock()
	defer e.io.Unlock()
	folder := e.f.folder
	file, err := folder.fs.Open(e.f.path())
	if err != nil {
		folder.failed(err)
		return err
	}
	defer file.Close()
	buf := make([]byte, 0, 2*frameBytesMax)
	for at := from; at < c.Length; {
		n, err := src.Read(ctx, buf[len(buf):][:min(frameBytesMax, int(c.Length-at)-len(buf))], at+int64(len(buf)))
		if err != nil {
			return err
		}
		buf = buf[:len(buf)+n]
		whole := wholeFrames(buf, src.Salt, c.Start+at)
		if whole == 0 && n == 0 {
			return &CorruptError{File: fmt.Sprintf("extent %d of log %s", c.Seq, c.Log), Offset: at, Reason: "invalid frame"}
		}
		if err := checkFrames(buf[:whole], src.Salt, c.Start+at); err != nil {
			return err
		}
		if _, err := file.WriteAt(buf[:whole], pageBytes+at); err != nil {
			folder.failed(err)
			return err
		}
		at += int64(whole)
		buf = append(buf[:0], buf[whole:]...)
	}
	if err := file.Sync(); err != nil {
		folder.failed(err)
		return err
	}
	return nil
}

// wholeFrames returns how many bytes of b are whole frames.
func wholeFrames(b []byte, salt uint64, pos int64) int {
	at := 0
	for len(b)-at >= frameHeaderBytes {
		size, ok := peekFrame(b[at:], salt, pos+int64(at))
		if !ok || int(size) > len(b)-at {
			break
		}
		at += int(size)
	}
	return at
}
