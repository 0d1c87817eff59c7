package local

// Logs on this node alone, for tests and offline verification. The logs of a running node are replicas:
// log_replica*.go.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/internal/vfs"
)

// LogWriter appends to a log. It is safe for concurrent use; appends are serialized. Its memory is
// one buffer of the size of the largest frame so far, at most 1 MiB and a page.
type LogWriter struct {
	s  *localLogs
	st *logState

	// mu guards the fields below. Held across I/O: one append at a time. Order: disks.running,
	// logState.opening, mu, logState.mu.
	mu  sync.Mutex
	err error // sticky
	pos int64 // after the last frame that is durable

	// cur is the extent being appended to; nil before the first. While it is fresh it is not part
	// of the log yet.
	cur   *logFile
	file  vfs.File
	off   int64 // in the file, of the next frame
	fresh bool

	seq  uint64 // of the newest extent
	live uint64
	// prevSeq and prevLen describe the extent before cur, the last one with acknowledged frames.
	prevSeq uint64
	prevLen int64

	kept []*logFile // spares taken for the current payload
	buf  []byte     // a page for a header, then a frame
}

// CreateLog durably creates a log and opens it for appending at position 0. ErrLogExists if the
// store has a log with that ID, even an empty one: to continue after a crash, read the old log and
// create another. Other errors: ErrDiskFull, ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *localLogs) CreateLog(ctx context.Context, id ID) (*LogWriter, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	defer s.end()
	s.spares.start()
	st := s.lockLog(id, true)
	defer s.unlockLog(st)
	st.mu.Lock()
	exists := len(st.extents) > 0 || st.hasOrphan
	st.mu.Unlock()
	if exists {
		return nil, fmt.Errorf("create log %s: %w", id, ErrLogExists)
	}
	w := &LogWriter{s: s, st: st, live: 1}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.establish(); err != nil {
		w.dropCurrent()
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	st.mu.Lock()
	st.writer = w
	st.mu.Unlock()
	return w, nil
}

// ID returns the log's ID.
func (w *LogWriter) ID() ID { return w.st.id }

// Append appends p, does not retain it, and returns the position after it when it is durable. A
// folder that fails is retired and the log continues in another one; that only takes longer.
//
// ErrDiskFull means that no folder has space for the next extent, *TooLargeError that p is longer
// than LogPayloadMax. After these nothing is lost and the writer can still be used. All other
// errors are sticky: ErrLogFailed (no folder left), ErrFenced, ErrSealed, ErrClosed. After any
// error, p may or may not be in the log when it is recovered, but never in part. A cancelled ctx
// has an effect only before anything is written.
func (w *LogWriter) Append(ctx context.Context, p []byte) (pos int64, err error) {
	if err := w.s.begin(ctx); err != nil {
		return 0, fmt.Errorf("append to log %s: %w", w.st.id, err)
	}
	defer w.s.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if err := w.append(p); err != nil {
		return 0, w.fail(fmt.Errorf("append to log %s: %w", w.st.id, err))
	}
	return w.pos, nil
}

// Release declares that nothing before pos will be read again. Extents wholly before pos are
// recycled or removed by the spare workers, or at once if Config.LogExtentsReady is negative. What
// cannot be released now is released by a later call.
func (w *LogWriter) Release(pos int64) {
	w.st.mu.Lock()
	n := len(w.st.extents)
	some := n > 1 && w.st.extents[1].header.start <= pos
	var newest *folder // release writes a header there
	if some {
		newest = w.st.extents[n-1].folder
	}
	w.st.mu.Unlock()
	if some {
		w.s.spares.later(newest, func() { w.release(pos) })
	}
}

// Seal ends the log: it accepts no more appends, and a reader can distinguish its end from a lost
// end. Errors are those of Append. Sealing a sealed log does nothing.
func (w *LogWriter) Seal(ctx context.Context) error {
	if err := w.s.begin(ctx); err != nil {
		return fmt.Errorf("seal log %s: %w", w.st.id, err)
	}
	defer w.s.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(w.err, ErrSealed) {
		return nil
	}
	if w.err != nil {
		return w.err
	}
	return w.sealLocked()
}

func (w *LogWriter) sealLocked() error {
	if err := w.writeFrame(frameSeal, nil, 0); err != nil {
		return w.fail(fmt.Errorf("seal log %s: %w", w.st.id, err))
	}
	w.stopLocked(ErrSealed)
	return nil
}

// Close closes the log without sealing it. For OpenLog this is the same as a crash.
func (w *LogWriter) Close() error {
	w.st.mu.Lock()
	mine := w.st.writer == w
	w.st.mu.Unlock()
	if mine {
		w.st.stopWriter(ErrClosed)
	}
	return nil
}

// stopWriter waits for the append in progress and makes the log's writer, if any, fail all later
// calls with cause.
func (st *logState) stopWriter(cause error) {
	st.mu.Lock()
	w := st.writer
	st.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked(cause)
}

func (w *LogWriter) stopLocked(cause error) {
	if w.err == nil {
		w.err = fmt.Errorf("log %s: %w", w.st.id, cause)
	}
	w.closeFile()
	w.buf = nil
	w.st.mu.Lock()
	if w.st.writer == w {
		w.st.writer = nil
	}
	w.st.mu.Unlock()
}

// fail makes err sticky, unless the writer can continue after it.
func (w *LogWriter) fail(err error) error {
	var large *TooLargeError
	switch {
	case errors.As(err, &large), errors.Is(err, ErrDiskFull):
		return err
	case errors.Is(err, ErrFolderRetired):
		err = fmt.Errorf("%w: %w", ErrLogFailed, err)
	}
	w.err = err
	w.stopLocked(err)
	return err
}

func (w *LogWriter) closeFile() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}

// frameMax returns the size of the largest frame that fits an extent.
func (w *LogWriter) frameMax() int64 {
	return min(frameBytesMax, w.s.cfg.ExtentBytes-2*pageBytes)
}

func (w *LogWriter) append(p []byte) error {
	if len(p) > LogPayloadMax {
		return &TooLargeError{Limit: LogPayloadMax, Got: int64(len(p))}
	}
	if frameBytes(len(p)) <= w.frameMax() {
		return w.writeFrame(frameFull, p, int64(len(p)))
	}
	// Take all necessary extents first, so that a disk that fills up cannot stop the append half
	// way.
	defer w.returnSpares()
	part := int(w.frameMax() - frameHeaderBytes)
	space := w.spaceLeft(frameMiddle)
	for left := len(p); left > 0; left -= part {
		need := frameBytes(min(part, left))
		if need > space {
			f, err := w.s.spares.take(false)
			if err != nil {
				return err
			}
			w.kept = append(w.kept, f)
			space = f.header.bytes - 2*pageBytes
		}
		space -= need
	}
	total := int64(len(p))
	for i, piece := 0, p; len(piece) > 0; i++ {
		kind := frameMiddle
		n := min(part, len(piece))
		if i == 0 {
			kind = frameFirst
		} else if n == len(piece) {
			kind = frameLast
		}
		if err := w.writeFrame(kind, piece[:n], total); err != nil {
			return err
		}
		piece = piece[n:]
	}
	return nil
}

func (w *LogWriter) returnSpares() {
	for _, f := range w.kept {
		w.s.spares.adopt(f)
	}
	w.kept = nil
}

// spaceLeft returns the bytes left in the extent for frames of the given kind. The last page is reserved
// for the seal.
func (w *LogWriter) spaceLeft(kind frameKind) int64 {
	if w.cur == nil || w.file == nil || w.cur.folder.isRetired() {
		return 0
	}
	space := w.cur.header.bytes - w.off
	if kind != frameSeal {
		space -= pageBytes
	}
	return space
}

// writeFrame makes one frame durable, in another extent if this one is full or fails.
func (w *LogWriter) writeFrame(kind frameKind, p []byte, total int64) error {
	size := frameBytes(len(p))
	if need := int(pageBytes + size); cap(w.buf) < need {
		w.buf = make([]byte, max(need, min(2*cap(w.buf), pageBytes+frameBytesMax)))
	}
	w.buf = w.buf[:pageBytes+size]
	for tries := 0; ; tries++ {
		// Failed folders are retired, which bounds the retries. Folders that turn out to be full
		// are not.
		if tries > 2*len(w.s.folders) {
			return ErrDiskFull
		}
		if w.spaceLeft(kind) < size {
			if err := w.roll(); err != nil {
				return err
			}
		}
		encodeFrame(w.buf[pageBytes:], kind, p, total, w.cur.header.salt, w.pos)
		again, err := w.try()
		if again {
			continue
		}
		if err == nil {
			w.off += size
			w.pos += size
		}
		return err
	}
}

// establish creates the log's first extent, without frames.
func (w *LogWriter) establish() error {
	w.buf = make([]byte, pageBytes, pageBytes+64<<10)
	for {
		if err := w.roll(); err != nil {
			return err
		}
		again, err := w.try()
		if !again {
			return err
		}
	}
}

// try writes w.buf. If that fails, it reports whether another folder may work.
func (w *LogWriter) try() (again bool, err error) {
	if err = w.write(w.buf); err != nil {
		w.closeFile()
		again = w.cur.folder.failed(err)
	}
	return again, err
}

// write writes b, which is a header page and frames, and syncs. The header is written only at the
// beginning of an extent.
func (w *LogWriter) write(b []byte) error {
	at := w.off
	if w.off == pageBytes {
		at = 0
		w.cur.header.encode(b)
	} else {
		b = b[pageBytes:]
	}
	if _, err := vfs.AppendAt(w.file, b, at); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if w.fresh {
		w.fresh = false
		w.st.mu.Lock()
		w.st.extents = append(w.st.extents, w.cur)
		w.st.mu.Unlock()
	}
	return nil
}

// roll switches to another extent, whose header is written with its first frame. This costs no disk
// access but opening the file. Readers see the previous extent end at its last durable frame,
// whatever else it has.
func (w *LogWriter) roll() error {
	next, err := w.nextSpare()
	if err != nil {
		// Keep the current extent: a shorter frame, or the seal, may still fit.
		return err
	}
	if w.cur != nil && !w.fresh {
		w.prevSeq, w.prevLen = w.cur.header.seq, w.off-pageBytes
	}
	w.dropCurrent()
	file, err := next.folder.fs.Open(next.path())
	if err != nil {
		if next.folder.failed(err) {
			return w.roll()
		}
		w.s.spares.adopt(next)
		return err
	}
	var salt [8]byte
	rand.Read(salt[:])
	w.seq++
	next.header = logHeader{
		state:      logFileUsed,
		generation: next.header.generation + 1,
		bytes:      next.header.bytes,
		log:        w.st.id,
		seq:        w.seq,
		prevSeq:    w.prevSeq,
		prevLen:    w.prevLen,
		start:      w.pos,
		salt:       binary.LittleEndian.Uint64(salt[:]),
		live:       w.live,
	}
	w.cur, w.file, w.off, w.fresh = next, file, pageBytes, true
	return nil
}

func (w *LogWriter) nextSpare() (*logFile, error) {
	for len(w.kept) > 0 {
		f := w.kept[0]
		w.kept = w.kept[1:]
		if !f.folder.isRetired() {
			return f, nil
		}
	}
	return w.s.spares.take(false)
}

// dropCurrent closes the extent, and removes it if it never became part of the log.
func (w *LogWriter) dropCurrent() {
	w.closeFile()
	if w.cur != nil && w.fresh {
		if err := w.cur.remove(); err != nil {
			w.st.markOrphan(err)
		}
	}
	w.cur = nil
}

// release releases the extents before pos. It first records in the newest extent which ones are
// live, so that a gap among the old ones is not taken for damage.
func (w *LogWriter) release(pos int64) {
	if w.s.begin(context.Background()) != nil {
		return
	}
	defer w.s.end()
	for _, f := range w.unlink(pos) {
		w.s.spares.later(f.folder, func() { w.recycle(f) })
	}
}

// recycle turns a released file into a spare, or removes it.
func (w *LogWriter) recycle(f *logFile) {
	if w.s.begin(context.Background()) != nil {
		return
	}
	defer w.s.end()
	if err := w.s.spares.recycle(w.st, f); err != nil {
		w.st.markOrphan(err)
	}
}

func (w *LogWriter) unlink(pos int64) []*logFile {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.file == nil || w.fresh || w.cur.folder.isRetired() {
		return nil
	}
	w.st.mu.Lock()
	n := 0
	for n+1 < len(w.st.extents) && w.st.extents[n+1].header.start <= pos {
		n++
	}
	w.st.mu.Unlock()
	if n == 0 {
		return nil
	}
	// st.extents changes only under w.mu while there is a writer.
	w.live = w.st.extents[n].header.seq
	h := w.cur.header
	h.generation, h.live = h.generation+1, w.live
	page := w.buf[:pageBytes]
	h.encode(page)
	_, err := w.file.WriteAt(page, 0)
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		// The next append continues in another extent, whose header has the new value of live.
		w.cur.folder.failed(err)
		w.closeFile()
		return nil
	}
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	w.cur.header = h // headers are read under st.mu
	released := slices.Clone(w.st.extents[:n])
	w.st.extents = slices.Delete(w.st.extents, 0, n)
	return released
}
