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

// Store keeps blobs and logs in the data folders of one node. It is safe for
// concurrent use.
type Store struct {
	cfg     Config
	folders []*folder
	spares  sparePool
	// replicas are those of logs that are on several nodes.
	replicas logReplicas

	quarantine quarantine
	// round is that of the sweep, which says how old extents and replicas are: see SetRound.
	round atomic.Uint64

	// placing guards folder.credit. Never held across I/O.
	placing sync.Mutex

	// running is read-locked by whatever writes and locked by Close, so that
	// nothing is written once the folders are unlocked. Taken before any other lock.
	running sync.RWMutex
	closed  bool // guarded by running

	// mu guards the indexes in it. Never held across I/O. A logState's lock may
	// be held when mu is taken, not the other way round.
	mu struct {
		sync.Mutex
		blobs *btree.BTreeG[*blob]
		parts int // in all blobs
		// writing are the extents that are begun and not sealed.
		writing map[ExtentID]bool
		logs    map[ID]*logState
		// damaged are log files of which no header can be read: any log may
		// have its end in one.
		damaged []*CorruptError
		alarm   string // see Alarm
	}
}

// Open opens the data folders, makes those that are missing, locks them, and
// removes the leftovers of blobs that were not sealed. A folder that cannot be
// used is retired and the others serve, but Open fails when none is left, when
// a folder is in use by another process (vfs.ErrLocked), or when cfg is not valid.
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
		f := &folder{path: filepath.Clean(path), fs: s.cfg.FS, logger: s.cfg.Logger, plenty: s.cfg.ReserveBytes + plentyExtents*s.cfg.ExtentBytes, remover: newRemover()}
		s.folders = append(s.folders, f)
		err := s.openFolder(f)
		if errors.Is(err, vfs.ErrLocked) || errors.As(err, new(*EncryptionError)) {
			return fmt.Errorf("data folder %s: %w", f.path, err)
		}
		if err != nil {
			f.unreadable = true
			f.failed(fmt.Errorf("open data folder %s: %w", f.path, damaged(err)))
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

// list returns the names in a subfolder and removes the temporary files in it.
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

// Close ends the log writers, waits for calls that write and for the
// background goroutine, and unlocks the folders. Readers stay usable. Closing
// twice does nothing.
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

// ExtentBytes is how long an extent may get here.
func (s *Store) ExtentBytes() int64 { return s.cfg.ExtentBytes }

// Node is the name by which handles call this node.
func (s *Store) Node() string { return s.cfg.Node }

// begin starts a call that writes; end must follow if it returns nil.
func (s *Store) begin(ctx context.Context) error {
	if s.cfg.ReadOnly {
		return ErrReadOnly
	}
	return s.beginReadOnly(ctx)
}

// beginReadOnly is begin for a call that writes only if the store may.
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
