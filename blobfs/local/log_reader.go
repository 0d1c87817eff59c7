package local

// Logs on this node alone, for tests and offline verification. The logs of a running node are replicas:
// log_replica*.go.

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/steledb/stele/internal/vfs"
)

// LogReader reads a log from its first extent. It is not safe for concurrent use. It uses a window
// of 2 MiB, and memory for the longest payload that has several frames.
type LogReader struct {
	st      *logState
	start   int64
	extents []*logFile
	files   []vfs.File
	limits  []int64 // file offset where each extent's frames end
	i       int     // extent being read
	scan    frameScanner
	buf     []byte // the scanner's window

	assembler assembler
	err       error // sticky, with io.EOF
}

// OpenLog fences the log's writer, waits for its append in progress, seals the log unless it is
// sealed, and opens it for reading. All that is read is durable, and every reader finds the same
// end. A torn tail, an append cut short by a crash, is cut off. A read-only store seals nothing.
//
// Errors: ErrNoLog; *CorruptError if an extent is missing, or may be missing because a log file has
// no readable header; ErrFolderRetired if an unreadable folder may have the log's end, or no folder
// is left to write the seal; ErrDiskFull if the seal needs a new extent and there is no space;
// ErrClosed. Next reports damaged frames.
func (s *localLogs) OpenLog(ctx context.Context, id ID) (*LogReader, error) {
	r, err := s.openLog(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", id, err)
	}
	return r, nil
}

func (s *localLogs) openLog(ctx context.Context, id ID) (*LogReader, error) {
	if err := s.beginReadOnly(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	st := s.lockLog(id, false)
	if st == nil {
		if err := s.checkTipKnown(); err != nil {
			return nil, err
		}
		return nil, ErrNoLog
	}
	defer s.unlockLog(st)
	st.stopWriter(ErrFenced)
	chain, err := st.chain()
	if err != nil {
		return nil, err
	}
	tail, err := readTail(chain[len(chain)-1])
	if err != nil {
		return nil, err
	}
	if !tail.sealed && tail.damage == nil {
		if err := s.checkTipKnown(); err != nil {
			return nil, err
		}
		if !s.cfg.ReadOnly {
			if tail, err = s.sealTail(st, chain, tail); err != nil {
				return nil, err
			}
			if chain, err = st.chain(); err != nil {
				return nil, err
			}
		}
	}
	return st.openReader(chain, tail)
}

// chain returns the log's extents in order.
func (st *logState) chain() ([]*logFile, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	chain, err := chainOf(st.extents)
	if err == nil && len(chain) == 0 {
		err = ErrNoLog
	}
	return chain, err
}

func readTail(f *logFile) (logTail, error) {
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return logTail{}, asCorrupt(err)
	}
	defer file.Close()
	scan := newFrameScanner(file, f, f.header.bytes, newScanBuffer(f.header.bytes))
	return scan.findTail()
}

// checkTipKnown returns an error if the newest extent of an unsealed log, or any extent of a log that
// was not found, may be in a file or folder that could not be read.
func (s *localLogs) checkTipKnown() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.damaged) > 0 {
		return s.mu.damaged[0]
	}
	for _, f := range s.folders {
		if f.unreadable {
			return f.retiredError()
		}
	}
	return nil
}

// sealTail makes the end of an unsealed log durable. It rewrites the last frame and writes a seal
// after it, in place, or in a new extent if the folder fails. The last frame may be one that was
// never synced, or whose sync failed: the page cache would return it until the next power loss.
// Earlier frames were synced before the next one was written.
func (s *localLogs) sealTail(st *logState, chain []*logFile, tail logTail) (logTail, error) {
	tip := chain[len(chain)-1]
	w := &LogWriter{s: s, st: st, cur: tip, seq: tip.header.seq, live: tip.header.live}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seek(tail.end)
	var err error
	if w.file, err = tip.folder.fs.Open(tip.path()); err != nil && !tip.folder.failed(err) {
		return tail, err
	}
	defer w.closeFile()
	if w.file != nil {
		w.file = vfs.Stable(w.file) // the last frame may be acknowledged and must survive a power loss now
	}
	if tail.last != 0 {
		f, err := readFrame(tip, tail.last)
		if err != nil {
			return tail, err
		}
		w.seek(tail.last)
		if err := w.writeFrame(f.kind, f.payload, f.total); err != nil {
			return tail, err
		}
	}
	if err := w.writeFrame(frameSeal, nil, 0); err != nil {
		return tail, err
	}
	s.cfg.Logger.Info("log sealed by recovery", "log", st.id, "file", w.cur.path(), "offset", w.off, "position", w.pos)
	return logTail{end: w.off, sealed: true}, nil
}

// seek sets the writer's offset in its extent.
func (w *LogWriter) seek(off int64) {
	w.off = off
	w.pos = w.cur.header.start + off - pageBytes
}

func readFrame(f *logFile, off int64) (frame, error) {
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return frame{}, asCorrupt(err)
	}
	defer file.Close()
	scan := newFrameScanner(file, f, f.header.bytes, newScanBuffer(f.header.bytes))
	return scan.at(off)
}

func (st *logState) openReader(chain []*logFile, tail logTail) (*LogReader, error) {
	r := &LogReader{st: st, start: chain[0].header.start, buf: newScanBuffer(chain[0].header.bytes)}
	for i, f := range chain {
		file, err := f.folder.fs.OpenRead(f.path())
		if err != nil {
			r.Close()
			return nil, asCorrupt(err)
		}
		st.mu.Lock()
		f.readers++
		st.mu.Unlock()
		r.extents = append(r.extents, f)
		r.files = append(r.files, file)
		r.limits = append(r.limits, extentLimit(chain, i, tail))
	}
	r.scan = newFrameScanner(r.files[0], chain[0], r.limits[0], r.buf)
	return r, nil
}

// extentLimit returns the file offset where the frames of chain[i] end.
func extentLimit(chain []*logFile, i int, tail logTail) int64 {
	switch {
	case i+1 < len(chain):
		return pageBytes + chain[i+1].header.prevLen
	case tail.damage != nil:
		return chain[i].header.bytes // so that Next reports the damage
	default:
		return tail.end
	}
}

// Start returns the position of the first byte of the log. If the caller needs an earlier one, an
// extent is lost.
func (r *LogReader) Start() int64 { return r.start }

// Next returns the next payload, valid until the following call, and the position after it. At the
// end of the log the error is io.EOF. A *CorruptError locates a damaged frame: all payloads before
// it have been returned, and none after it can be. Errors are sticky.
func (r *LogReader) Next() (payload []byte, pos int64, err error) {
	for r.err == nil {
		f, err := r.nextFrame()
		if err != nil {
			r.err = err
			break
		}
		if f.kind == frameSeal {
			r.err = io.EOF
			break
		}
		payload, whole, ok := r.assembler.add(f)
		if !ok {
			r.err = &CorruptError{File: r.scan.path, Offset: r.scan.off - f.bytes, Reason: partMissing}
			break
		}
		if whole {
			return payload, r.scan.position(), nil
		}
	}
	return nil, 0, r.err
}

func (r *LogReader) nextFrame() (frame, error) {
	for r.scan.off == r.scan.limit {
		if r.i+1 == len(r.extents) {
			return frame{}, io.EOF
		}
		r.i++
		r.scan = newFrameScanner(r.files[r.i], r.extents[r.i], r.limits[r.i], r.buf)
	}
	return r.scan.next()
}

// Close closes the files.
func (r *LogReader) Close() error {
	var errs []error
	r.st.mu.Lock()
	for _, f := range r.extents {
		f.readers--
	}
	r.st.mu.Unlock()
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	r.extents, r.files = nil, nil
	r.err = fmt.Errorf("read log %s: %w", r.st.id, ErrClosed)
	return errors.Join(errs...)
}
