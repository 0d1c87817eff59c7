package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/steledb/stele/internal/stall"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta"
	"golang.org/x/sys/unix"
)

const (
	// diskLookEvery is the interval of the checks.
	diskLookEvery = 5 * time.Second
	// diskStalled is how long a disk may take to answer. Busy disks take seconds.
	diskStalled = 30 * time.Second
	// lookFile is written in each data directory for a check.
	lookFile = "alive"
)

// A DiskStalledError means that a disk did not answer for so long that the node stopped.
type DiskStalledError struct {
	Folder string
	After  time.Duration
}

func (e *DiskStalledError) Error() string {
	return fmt.Sprintf("the disk of %s has not answered for %v", e.Folder, e.After)
}

// Stalled reports whether a node failed because a disk does not answer: operations on that disk never end.
func Stalled(err error) bool {
	var stalled *DiskStalledError
	return errors.As(err, &stalled) || errors.Is(err, raftmeta.ErrStalled)
}

// watchDisks stops the node when one of its disks does not answer any more: reads of the disk hang and cannot be cancelled, and while the node
// runs no other node serves its tablets.
func (n *Node) watchDisks() {
	for _, dir := range n.cfg.DataDirs {
		n.background.Go(func() { watchDisk(n.ctx, dir, lookAtDisk, n.fail) })
	}
}

// watchDisk checks the disk of a directory periodically, until ctx ends. A disk that returns errors is handled elsewhere.
func watchDisk(ctx context.Context, dir string, look func(dir string) error, fail func(error)) {
	for timing.Sleep(ctx, diskLookEvery); ctx.Err() == nil; timing.Sleep(ctx, diskLookEvery) {
		w := stall.After(diskStalled, func() { fail(&DiskStalledError{dir, diskStalled}) })
		_ = look(dir)
		w.Stop()
	}
}

// lookAtDisk writes a byte to the disk of a directory.
func lookAtDisk(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, lookFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{1}, 0)
	return errors.Join(err, unix.Fdatasync(int(f.Fd())), f.Close())
}
