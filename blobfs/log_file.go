package blobfs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
)

// logFile is one file of a log, or a spare one.
type logFile struct {
	folder *folder
	name   string // without the path
	header logHeader
	// readers counts the open readers of the file: while there are any it must
	// not be overwritten. Guarded by logState.mu of the log it belongs to.
	readers int
}

func (f *logFile) path() string { return f.folder.logPath(f.name) }

// logState is what the store knows of a log.
type logState struct {
	id ID
	s  *Store
	// opening makes OpenLog, CreateLog and RemoveLog of one log take turns.
	// Held across I/O. Taken before mu and before the writer's lock.
	opening sync.Mutex
	// mu guards what follows. Never held across I/O. Taken after the writer's lock.
	mu      sync.Mutex
	extents []*logFile // by seq
	writer  *LogWriter // nil if none
}

// LogInfo is what the store knows of a log without reading it.
type LogInfo struct {
	ID ID
	// Start is the position from which the log can still be read.
	Start   int64
	Extents int
	// Bytes is the size of the log's files.
	Bytes int64
	// Writing tells that a LogWriter has the log.
	Writing bool
}

// Logs lists the logs, by ID.
func (s *Store) Logs() []LogInfo {
	var infos []LogInfo
	for _, st := range s.logStates() {
		st.mu.Lock()
		info := LogInfo{ID: st.id, Extents: len(st.extents), Writing: st.writer != nil}
		for i, f := range st.extents {
			if i == 0 {
				info.Start = f.header.start
			}
			info.Bytes += f.header.bytes
		}
		st.mu.Unlock()
		if info.Extents > 0 {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b LogInfo) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return infos
}

func (s *Store) logStates() []*logState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]*logState, 0, len(s.mu.logs))
	for _, st := range s.mu.logs {
		states = append(states, st)
	}
	return states
}

// logState returns what is known of a log, and makes an entry if told to.
func (s *Store) logState(id ID, add bool) *logState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.mu.logs[id]
	if st == nil && add {
		st = &logState{id: id, s: s}
		s.mu.logs[id] = st
	}
	return st
}

// loadLogFiles reads the headers of a folder's log files.
func (s *Store) loadLogFiles(f *folder, names []string) error {
	for _, name := range names {
		if !strings.HasSuffix(name, logSuffix) {
			continue
		}
		file := &logFile{folder: f, name: name}
		err := file.readHeader()
		var damage *CorruptError
		if errors.As(err, &damage) {
			s.cfg.Logger.Error("log file damaged", "err", err)
			s.mu.damaged = append(s.mu.damaged, damage)
			continue
		}
		if err != nil {
			return err
		}
		if file.header.state == logFileSpare {
			s.spares.adopt(file)
			continue
		}
		st := s.logState(file.header.log, true)
		st.extents = append(st.extents, file)
	}
	return nil
}

func (f *logFile) readHeader() error {
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return err
	}
	defer file.Close()
	page := make([]byte, pageBytes)
	if _, err := readFull(file, page, 0); err != nil {
		return readError(err, f.path(), 0)
	}
	if f.header, err = decodeLogHeader(page, f.path()); err != nil {
		return err
	}
	size, err := file.Size()
	if err != nil {
		return err
	}
	if size != f.header.bytes {
		return &CorruptError{File: f.path(), Offset: min(size, f.header.bytes), Reason: fmt.Sprintf("log extent of %d bytes has a file of %d", f.header.bytes, size)}
	}
	return nil
}

// arrangeLogs finds out, when the store is opened, which extents belong to
// which log, and gives up those that the log's newest extent says are released or
// replaced. Where an extent is missing nothing is touched.
func (s *Store) arrangeLogs() {
	for _, st := range s.logStates() {
		slices.SortFunc(st.extents, func(a, b *logFile) int { return cmp.Compare(a.header.seq, b.header.seq) })
		chain, err := chainOf(st.extents)
		if err != nil {
			s.cfg.Logger.Error("log damaged", "log", st.id, "err", err)
			continue
		}
		garbage := slices.DeleteFunc(slices.Clone(st.extents), func(f *logFile) bool { return slices.Contains(chain, f) })
		st.extents = chain
		if len(chain) == 0 {
			delete(s.mu.logs, st.id)
		}
		if s.cfg.ReadOnly {
			continue
		}
		for _, f := range garbage {
			f.remove()
		}
	}
}

// chainOf returns the extents that make up a log, in order, given all that claim
// to be its own, by seq. The newest is the last one; each names the one before it.
// Others are leftovers: released, or begun on a folder that failed at once.
func chainOf(extents []*logFile) ([]*logFile, error) {
	if len(extents) == 0 {
		return nil, nil
	}
	tip := extents[len(extents)-1].header
	if tip.live == math.MaxUint64 {
		return nil, nil
	}
	var chain []*logFile
	want := tip.seq
	for _, f := range slices.Backward(extents) {
		h := f.header
		if h.seq > want || want < tip.live {
			continue
		}
		if h.seq < want {
			break
		}
		chain = append(chain, f)
		want = h.prevSeq
	}
	slices.Reverse(chain)
	// want is now the first extent that is not there.
	if want != 0 && want >= tip.live {
		return nil, &CorruptError{File: extents[len(extents)-1].path(), Reason: fmt.Sprintf("extent %d of log %s is missing", want, tip.log)}
	}
	for i := 1; i < len(chain); i++ {
		a, b := chain[i-1].header, chain[i].header
		if a.start+b.prevLen != b.start || b.prevLen > a.bytes-2*pageBytes {
			return nil, &CorruptError{File: chain[i].path(), Reason: fmt.Sprintf("extent %d of log %s does not join extent %d", b.seq, b.log, a.seq)}
		}
	}
	return chain, nil
}

// remove deletes the file if its folder still works.
func (f *logFile) remove() {
	if f.folder.isRetired() {
		return
	}
	if err := f.folder.fs.Remove(f.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.folder.failed(err)
	}
}

// writeHeader makes h the file's header, durably. An error has been judged.
func (f *logFile) writeHeader(h logHeader) error {
	if f.folder.isRetired() {
		return f.folder.retiredError()
	}
	file, err := f.folder.fs.Open(f.path())
	if err != nil {
		f.folder.failed(err)
		return err
	}
	defer file.Close()
	page := make([]byte, pageBytes)
	h.encode(page)
	if _, err = file.WriteAt(page, 0); err == nil {
		err = file.Sync()
	}
	if err != nil {
		f.folder.failed(err)
		return err
	}
	f.header = h
	return nil
}

// RemoveLog removes a log, its writer being fenced. Readers that have it open
// go on reading. ErrNoLog, ErrReadOnly, ErrClosed. Extents on retired folders are
// left behind; such a log may be listed again when the store is next opened.
func (s *Store) RemoveLog(ctx context.Context, id ID) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("remove log %s: %w", id, err)
	}
	defer s.end()
	st := s.logState(id, false)
	if st == nil {
		return fmt.Errorf("remove log %s: %w", id, ErrNoLog)
	}
	st.opening.Lock()
	defer st.opening.Unlock()
	st.stopWriter(ErrFenced)
	st.mu.Lock()
	extents := st.extents
	st.extents = nil
	st.mu.Unlock()
	if len(extents) == 0 {
		return fmt.Errorf("remove log %s: %w", id, ErrNoLog)
	}
	s.mu.Lock()
	delete(s.mu.logs, id)
	s.mu.Unlock()

	// The newest extent is told first that no other counts, and goes last, so
	// that a crash in between does not leave a log with a hole.
	tip := extents[len(extents)-1]
	h := tip.header
	h.generation, h.live = h.generation+1, math.MaxUint64
	_ = tip.writeHeader(h) // its folder is retired then, and the rest goes all the same
	synced := map[*folder]bool{}
	for _, f := range extents[:len(extents)-1] {
		s.spares.recycle(st, f)
		synced[f.folder] = true
	}
	for f := range synced {
		_ = f.syncDir(logsDir) // retires the folder
	}
	s.spares.recycle(st, tip)
	return nil
}
