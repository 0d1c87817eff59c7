package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"unique"

	"github.com/steledb/stele/internal/vfs"
)

// holdersFile is the name of a folder's file of holder lists.
const holdersFile = "holders"

// holdersSlack is how many bytes of obsolete lists the file may have regardless of its size. Beyond
// that, the file is rewritten when more than half of it is obsolete.
const holdersSlack = 1 << 20

// holderList is a holder list in the index. It takes 16 bytes: equal node lists are shared, and
// most extents have the same few.
type holderList struct {
	epoch uint64
	nodes unique.Handle[string] // as in the file; the zero Handle if epoch is 0
}

func newHolderList(h Holders) holderList {
	if h.Epoch == 0 {
		return holderList{}
	}
	return holderList{epoch: h.Epoch, nodes: unique.Make(string(appendNodes(nil, h.Nodes)))}
}

// list is the inverse of newHolderList.
func (l holderList) list() Holders {
	if l.epoch == 0 {
		return Holders{}
	}
	nodes, _ := splitNodes([]byte(l.nodes.Value()))
	return Holders{Epoch: l.epoch, Nodes: nodes}
}

// recordBytes returns the size of the list's record in the file.
func (l holderList) recordBytes() int64 {
	if l.epoch == 0 {
		return 0
	}
	return holderRecordBytes + int64(len(l.nodes.Value()))
}

// holderLog is a folder's file of holder lists. Lists of the extents in the folder are appended;
// the one with the highest epoch is current. Concurrent appends share a frame and a sync.
type holderLog struct {
	folder *folder
	// keep reports whether an extent's list is still needed.
	keep func(ExtentID) bool

	// mu guards the fields up to io. Never held across I/O.
	mu   sync.Mutex
	next *holderBatch // being filled
	dead int64        // bytes of obsolete records

	// io is held while writing, and guards the fields below. Order: io, then mu.
	io   sync.Mutex
	file vfs.File // nil until the first append, and when closed
	size int64
}

// holderBatch is the content of one frame.
type holderBatch struct {
	frame   []byte
	n       int
	written bool
	err     error
}

func (f *folder) holdersPath() string { return filepath.Join(f.path, holdersFile) }

// append adds a list durably. An error has not been passed to failed, unless the folder is retired.
func (l *holderLog) append(id ExtentID, h Holders) error {
	l.mu.Lock()
	b := l.next
	if b == nil {
		b = &holderBatch{frame: make([]byte, holderFrameBytes, 256)}
		l.next = b
	}
	b.frame = appendHolderRecord(b.frame, id, h)
	b.n++
	l.mu.Unlock()

	l.io.Lock()
	defer l.io.Unlock()
	if b.written {
		return b.err
	}
	l.mu.Lock()
	l.next = nil
	l.mu.Unlock()
	b.written = true
	if l.folder.isRetired() {
		b.err = l.folder.retiredError()
	} else {
		b.err = l.write(b)
	}
	return b.err
}

// write appends a frame. A frame cut short by a full disk is truncated, so that no part of it
// precedes a later one.
func (l *holderLog) write(b *holderBatch) error {
	if err := l.tidy(); err != nil {
		return err
	}
	if l.file == nil {
		if err := l.openFile(); err != nil {
			return err
		}
	}
	frame := sealHolderFrame(b.frame, b.n, l.size)
	_, err := l.file.WriteAt(frame, l.size)
	if err != nil && vfs.IsDiskFull(err) {
		if errCut := l.file.Truncate(l.size); errCut != nil {
			l.folder.failed(errCut)
		}
	}
	if err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.size += int64(len(frame))
	return nil
}

// openFile opens the file for appending, and creates it if necessary.
func (l *holderLog) openFile() error {
	file, err := l.folder.fs.Open(l.folder.holdersPath())
	if errors.Is(err, fs.ErrNotExist) {
		return l.replace(nil)
	}
	if err != nil {
		return err
	}
	l.file = file
	return nil
}

// replace writes a new file with the given frames and durably replaces the old file.
func (l *holderLog) replace(frames []byte) error {
	f := l.folder
	tmp := f.holdersPath() + tmpSuffix
	if err := f.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.fs.Create(tmp)
	if err != nil {
		return err
	}
	content := append(holderHeader(), frames...)
	if _, err = file.WriteAt(content, 0); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = f.fs.Rename(tmp, f.holdersPath())
	}
	if err == nil {
		err = f.fs.SyncDir(f.path)
	}
	if err != nil {
		file.Close()
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.size = file, int64(len(content))
	return nil
}

// forget counts a list as obsolete.
func (l *holderLog) forget(_ ExtentID, old holderList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead += old.recordBytes()
}

// tidy rewrites the file if most of it is obsolete.
func (l *holderLog) tidy() error {
	l.mu.Lock()
	due := l.dead > holdersSlack && l.dead > l.size/2
	l.mu.Unlock()
	if !due {
		return nil
	}
	content, err := readAll(l.folder.fs, l.folder.holdersPath())
	if err != nil {
		return err
	}
	newest := map[ExtentID]Holders{}
	scanHolders(content, l.folder.holdersPath(), func(id ExtentID, h Holders) {
		if h.Epoch >= newest[id].Epoch {
			newest[id] = h
		}
	})
	var frames []byte
	start := len(holderHeader())
	frame := make([]byte, holderFrameBytes)
	n := 0
	flush := func() {
		if n > 0 {
			frames = append(frames, sealHolderFrame(frame, n, int64(start+len(frames)))...)
			frame, n = frame[:holderFrameBytes], 0
		}
	}
	for id, h := range newest {
		if !l.keep(id) {
			continue
		}
		frame = appendHolderRecord(frame, id, h)
		if n++; len(frame) > 32<<10 {
			flush()
		}
	}
	flush()
	if err := l.replace(frames); err != nil {
		return err
	}
	l.mu.Lock()
	l.dead = 0
	l.mu.Unlock()
	return nil
}

func (l *holderLog) close() error {
	l.io.Lock()
	defer l.io.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// loadHolders loads a folder's lists into the index and truncates a frame that a power loss cut
// short.
func (s *extents) loadHolders(f *folder) error {
	f.holders = &holderLog{folder: f, keep: func(id ExtentID) bool { return s.needsList(id, f) }}
	path := f.holdersPath()
	content, err := readAll(f.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	end, damage := scanHolders(content, path, func(id ExtentID, h Holders) {
		list := newHolderList(h)
		old := list
		for i, parts := 0, s.partsLocked(id); i < len(parts); i++ {
			if p := &parts[i]; p.folder == f && h.Epoch >= p.holders.epoch {
				p.holders, old = list, p.holders
			}
		}
		if q := s.quarantine.quarantinedLocked(id); q != nil {
			for i := range q.parts {
				if p := &q.parts[i]; p.folder == f && h.Epoch >= p.holders.epoch {
					p.holders, old = list, p.holders
				}
			}
		}
		f.holders.dead += old.recordBytes()
	})
	s.mu.Unlock()
	for _, d := range damage {
		f.logger.Warn("holder lists damaged, to be restored from other holders", "err", d)
	}
	f.holders.size = end
	if s.cfg.ReadOnly || end == int64(len(content)) {
		return nil
	}
	if f.holders.file, err = f.fs.Open(path); err != nil {
		return err
	}
	if err := f.holders.file.Truncate(end); err != nil {
		return err
	}
	return f.holders.file.Sync()
}

// needsList reports whether an extent is in the folder, in quarantine, or being written.
func (s *extents) needsList(id ExtentID, f *folder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partsLocked(id) {
		if p.folder == f {
			return true
		}
	}
	return s.mu.writing[id] || s.quarantine.quarantinedLocked(id) != nil
}

func readAll(fsys vfs.FS, path string) ([]byte, error) {
	file, err := fsys.OpenRead(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b[:n], nil
}

// fullError adds ErrDiskFull to an error that means a full disk.
func fullError(err error) error {
	if vfs.IsDiskFull(err) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}
