package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/btree"
	"github.com/steledb/stele/internal/vfs"
)

// Store keeps blobs and logs in the data folders of one node. It is safe for concurrent use.
type Store struct {
	cfg     Config
	folders []*folder
	spares  sparePool
	// replicas are this node's replicas of log extents.
	replicas logReplicas

	quarantine quarantine
	// round is the current round of the sweep. It dates extents and replicas: see SetRound.
	round atomic.Uint64

	// placing guards folder.credit. Never held across I/O.
	placing sync.Mutex

	// running is read-locked by calls that write and locked by Close, so that nothing is written
	// after the folders are unlocked. It is acquired before any other lock.
	running sync.RWMutex
	closed  bool // guarded by running

	// mu guards the indexes in it. Never held across I/O. Order: logState.mu, then Store.mu.
	mu struct {
		sync.Mutex
		blobs *btree.BTreeG[*blob]
		parts int // number of parts in all blobs
		// writing has the extents that are started and not sealed.
		writing map[ExtentID]bool
		logs    map[ID]*logState
		// damaged has the log files without a readable header. Each may contain the end of any log.
		damaged []*CorruptError
		alarm   string // see Alarm
	}
}

// Open opens the data folders, creates missing ones, locks them, and removes the temporary files of
// unsealed blobs. A folder that cannot be used is retired and the others serve. Open fails if none
// is usable, if another process has a folder open (vfs.ErrLocked), or if cfg is invalid.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open block store: %w", err)
	}
	s := &Store{cfg: cfg.withDefaults()}
	s.cfg.Folders = slices.Clone(s.cfg.Folders)
	s.mu.blobs = btree.NewG(32, lessBlob)
	s.mu.writing = map[ExtentID]bool{}
	s.mu.logs = map[ID]*logState{}
	s.quarantine.all = btree.NewG(32, lessQuarantined)
	s.spares.init(s)
	s.replicas.init()
	if err := s.openFolders(); err != nil {
		for _, f := range s.folders {
			f.remover.close()
			f.unlock()
		}
		return nil, fmt.Errorf("open block store: %w", err)
	}
	s.reviveSplit()
	s.arrangeLogs()
	s.spares.removeOutdated()
	return s, nil
}

func (s *Store) openFolders() error {
	for _, path := range s.cfg.Folders {
		f := &folder{path: filepath.Clean(path), fs: s.cfg.FS, logger: s.cfg.Logger, ampleBytes: s.cfg.ReserveBytes + ampleExtents*s.cfg.ExtentBytes, remover: newRemover()}
		s.folders = append(s.folders, f)
		err := s.openFolder(f)
		if errors.Is(err, vfs.ErrLocked) || errors.As(err, new(*EncryptionError)) {
			return fmt.Errorf("data folder %s: %w", f.path, err)
		}
		if err != nil {
			f.unreadable = true
			f.failed(fmt.Errorf("open data folder %s: %w", f.path, asCorrupt(err)))
		}
	}
	var errs []error
	for _, f := range s.folders {
		if !f.unreadable {
			return nil
		}
		errs = append(errs, f.retiredError())
	}
	return errors.Join(errs...)
}

func (s *Store) openFolder(f *folder) error {
	if err := f.prepare(s.cfg.ReadOnly); err != nil {
		return err
	}
	if err := s.openEncryption(f); err != nil {
		return err
	}
	blobNames, err := f.list(blobsDir, s.cfg.ReadOnly)
	if err != nil {
		return err
	}
	if err := s.loadBlobs(f, blobNames); err != nil {
		return err
	}
	if err := s.loadHolders(f); err != nil {
		return err
	}
	s.loadAlarm(f)
	logNames, err := f.list(logsDir, s.cfg.ReadOnly)
	if err != nil {
		return err
	}
	return s.loadLogFiles(f, logNames)
}

// list returns the names in a subfolder and removes its temporary files.
func (f *folder) list(sub string, readOnly bool) ([]string, error) {
	names, err := f.fs.ReadDir(filepath.Join(f.path, sub))
	if err != nil {
		return nil, err
	}
	var kept []string
	for _, name := range names {
		if !strings.HasSuffix(name, tmpSuffix) {
			kept = append(kept, name)
		} else if !readOnly {
			if err := f.fs.Remove(filepath.Join(f.path, sub, name)); err != nil {
				return nil, err
			}
		}
	}
	return kept, nil
}

// Close stops the log writers, waits for calls that write and for the background goroutines, and
// unlocks the folders. Readers stay usable. A second call does nothing.
func (s *Store) Close() error {
	s.running.Lock()
	was := s.closed
	s.closed = true
	s.running.Unlock()
	if was {
		return nil
	}
	s.spares.close()
	s.replicas.close()
	for _, f := range s.folders {
		f.remover.close()
	}
	s.mu.Lock()
	var logs []*logState
	for _, st := range s.mu.logs {
		logs = append(logs, st)
	}
	s.mu.Unlock()
	for _, st := range logs {
		st.stopWriter(ErrClosed)
	}
	var errs []error
	for _, f := range s.folders {
		if f.holders != nil {
			errs = append(errs, f.holders.close())
		}
		errs = append(errs, f.unlock())
	}
	return errors.Join(errs...)
}

// ExtentBytes returns the maximum length of an extent in this store.
func (s *Store) ExtentBytes() int64 { return s.cfg.ExtentBytes }

// Node returns the name of this node in handles.
func (s *Store) Node() string { return s.cfg.Node }

// begin starts a call that writes. If it returns nil, the caller must call end.
func (s *Store) begin(ctx context.Context) error {
	if s.cfg.ReadOnly {
		return ErrReadOnly
	}
	return s.beginReadOnly(ctx)
}

// beginReadOnly is begin for a call that is also allowed in a read-only store.
func (s *Store) beginReadOnly(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.running.RLock()
	if s.closed {
		s.running.RUnlock()
		return ErrClosed
	}
	return nil
}

func (s *Store) end() { s.running.RUnlock() }
