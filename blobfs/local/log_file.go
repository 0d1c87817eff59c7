package local

// Logs on this node alone, for tests and offline verification. The logs of a running node are replicas:
// log_replica*.go.

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

// logFile is one file of a log, or a spare.
type logFile struct {
	folder *folder
	name   string // without the path
	header logHeader
	// readers is the number of open readers of the file. While it is not zero, the file must not be
	// overwritten. Guarded by logState.mu of its log.
	readers int
	// usedUntil is when a spare with old content was released or found by Open; zero if the file
	// has only zeros. Guarded by sparePool.mu once the file is in the pool.
	usedUntil time.Time
}

func (f *logFile) path() string { return f.folder.logPath(f.name) }

// logState is the store's state of a log.
type logState struct {
	id ID
	s  *localLogs
	// opening serializes OpenLog, CreateLog and RemoveLog of one log. Held across I/O. Order:
	// opening, LogWriter.mu, mu.
	opening sync.Mutex
	// mu guards the fields below. Never held across I/O.
	mu      sync.Mutex
	extents []*logFile // by seq
	writer  *LogWriter // nil if none
	// hasOrphan means that a file of the log which is not one of its extents is left in a retired
	// folder. When the log is removed, its newest extent must stay as a record of the removal, and
	// the ID must not be used again.
	hasOrphan bool
}

// localLogs are the logs on this node alone.
type localLogs struct {
	*disks
	replicas *logReplicas

	// mu guards the fields in it. Never held across I/O. Order: logState.mu, then localLogs.mu.
	mu struct {
		sync.Mutex
		logs map[ID]*logState
		// damaged has the log files without a readable header. Each may contain the end of any log.
		damaged []*CorruptError
	}
}

func newLocalLogs(d *disks, replicas *logReplicas) *localLogs {
	s := &localLogs{disks: d, replicas: replicas}
	s.mu.logs = map[ID]*logState{}
	return s
}

// LogInfo is the store's state of a log, without reading it.
type LogInfo struct {
	ID ID
	// Start is the first position from which the log can be read.
	Start   int64
	Extents int
	// Bytes is the size of the log's files.
	Bytes int64
	// Writing means that the log has an open LogWriter.
	Writing bool
}

// Logs lists the logs, by ID.
func (s *localLogs) Logs() []LogInfo {
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

func (s *localLogs) logStates() []*logState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]*logState, 0, len(s.mu.logs))
	for _, st := range s.mu.logs {
		states = append(states, st)
	}
	return states
}

// lockLog returns the state of a log with its opening lock held, or nil if there is no such log.
// With add it creates an entry, which unlockLog removes if it stays empty.
func (s *localLogs) lockLog(id ID, add bool) *logState {
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

func (s *localLogs) addLogLocked(id ID) *logState {
	st := &logState{id: id, s: s}
	s.mu.logs[id] = st
	return st
}

func (s *localLogs) unlockLog(st *logState) {
	st.mu.Lock()
	empty := len(st.extents) == 0 && !st.hasOrphan
	st.mu.Unlock()
	if empty {
		s.mu.Lock()
		delete(s.mu.logs, st.id)
		s.mu.Unlock()
	}
	st.opening.Unlock()
}

// loadLogFiles reads the headers of a folder's log files.
func (s *localLogs) loadLogFiles(f *folder, names []string) error {
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
			s.replicas.adopt(file)
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
		return asCorrupt(err)
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
		return &CorruptError{File: f.path(), Offset: min(size, f.header.bytes), Reason: fmt.Sprintf("log file of %[2]d bytes, want %[1]d", f.header.bytes, size)}
	}
	return nil
}

// arrangeLogs determines, when the store is opened, which extents belong to which log. It removes
// those that the log's newest extent records as released or replaced. If an extent is missing, it
// changes nothing.
func (s *localLogs) arrangeLogs() {
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
		if len(chain) == 0 && !st.hasOrphan {
			delete(s.mu.logs, st.id)
		}
	}
}

// clearLog removes files with the log's id that are not among its extents.
func (s *localLogs) clearLog(st *logState, all []*logFile) {
	// The newest header records this. The header that was read may be only in the page cache, so it
	// is written again.
	doubted := []*logFile{all[len(all)-1]}
	if len(st.extents) == 0 {
		// The log was removed, and some of its files may have become spares.
		doubted = append(doubted, s.spares.ready...)
	}
	for _, f := range doubted {
		if err := f.writeHeader(f.header); err != nil {
			st.markOrphan(err)
			return
		}
	}
	// In order of number, so that the newest extent of a removed log goes last.
	for _, f := range all {
		if slices.Contains(st.extents, f) {
			continue
		}
		if err := f.remove(); err != nil {
			st.markOrphan(err)
			return
		}
	}
}

// chainOf returns the extents of a log, in order, from all files with the log's id, sorted by seq.
// The last one is the newest, and each names its predecessor. The others are obsolete: released, or
// started on a folder that failed at once.
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
	// want is now the first missing extent.
	if want != 0 && want >= tip.live {
		return nil, &CorruptError{File: extents[len(extents)-1].path(), Reason: fmt.Sprintf("extent %d of log %s is missing", want, tip.log)}
	}
	for i := 1; i < len(chain); i++ {
		a, b := chain[i-1].header, chain[i].header
		if a.start+b.prevLen != b.start || b.prevLen > a.bytes-2*pageBytes {
			return nil, &CorruptError{File: chain[i].path(), Reason: fmt.Sprintf("extent %d of log %s does not continue extent %d", b.seq, b.log, a.seq)}
		}
	}
	return chain, nil
}

// remove deletes the file durably. If the file reappeared after a power loss, it could look like
// the remains of a damaged log. An error has been passed to failed.
func (f *logFile) remove() error {
	if err := f.folder.remove(f.path()); err != nil {
		return err
	}
	return f.folder.syncLogNames()
}

// writeHeader durably makes h the file's header. An error has been passed to failed.
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

// RemoveLog removes a log and fences its writer. Open readers continue to work. ErrNoLog,
// ErrReadOnly, ErrClosed; ErrDiskFull or ErrFolderRetired if the removal cannot be recorded, and
// then the log still exists.
func (s *localLogs) RemoveLog(ctx context.Context, id ID) error {
	if err := s.removeLog(ctx, id); err != nil {
		return fmt.Errorf("remove log %s: %w", id, err)
	}
	return nil
}

func (s *localLogs) removeLog(ctx context.Context, id ID) error {
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
	// The newest extent, which records the removal, goes last: a crash in between must not leave a
	// log with a hole.
	for i, f := range extents {
		if i == len(extents)-1 && st.leavesOrphan() {
			break
		}
		if err := s.spares.recycle(st, f); err != nil {
			st.markOrphan(err)
			break
		}
	}
	return nil
}

// markOrphan records that a file of the log could not be removed.
func (st *logState) markOrphan(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.hasOrphan = true
	st.s.cfg.Logger.Warn("log file not removed until the store is reopened", "log", st.id, "err", err)
}

func (st *logState) leavesOrphan() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.hasOrphan
}

// markRemoved records in the newest extent that all extents are released. If its folder is retired,
// it does so in a new extent.
func (s *localLogs) markRemoved(st *logState) error {
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
