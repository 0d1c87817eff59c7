package disks

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/internal/stall"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
)

const (
	// probeEvery is the interval of the checks.
	probeEvery = 5 * time.Second
	// stalledAfter is how long a disk may take to answer. Busy disks take seconds.
	stalledAfter = 30 * time.Second
	// probeFile is written in each data directory for a check.
	probeFile = "alive"
)

// A StalledError means that a disk did not answer for so long that the node stopped.
type StalledError struct {
	Folder string
	After  time.Duration
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("the disk of %s has not answered for %v", e.Folder, e.After)
}

// A FailedError means that all disks of a node failed, so that it cannot store anything and stopped. What it had acknowledged is on the
// other replicas, or still on its disks.
type FailedError struct {
	Folders []string
	Cause   error // of the first folder
}

func (e *FailedError) Error() string {
	what := "all data folders have failed: "
	if len(e.Folders) == 1 {
		what = "the only data folder has failed: "
	}
	return what + strings.Join(e.Folders, ", ") + ": " + e.Cause.Error() + "; check or replace the disks, then start the node again"
}

// Unwrap returns the cause.
func (e *FailedError) Unwrap() error { return e.Cause }

// Stalled reports whether a node failed because a disk does not answer: operations on that disk never end.
func Stalled(err error) bool {
	var stalled *StalledError
	return errors.As(err, &stalled) || errors.Is(err, raftmeta.ErrStalled)
}

// Watch checks the disks of the data directories periodically. It stops the node when one of them does not answer any more, or when all
// have failed. A disk that fails while others work is retired: its files are repaired from their other replicas. Watch returns at once.
func (s *Service) Watch() {
	for _, dir := range s.Dirs {
		s.Background.Go(func() { s.watch(dir, s.probe) })
	}
}

// watch checks the disk of a directory until Ctx ends. A check that succeeds after a failed one changes nothing: the folder stays retired.
func (s *Service) watch(dir string, probe func(dir string) error) {
	for s.Ctx.Err() == nil {
		w := stall.After(stalledAfter, func() { s.Fail(&StalledError{dir, stalledAfter}) })
		err := probe(dir)
		w.Stop()
		if err != nil {
			s.Report(identity.BlobFolder(dir), err)
		}
		if err := s.allFailed(); err != nil {
			s.Fail(err)
			return
		}
		timing.Sleep(s.Ctx, probeEvery)
	}
}

// allFailed returns a *FailedError if all folders have failed.
func (s *Service) allFailed() error {
	retired := s.Retired()
	var cause error
	for _, dir := range slices.Backward(s.Dirs) {
		if cause = retired[identity.BlobFolder(dir)]; cause == nil {
			return nil
		}
	}
	return &FailedError{s.Dirs, cause}
}

// probe writes a byte to the disk of a directory.
func (s *Service) probe(dir string) error {
	name := filepath.Join(dir, probeFile)
	f, err := s.FS.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = s.FS.Create(name)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{1}, 0)
	return errors.Join(err, f.Sync(), f.Close())
}
