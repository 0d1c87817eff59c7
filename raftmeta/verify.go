package raftmeta

import (
	"context"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/internal/vfs"
)

// Verify checks the data directory of a server that is not running: each page and entry of the log,
// each snapshot, and that log and snapshots fit together. It calls problem for each *corruptError
// and *VersionError, in no particular order, and modifies only the lock file. It returns an error
// if it could not complete: vfs.ErrLocked if a process has the directory open, ctx's, or one of the
// file system. A nil fsys means the operating system's, and a nil openLog bbolt, as in Config.
func Verify(ctx context.Context, fsys vfs.FS, dir string, openLog storage.OpenFunc, problem func(error)) error {
	if fsys == nil {
		fsys = vfs.OS()
	}
	return storage.VerifyDir(ctx, fsys, dir, openLog, problem)
}
