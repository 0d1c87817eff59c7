package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/internal/vfs"
)

// Verify checks the data directory of a server that is not running: each page and entry of the log,
// each snapshot, and that log and snapshots fit together. It calls problem for each *CorruptError
// and *VersionError, in no particular order, and modifies only the lock file. It returns an error
// if it could not complete: vfs.ErrLocked if a process has the directory open, ctx's, or one of the
// file system. A nil fsys means the operating system's.
func Verify(ctx context.Context, fsys vfs.FS, dir string, problem func(error)) error {
	if fsys == nil {
		fsys = vfs.OS()
	}
	lock, err := lockDataDir(fsys, dir)
	if err != nil {
		return err
	}
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	snaps := &snapshotStore{fs: fsys, dir: filepath.Join(dir, snapsName)}
	_, problems, err := checkDataDir(ctx, fsys, dir, snaps, true)
	for _, p := range problems {
		problem(p)
	}
	return err
}

// dataDirSummary is the result of a check of a data directory.
type dataDirSummary struct {
	logSummary
	snapshot uint64 // index of the newest snapshot; zero if there is none
}

// bytesAfterSnapshot returns the size of the entries that the newest snapshot does not cover.
func (s dataDirSummary) bytesAfterSnapshot() int64 {
	var n int64
	for i, size := range s.sizes {
		if s.first+uint64(i) > s.snapshot {
			n += int64(size)
		}
	}
	return n
}

// checkDataDir checks the log and the header of the newest snapshot, or with deep everything in all
// snapshots. It returns the problems found.
func checkDataDir(ctx context.Context, fsys vfs.FS, dir string, snaps *snapshotStore, deep bool) (dataDirSummary, []error, error) {
	file := filepath.Join(dir, logName)
	log, problems, err := checkLogFile(fsys, file)
	sum := dataDirSummary{logSummary: log}
	if err != nil {
		return sum, problems, err
	}
	ids, err := snaps.ids()
	if err != nil {
		return sum, problems, err
	}
	for i, id := range ids {
		if i > 0 && !deep {
			break // only the newest is ever read
		}
		if err := ctx.Err(); err != nil {
			return sum, problems, err
		}
		f, err := snaps.open(id)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if i == 0 {
			sum.snapshot = f.meta.Index
		}
		if deep {
			if _, _, err := fsm.ReadSnapshot(contextReader{ctx, f}); err != nil {
				problems = append(problems, f.locate(err))
			}
		}
		if err := f.Close(); err != nil {
			return sum, problems, err
		}
	}
	if len(problems) == 0 && log.first > sum.snapshot+1 {
		problems = append(problems, &CorruptError{file, 0, fmt.Sprintf(
			"log begins at entry %d, and no snapshot covers entries from %d", log.first, sum.snapshot+1)})
	}
	if len(problems) == 0 && log.last == 0 && sum.snapshot == 0 && !log.joining {
		problems = append(problems, &CorruptError{file, 0, "log has no entries, and there is no snapshot"})
	}
	return sum, problems, nil
}

// check verifies the newest snapshot. It returns the index of the last command in it, or what is
// wrong with it.
func (s *snapshotStore) check(ctx context.Context) (uint64, error) {
	ids, err := s.ids()
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	f, err := s.open(ids[0])
	if err != nil {
		return 0, err
	}
	_, applied, err := fsm.ReadSnapshot(contextReader{ctx, f})
	if err != nil {
		err = f.locate(err)
	}
	return applied, errors.Join(err, f.Close())
}

// contextReader fails with ctx's error once ctx has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
