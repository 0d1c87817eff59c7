package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/steledb/stele/internal/stall"
	"github.com/steledb/stele/raftmeta"
)

const (
	// diskLookEvery is how often it is looked whether a disk answers.
	diskLookEvery = 5 * time.Second
	// diskStalled is how long one may take to answer. Busy ones take seconds.
	diskStalled = 30 * time.Second
	// lookFile is written for that, in each data folder.
	lookFile = "alive"
)

// A DiskStalledError means that a disk of the node did not answer for so long that the node gave up.
type DiskStalledError struct {
	Folder string
	After  time.Duration
}

func (e *DiskStalledError) Error() string {
	return fmt.Sprintf("the disk of %s has not answered for %v", e.Folder, e.After)
}

// Stalled tells whether a node failed since a disk does not answer: nothing that it has under way there will end.
func Stalled(err error) bool {
	var stalled *DiskStalledError
	return errors.As(err, &stalled) || errors.Is(err, raftmeta.ErrStalled)
}

// watchDisks ends the node when a disk of it does not answer any more: reads hang there that nothing can call off, and while the node lives
// nobody else serves its tablets.
func (n *Node) watchDisks() {
	for _, dir := range n.cfg.DataDirs {
		n.background.Go(func() { watchDisk(n.ctx, dir, lookAtDisk, n.fail) })
	}
}

// watchDisk looks at the disk of a folder now and then, until ctx ends. One that fails answers: what is to be done then others know.
func watchDisk(ctx context.Context, dir string, look func(dir string) error, fail func(error)) {
	for pause(ctx, diskLookEvery); ctx.Err() == nil; pause(ctx, diskLookEvery) {
		w := stall.After(diskStalled, func() { fail(&DiskStalledError{dir, diskStalled}) })
		_ = look(dir)
		w.Stop()
	}
}

// lookAtDisk writes a byte to the disk of a folder.
func lookAtDisk(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, lookFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{1}, 0)
	return errors.Join(err, unix.Fdatasync(int(f.Fd())), f.Close())
}
