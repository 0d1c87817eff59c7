package local

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

// LogWriter appends to a log. Its methods may be called from several goroutines;
// Appends then take turns. Its memory is one buffer of the size of the largest
// frame so far, at most 1 MiB and a page.
type LogWriter struct {
	s  *Store
	st *logState

	// mu guards what follows. Held across I/O: one append at a time. Taken
	// after Store.running and logState.opening, before logState.mu.
	mu  sync.Mutex
	err error // sticky
	pos int64 // after the last frame that is durable

	// The extent appended to; nil before the first. While it is fresh it is not
	// part of the log yet.
	cur   *logFile
	file  vfs.File
	off   int64 // in the file, of the next frame
	fresh bool

	seq  uint64 // last one given to an extent
	live uint64
	// prev is the extent before cur: the last one that holds acknowledged frames.
	prevSeq uint64
	prevLen int64

	kept []*logFile // spares taken for a payload that is under way
	buf  []byte     // a page for a header, then a frame
}

// CreateLog begins a log, durably, and opens it for appending. Its first position is
// 0. ErrLogExists if the store holds a log of that ID, written or not: who
// continues after a crash reads the old log and begins another. ErrDiskFull,
// ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *Store) CreateLog(ctx context.Context, id ID) (*LogWriter, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("create log %s: %w", id, err)
	}
	defer s.end()
	s.spares.start()
	st := s.lockLog(id, true)
	defer s.unlockLog(st)
	st.mu.Lock()
	exists := len(st.extents) > 0 || st.leftover
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

// Append adds p to the log, keeps nothing of it, and returns the position after it once it is
// durable. A folder that fails is retired and the log goes on in another; Append
// then only takes longer.
//
// ErrDiskFull means that no folder has room for the next extent, and
// *TooLargeError that p is over LogPayloadMax: nothing is lost, and the writer can
// be used on. All other errors are sticky: ErrLogFailed (no folder left), ErrFenced,
// ErrSealed, ErrClosed. Whenever there is an error, p may or may not be in the log
// when it is recovered, whole or not at all. Cancelling ctx is heeded only
// before anything is written.
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

// Release tells that nothing before pos will be read again. Extents that lie
// wholly before it are recycled or removed, soon and in the background. It never
// waits, and what cannot be released now is at a later call.
func (w *LogWriter) Release(pos int64) {
	w.st.mu.Lock()
	n := len(w.st.extents)
	some := n > 1 && w.st.extents[1].header.start <= pos
	var newest *folder // in which release writes
	if some {
		newest = w.st.extents[n-1].folder
	}
	w.st.mu.Unlock()
	if some {
		w.s.spares.later(newest, func() { w.release(pos) })
	}
}

// Seal ends the log: it takes no more and can be told from one whose end was
// lost. Errors are those of Append. Sealing a sealed log does nothing.
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

// Close lets go of the log and leaves it unsealed. To OpenLog that is the same
// as a crash.
func (w *LogWriter) Close() error {
	w.st.mu.Lock()
	mine := w.st.writer == w
	w.st.mu.Unlock()
	if mine {
		w.st.stopWriter(ErrClosed)
	}
	return nil
}

// stopWriter makes the log's writer, if there is one, refuse whatever comes, with
// cause, once the append under way is done.
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

// fail makes err sticky unless the writer can go on after it.
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

// frameMax returns the largest frame that fits an extent.
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
	// Take the extents that it needs first: a disk that fills up must not stop
	// it half way.
	defer w.giveBack()
	part := int(w.frameMax() - frameHeaderBytes)
	room := w.room(frameMiddle)
	for left := len(p); left > 0; left -= part {
		need := frameBytes(min(part, left))
		if need > room {
			f, err := w.s.spares.take(false)
			if err != nil {
				return err
			}
			w.kept = append(w.kept, f)
			room = f.header.bytes - 2*pageBytes
		}
		room -= need
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

func (w *LogWriter) giveBack() {
	for _, f := range w.kept {
		w.s.spares.adopt(f)
	}
	w.kept = nil
}

// room returns what is left for frames of the kind in the extent. The last page is
// kept for the seal.
func (w *LogWriter) room(kind frameKind) int64 {
	if w.cur == nil || w.file == nil || w.cur.folder.isRetired() {
		return 0
	}
	room := w.cur.header.bytes - w.off
	if kind != frameSeal {
		room -= pageBytes
	}
	return room
}

// writeFrame makes one frame durable, in another extent if this one is full or fails.
func (w *LogWriter) writeFrame(kind frameKind, p []byte, total int64) error {
	size := frameBytes(len(p))
	if need := int(pageBytes + size); cap(w.buf) < need {
		w.buf = make([]byte, max(need, min(2*cap(w.buf), pageBytes+frameBytesMax)))
	}
	w.buf = w.buf[:pageBytes+size]
	for tries := 0; ; tries++ {
		// Folders that fail are retired, so they run out; those that are full
		// although there seemed to be room do not.
		if tries > 2*len(w.s.folders) {
			return ErrDiskFull
		}
		if w.room(kind) < size {
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

// establish gives the log its first extent, with no frame in it.
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

// try writes w.buf and tells, when that fails, whether to try another folder.
func (w *LogWriter) try() (again bool, err error) {
	if err = w.write(w.buf); err != nil {
		w.closeFile()
		again = w.cur.folder.failed(err)
	}
	return again, err
}

// write writes a page for the header and what follows it, and syncs: header and all at
// the beginning of an extent, else only what follows.
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

// roll goes on to another extent, which gets its header with the first frame: no
// disk access of its own but opening the file. The extent before it ends, for
// whoever reads the log, at the last durable frame, whatever else it may hold.
func (w *LogWriter) roll() error {
	next, err := w.nextSpare()
	if err != nil {
		// The present extent stays: something shorter, or the seal, may fit yet.
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
			w.st.leave(err)
		}
	}
	w.cur = nil
}

// release lets go of the extents before pos. The newest extent is told first
// which ones still count, so that a hole among the old ones means no damage.
func (w *LogWriter) release(pos int64) {
	if w.s.begin(context.Background()) != nil {
		return
	}
	defer w.s.end()
	for _, f := range w.unlink(pos) {
		w.s.spares.later(f.folder, func() { w.recycle(f) })
	}
}

// recycle makes a spare of a file that the log has released, or removes it.
func (w *LogWriter) recycle(f *logFile) {
	if w.s.begin(context.Background()) != nil {
		return
	}
	defer w.s.end()
	if err := w.s.spares.recycle(w.st, f); err != nil {
		w.st.leave(err)
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
		// The next append goes on elsewhere, and its header tells what this one
		// was to tell.
		w.cur.folder.failed(err)
		w.closeFile()
		return nil
	}
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	w.cur.header = h // an extent of the log is read under st.mu too
	gone := slices.Clone(w.st.extents[:n])
	w.st.extents = slices.Delete(w.st.extents, 0, n)
	return gone
}
