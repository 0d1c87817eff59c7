package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/steledb/stele/internal/vfs"
)

// Problem is a defect found by Verify.
type Problem struct {
	File   string // path
	Offset int64  // in the file, of the first byte that is in doubt
	Err    error  // often a *CorruptError
}

// String returns the place and the defect in one line.
func (p Problem) String() string {
	var c *CorruptError
	if errors.As(p.Err, &c) && c.File == p.File && c.Offset == p.Offset {
		return p.Err.Error()
	}
	return fmt.Sprintf("%s at offset %d: %v", p.File, p.Offset, p.Err)
}

// Verify reads every file of the store, checks every checksum, and checks that names match
// contents. It reports each problem once, with one call of report at a time, and continues. A log
// may be appended to meanwhile: it is verified up to the end acknowledged when its check starts.
//
// Torn tails, temporary files of unsealed blobs, spare log files, and bytes after the end of a
// log's file are not problems. The error is that of ctx, or ErrClosed; problems are not errors.
func (s *Store) Verify(ctx context.Context, report func(Problem)) error {
	if err := s.beginReadOnly(ctx); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	s.end() // Close need not wait for the reads
	v := &verifier{report: report, buf: make([]byte, 0, ChunkBytes)}
	s.localLogs.mu.Lock()
	for _, d := range s.localLogs.mu.damaged {
		v.problem(d.File, d.Offset, d)
	}
	s.localLogs.mu.Unlock()
	for _, f := range s.folders {
		if f.unreadable {
			v.problem(f.path, 0, f.retiredError())
		}
		v.encryption(f)
		v.blobs(ctx, f)
		v.holders(f)
		v.logFiles(f)
	}
	states := s.logStates()
	slices.SortFunc(states, func(a, b *logState) int { return bytes.Compare(a.id[:], b.id[:]) })
	for _, st := range states {
		v.log(ctx, st)
	}
	v.logReplicas(ctx, s.logReplicas)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

type verifier struct {
	pace   func(bytes int64) error // may be nil
	report func(Problem)
	buf    []byte // for payloads and frames
}

func (v *verifier) problem(file string, offset int64, err error) {
	var c *CorruptError
	if errors.As(err, &c) {
		file, offset = c.File, c.Offset
	}
	v.report(Problem{File: file, Offset: offset, Err: err})
}

// encryption verifies both copies of a folder's data keys.
func (v *verifier) encryption(f *folder) {
	path := f.encryptionPath()
	a, b, err := readKeyCopies(f.fs, path)
	if f.unreadable || errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		v.problem(path, 0, err)
		return
	}
	for i, page := range [][]byte{a, b} {
		if _, err := decodeKeyCopy(page, path, int64(i*pageBytes)); err != nil {
			v.problem(path, 0, err)
		}
	}
}

// names lists a subfolder. It reads the directory instead of the index in order to find unknown
// files too.
func (v *verifier) names(f *folder, sub string) []string {
	if f.unreadable {
		return nil
	}
	dir := filepath.Join(f.path, sub)
	names, err := f.fs.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.problem(dir, 0, err)
	}
	return names
}

func (v *verifier) blobs(ctx context.Context, f *folder) {
	for _, name := range v.names(f, blobsDir) {
		if ctx.Err() != nil {
			return
		}
		path := f.blobPath(name)
		if filepath.Ext(name) == tmpSuffix {
			continue // being written, or an orphan in a read-only store
		}
		base, _, _, quarantined := parseQuarantineName(name)
		if !quarantined {
			base = name
		}
		id, of, ok := parseExtentName(base)
		if !ok {
			v.problem(path, 0, errors.New("unknown file"))
			continue
		}
		if err := v.extent(ctx, f.fs, path, id, of); err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.problem(path, 0, err)
		}
	}
}

// extent verifies the file of a sealed extent and reports each corrupt chunk.
func (v *verifier) extent(ctx context.Context, fsys vfs.FS, path string, id ExtentID, of int) error {
	x, err := openExtentFile(fsys, path)
	if err != nil {
		return err
	}
	defer x.file.Close()
	if err := vfs.VerifyHeader(x.file); err != nil {
		v.problem(path, 0, asCorrupt(err))
	}
	page := v.buf[:pageBytes]
	if _, err := readFull(x.file, page, 0); err != nil {
		return readError(err, path, 0)
	}
	head, err := decodeHeader(page, path)
	if err != nil {
		v.problem(path, 0, err)
	} else if head.blob != x.meta.blob || head.index != x.meta.index || head.offset != x.meta.offset {
		v.problem(path, 0, &CorruptError{File: path, Reason: "header and footer are of different extents"})
	}
	if x.meta.blob != id.Blob || x.meta.index != id.Index || x.meta.last != id.isLast(of) {
		at := pageBytes + x.length + 4*chunkCount(x.length)
		v.problem(path, at, &CorruptError{File: path, Offset: at, Reason: fmt.Sprintf("name does not match extent %d of blob %s", x.meta.index, x.meta.blob)})
	}
	for i := range x.chunks {
		if err := ctx.Err(); err != nil {
			return nil
		}
		at := int64(i) * ChunkBytes
		chunk := v.buf[:min(ChunkBytes, x.length-at)]
		if v.pace != nil {
			if err := v.pace(int64(len(chunk))); err != nil {
				return err
			}
		}
		if err := x.readChunks(chunk, int64(i)); err != nil {
			v.problem(path, pageBytes+at, err)
		}
	}
	return nil
}

// holders verifies a folder's holder lists, up to the acknowledged end.
func (v *verifier) holders(f *folder) {
	if f.unreadable {
		return
	}
	f.holders.io.Lock()
	size := f.holders.size
	f.holders.io.Unlock()
	path := f.holdersPath()
	content, err := readAll(f.fs, path)
	if err != nil {
		if size > 0 || !errors.Is(err, fs.ErrNotExist) {
			v.problem(path, 0, err)
		}
		return
	}
	end, damage := scanHolders(content, path, func(ExtentID, Holders) {})
	for _, d := range damage {
		v.problem(path, d.Offset, d)
	}
	if end < size {
		v.problem(path, end, &CorruptError{File: path, Offset: end, Reason: "invalid frame of holder lists"})
	}
}

// VerifyExtent reads a whole extent and checks everything in it. It returns the first
// *CorruptError, or ErrNoExtent.
func (s *Store) VerifyExtent(ctx context.Context, id ExtentID) error {
	return s.ScrubExtent(ctx, id, nil)
}

// ScrubExtent is VerifyExtent at a limited rate: it calls pace with the length of each chunk before
// it reads the chunk, and stops with the error of pace if there is one.
func (s *Store) ScrubExtent(ctx context.Context, id ExtentID, pace func(bytes int64) error) error {
	if err := s.beginReadOnly(ctx); err != nil {
		return fmt.Errorf("verify extent %s: %w", id, err)
	}
	s.end() // Close need not wait for the reads
	s.extents.mu.Lock()
	parts := slices.Clone(s.partsLocked(id))
	s.extents.mu.Unlock()
	err := s.withUnreadable(ErrNoExtent)
	for i := range parts {
		p := &parts[i]
		var first error
		v := &verifier{pace: pace, buf: make([]byte, 0, ChunkBytes), report: func(p Problem) { first = cmp.Or(first, p.Err) }}
		err = v.extent(ctx, p.folder.fs, p.path(id.Blob), id, p.of)
		if errors.Is(err, fs.ErrNotExist) {
			err = s.missingError(id)
		}
		if err = cmp.Or(err, first, ctx.Err()); err == nil {
			return nil
		}
	}
	return fmt.Errorf("verify extent %s: %w", id, err)
}

// logFiles verifies the header pages of a folder's log files. Open found the files without a
// readable header.
func (v *verifier) logFiles(f *folder) {
	for _, name := range v.names(f, logsDir) {
		path := f.logPath(name)
		if filepath.Ext(name) == tmpSuffix {
			continue
		}
		if filepath.Ext(name) != logSuffix {
			v.problem(path, 0, errors.New("unknown file"))
			continue
		}
		err := v.logHeader(f.fs, path)
		if err != nil {
			err = v.logHeader(f.fs, path) // a concurrent write may have changed it
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.problem(path, 0, err)
		}
	}
}

func (v *verifier) logHeader(fsys vfs.FS, path string) error {
	file, err := fsys.OpenRead(path)
	if errors.As(err, new(*vfs.DamageError)) {
		return nil // reported by Open
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := vfs.VerifyHeader(file); err != nil {
		return asCorrupt(err)
	}
	page := v.buf[:pageBytes]
	if _, err := readFull(file, page, 0); err != nil {
		return nil // shorter than a page; reported by Open
	}
	_, errA := decodeLogHeaderCopy(page, path, 0)
	_, errB := decodeLogHeaderCopy(page, path, logHeaderCopy)
	if errA != nil && errB != nil {
		return nil // reported by Open
	}
	for _, gap := range [][2]int{{logHeaderBytes, logHeaderCopy}, {logHeaderCopy + logHeaderBytes, pageBytes}} {
		if i := slices.IndexFunc(page[gap[0]:gap[1]], func(b byte) bool { return b != 0 }); i >= 0 {
			return &CorruptError{File: path, Offset: int64(gap[0] + i), Reason: "unused part of the header page is not zero"}
		}
	}
	return cmp.Or(errA, errB)
}

// log verifies the frames of a log.
func (v *verifier) log(ctx context.Context, st *logState) {
	end := int64(-1)
	st.mu.Lock()
	w := st.writer
	st.mu.Unlock()
	if w != nil {
		end = w.acknowledged()
	}
	chain, err := st.chain()
	if errors.Is(err, ErrNoLog) {
		return
	}
	if err != nil {
		v.problem("", 0, err)
		return
	}
	for i, f := range chain {
		if ctx.Err() != nil {
			return
		}
		limit := int64(-1)
		if i+1 < len(chain) {
			limit = pageBytes + chain[i+1].header.prevLen
		} else if end >= 0 {
			limit = pageBytes + end - f.header.start
		}
		if err := v.logExtent(f, limit); err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.problem(f.path(), 0, err)
		}
	}
}

// acknowledged returns the position after the last durable frame, or -1 if the writer has ended.
func (w *LogWriter) acknowledged() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return -1
	}
	return w.pos
}

// logExtent verifies the frames up to file offset limit. If limit is -1, it searches for the end.
func (v *verifier) logExtent(f *logFile, limit int64) error {
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return err
	}
	defer file.Close()
	if int64(cap(v.buf)) < min(2*frameBytesMax, f.header.bytes) {
		v.buf = newScanBuffer(f.header.bytes)
	}
	if limit < 0 {
		scan := newFrameScanner(file, f, f.header.bytes, v.buf)
		tail, err := scan.findTail()
		if tail.damage != nil {
			return tail.damage
		}
		return err
	}
	scan := newFrameScanner(file, f, limit, v.buf)
	for scan.off < limit {
		if _, err := scan.next(); err != nil {
			return err
		}
	}
	return nil
}
