package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// logFile is one file of a log, or a spare one.
type logFile struct {
	folder *folder
	name   string // without the path
	header logHeader
	// readers counts the open readers of the file: while there are any it must
	// not be overwritten. Guarded by logState.mu of the log it belongs to.
	readers int
	// usedUntil is when a spare was given back that was used before, or was found; zero if it has only zeros.
	// Guarded by sparePool.mu once it is there.
	usedUntil time.Time
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
	// leftover tells that a file of the log that is not among its extents is left on a
	// retired folder. When the log is removed its newest extent has to stay,
	// to say so, and the ID must not be used again.
	leftover bool
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

// lockLog returns what is known of a log, nil if nothing is, with its opening lock
// held. With add it makes an entry; unlockLog takes it away again if it stays empty.
func (s *Store) lockLog(id ID, add bool) *logState {
	for {
		s.mu.Lock()
		st := s.mu.logs[id]
		if st == nil && add {
			st = s.addLogLocked(id)
		}
		s.mu.Unlock()
		if st == nil {
			return nil
		}
		st.opening.Lock()
		s.mu.Lock()
		still := s.mu.logs[id] == st
		s.mu.Unlock()
		if still {
			return st
		}
		st.opening.Unlock()
	}
}

func (s *Store) addLogLocked(id ID) *logState {
	st := &logState{id: id, s: s}
	s.mu.logs[id] = st
	return st
}

func (s *Store) unlockLog(st *logState) {
	st.mu.Lock()
	empty := len(st.extents) == 0 && !st.leftover
	st.mu.Unlock()
	if empty {
		s.mu.Lock()
		delete(s.mu.logs, st.id)
		s.mu.Unlock()
	}
	st.opening.Unlock()
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
		if file.header.state == logFileReplica {
			s.replicas.adopt(s, file)
			continue
		}
		st := s.mu.logs[file.header.log]
		if st == nil {
			st = s.addLogLocked(file.header.log)
		}
		st.extents = append(st.extents, file)
	}
	return nil
}

func (f *logFile) readHeader() error {
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return damaged(err)
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
		all := st.extents
		slices.SortFunc(all, func(a, b *logFile) int { return cmp.Compare(a.header.seq, b.header.seq) })
		chain, err := chainOf(all)
		if err != nil {
			s.cfg.Logger.Error("log damaged", "log", st.id, "err", err)
			continue
		}
		st.extents = chain
		if !s.cfg.ReadOnly && len(chain) < len(all) {
			s.clearLog(st, all)
		}
		if len(chain) == 0 && !st.leftover {
			delete(s.mu.logs, st.id)
		}
	}
}

// clearLog removes the files that claim to be extents of a log and are not.
func (s *Store) clearLog(st *logState, all []*logFile) {
	// It is the newest header that says so. What was read of it may be only in
	// the page cache.
	doubted := []*logFile{all[len(all)-1]}
	if len(st.extents) == 0 {
		// The log was removed, and some of its files became spares, perhaps.
		doubted = append(doubted, s.spares.ready...)
	}
	for _, f := range doubted {
		if err := f.writeHeader(f.header); err != nil {
			st.leave(err)
			return
		}
	}
	// By number: of a log that was removed, the newest extent goes last.
	for _, f := range all {
		if slices.Contains(st.extents, f) {
			continue
		}
		if err := f.remove(); err != nil {
			st.leave(err)
			return
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

// remove deletes the file, durably: if it came back after a power loss, it might seem
// to be what is left of a damaged log. An error has been judged.
func (f *logFile) remove() error {
	if err := f.folder.remove(f.path()); err != nil {
		return err
	}
	return f.folder.syncLogNames()
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
// go on reading. ErrNoLog, ErrReadOnly, ErrClosed; ErrDiskFull or ErrFolderRetired
// if the removal cannot be written down, and then the log is still there.
func (s *Store) RemoveLog(ctx context.Context, id ID) error {
	if err := s.removeLog(ctx, id); err != nil {
		return fmt.Errorf("remove log %s: %w", id, err)
	}
	return nil
}

func (s *Store) removeLog(ctx context.Context, id ID) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	st := s.lockLog(id, false)
	if st == nil {
		return ErrNoLog
	}
	defer s.unlockLog(st)
	st.stopWriter(ErrFenced)
	if len(st.extents) == 0 {
		return ErrNoLog
	}
	if err := s.markRemoved(st); err != nil {
		return err
	}
	st.mu.Lock()
	extents := st.extents
	st.extents = nil
	st.mu.Unlock()
	// The newest extent, which says that no other counts, goes last: a crash
	// in between must not leave a log with a hole.
	for i, f := range extents {
		if i == len(extents)-1 && st.leavesFiles() {
			break
		}
		if err := s.spares.recycle(st, f); err != nil {
			st.leave(err)
			break
		}
	}
	return nil
}

// leave notes that a file of the log had to be left where it is.
func (st *logState) leave(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.leftover = true
	st.s.cfg.Logger.Warn("log leaves a file behind until the store is reopened", "log", st.id, "err", err)
}

func (st *logState) leavesFiles() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.leftover
}

// markRemoved writes into the newest extent that none counts any more; if its folder
// is retired, into a newer one.
func (s *Store) markRemoved(st *logState) error {
	const none = math.MaxUint64
	tip := st.extents[len(st.extents)-1]
	h := tip.header
	h.generation, h.live = h.generation+1, none
	if tip.writeHeader(h) == nil {
		return nil
	}
	w := &LogWriter{s: s, st: st, seq: tip.header.seq, live: none}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.closeFile()
	return w.establish()
}
