package disks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/steledb/stele/internal/stall"
	"github.com/steledb/stele/internal/timing"
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

// Stalled reports whether a node failed because a disk does not answer: operations on that disk never end.
func Stalled(err error) bool {
	var stalled *StalledError
	return errors.As(err, &stalled) || errors.Is(err, raftmeta.ErrStalled)
}

// Watch stops the node when one of its disks does not answer any more. It returns at once.
func (s *Service) Watch() {
	for _, dir := range s.Dirs {
		s.Background.Go(func() { watch(s.Ctx, dir, s.probe, s.Fail) })
	}
}

// watch checks the disk of a directory periodically, until ctx ends. A disk that returns errors is handled elsewhere.
func watch(ctx context.Context, dir string, probe func(dir string) error, fail func(error)) {
	for timing.Sleep(ctx, probeEvery); ctx.Err() == nil; timing.Sleep(ctx, probeEvery) {
		w := stall.After(stalledAfter, func() { fail(&StalledError{dir, stalledAfter}) })
		_ = probe(dir)
		w.Stop()
	}
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
