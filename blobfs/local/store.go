package local

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/steledb/stele/internal/vfs"
)

// Store keeps blobs and logs in the data folders of one node. It is safe for concurrent use. Its
// parts share the folders, and each has an index and a lock of its own. Order of the locks:
// quarantine.op, logState.mu, then the index of a part; no two indexes are locked at once.
type Store struct {
	*disks       // the folders, their space, and the calls that use them
	*alarms      // what stops garbage collection
	*extents     // sealed extents of blobs
	*quarantine  // extents that appear to be garbage
	*localLogs   // logs on this node alone
	*logReplicas // replicas of logs on several nodes
}

// Open opens the data folders, creates missing ones, locks them, and removes the temporary files of
// unsealed blobs. A folder that cannot be used is retired and the others serve. Open fails if none
// is usable, if another process has a folder open (vfs.ErrLocked), or if cfg is invalid.
func Open(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open block store: %w", err)
	}
	s := newStore(cfg.withDefaults())
	if err := s.openFolders(); err != nil {
		for _, f := range s.folders {
			f.spaceFreer.close()
			f.unlock()
		}
		return nil, fmt.Errorf("open block store: %w", err)
	}
	s.reviveSplit()
	s.arrangeLogs()
	s.spares.removeOutdated()
	return s, nil
}

func newStore(cfg Config) *Store {
	d := newDisks(cfg)
	a := &alarms{disks: d}
	x := newExtents(d, a)
	r := newLogReplicas(d, a)
	return &Store{disks: d, alarms: a, extents: x, quarantine: x.quarantine, localLogs: newLocalLogs(d, r), logReplicas: r}
}

func (s *Store) openFolders() error {
	for _, path := range s.cfg.Folders {
		f := &folder{path: filepath.Clean(path), fs: s.cfg.FS, logger: s.cfg.Logger, ampleBytes: s.cfg.ReserveBytes + ampleExtents*s.cfg.ExtentBytes, spaceFreer: newSpaceFreer()}
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
	s.logReplicas.close()
	for _, f := range s.folders {
		f.spaceFreer.close()
	}
	for _, st := range s.logStates() {
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
