package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/steledb/stele/blobfs/logproto"
)

// VerifyLogReplica reads a replica, up to its cut or its durable end, and checks its header page
// and each frame. It returns the first *CorruptError, or logproto.ErrNoExtent.
//
// The end is unknown if the replica was found by Open and not fenced or cut since. Then an invalid
// frame is damage only if a later valid frame records that it was acknowledged.
func (s *logReplicas) VerifyLogReplica(ctx context.Context, log ID, seq uint64) error {
	if err := s.beginReadOnly(ctx); err != nil {
		return fmt.Errorf("verify extent %d of log %s: %w", seq, log, err)
	}
	s.end() // Close need not wait for the reads
	var err error
	if e := s.replica(log, seq); e == nil {
		err = logproto.ErrNoExtent
	} else {
		v := &verifier{buf: make([]byte, 0, ChunkBytes)}
		if err = v.replicaHeader(e); err != nil {
			err = v.replicaHeader(e) // a concurrent write may have changed it
		}
		if err == nil {
			err = v.replicaFrames(ctx, e)
		}
		err = e.ifStillThere(err)
	}
	if err != nil {
		return fmt.Errorf("verify extent %d of log %s: %w", seq, log, err)
	}
	return nil
}

// replica returns a replica, or nil if there is none.
func (s *logReplicas) replica(log ID, seq uint64) *replicaExtent {
	l := s.log(log, false)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.extents[seq]
}

// logReplicas verifies the frames of all replicas.
func (v *verifier) logReplicas(ctx context.Context, s *logReplicas) {
	for _, x := range s.LogReplicas() {
		e := s.replica(x.Log, x.Seq)
		if e == nil || ctx.Err() != nil {
			continue
		}
		err := e.ifStillThere(v.replicaFrames(ctx, e))
		if err != nil && ctx.Err() == nil && !errors.Is(err, logproto.ErrNoExtent) {
			v.problem(e.f.path(), 0, err)
		}
	}
}

// ifStillThere replaces err by logproto.ErrNoExtent if the replica was dropped meanwhile, because
// its file may be reused.
func (e *replicaExtent) ifStillThere(err error) error {
	if err == nil {
		return nil
	}
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	if e.log.extents[e.x.Seq] != e || errors.Is(err, fs.ErrNotExist) {
		return logproto.ErrNoExtent
	}
	return err
}

// replicaHeader verifies both copies in the header page. Open needs only one of them.
func (v *verifier) replicaHeader(e *replicaExtent) error {
	fsys, path := e.f.folder.fs, e.f.path()
	if err := v.logHeader(fsys, path); err != nil {
		return err
	}
	file, err := fsys.OpenRead(path)
	if err != nil {
		return asCorrupt(err)
	}
	defer file.Close()
	page := v.buf[:pageBytes]
	if _, err := readFull(file, page, 0); err != nil {
		return readError(err, path, 0)
	}
	h, err := decodeLogHeader(page, path)
	if err == nil && (h.state != logFileReplica || h.log != e.log.id || h.seq != e.x.Seq) {
		err = &CorruptError{File: path, Reason: "header is of another replica"}
	}
	return err
}

// replicaFrames verifies the frames of a replica.
func (v *verifier) replicaFrames(ctx context.Context, e *replicaExtent) error {
	l := e.log
	l.mu.Lock()
	if l.extents[e.x.Seq] != e {
		l.mu.Unlock()
		return logproto.ErrNoExtent
	}
	f := logFile{folder: e.f.folder, name: e.f.name, header: e.f.header}
	meta, durable, known := e.x.Meta, e.x.Durable, e.loaded && e.damage == nil
	l.mu.Unlock()
	limit := int64(-1)
	switch {
	case meta.Sealed:
		limit = meta.Length
	case !meta.Started:
		limit = 0
	case known:
		limit = durable
	}
	f.header.start = meta.Start
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return asCorrupt(err)
	}
	defer file.Close()
	if int64(cap(v.buf)) < min(2*frameBytesMax, f.header.bytes) {
		v.buf = newScanBuffer(f.header.bytes)
	}
	end := f.header.bytes
	if limit >= 0 {
		end = pageBytes + limit
	}
	scan := newFrameScanner(file, &f, end, v.buf)
	for err == nil && scan.off < end {
		if err = ctx.Err(); err == nil {
			_, err = scan.next()
		}
	}
	var bad *CorruptError
	if limit >= 0 || !errors.As(err, &bad) {
		return err
	}
	// A torn tail, unless a later frame records that all before it was acknowledged.
	acked, errAfter := scan.ackedAfter(scan.off)
	if errAfter == nil && acked <= scan.off {
		return nil
	}
	return cmp.Or(errAfter, err)
}
