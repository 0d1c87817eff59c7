package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/internal/vfs"
)

// Names in the data directory.
const (
	LogName       = "raft.db"
	SnapshotsName = "snapshots"
	lockName      = "LOCK"
)

// VerifyDir checks everything in a data directory that no process has open, and calls problem for
// each *CorruptError and *VersionError. It returns an error if it could not complete.
func VerifyDir(ctx context.Context, fsys vfs.FS, dir string, openLog OpenFunc, problem func(error)) error {
	lock, err := LockDir(fsys, dir)
	if err != nil {
		return err
	}
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	snaps := &Snapshots{fs: fsys, dir: filepath.Join(dir, SnapshotsName)}
	_, problems, err := CheckDir(ctx, fsys, dir, openLog, snaps, true)
	for _, p := range problems {
		problem(p)
	}
	return err
}

// DirSummary is the result of a check of a data directory.
type DirSummary struct {
	LogSummary
	Snapshot uint64 // index of the newest snapshot; zero if there is none
}

// BytesAfterSnapshot returns the size of the entries that the newest snapshot does not cover.
func (s DirSummary) BytesAfterSnapshot() int64 {
	var n int64
	for i, size := range s.Sizes {
		if s.First+uint64(i) > s.Snapshot {
			n += int64(size)
		}
	}
	return n
}

// CheckDir checks the log and the header of the newest snapshot, or with deep everything in all
// snapshots. It returns the problems found. A nil openLog means that the log is a bbolt file, which
// is read without bbolt.
func CheckDir(ctx context.Context, fsys vfs.FS, dir string, openLog OpenFunc, snaps *Snapshots, deep bool) (DirSummary, []error, error) {
	file := filepath.Join(dir, LogName)
	check := CheckLog
	if openLog != nil {
		check = openLog.checkLog
	}
	log, problems, err := check(fsys, file)
	sum := DirSummary{LogSummary: log}
	if err != nil {
		return sum, problems, err
	}
	ids, err := snaps.IDs()
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
			sum.Snapshot = f.meta.Index
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
	if len(problems) == 0 && log.First > sum.Snapshot+1 {
		problems = append(problems, &CorruptError{file, 0, fmt.Sprintf(
			"log begins at entry %d, and no snapshot covers entries from %d", log.First, sum.Snapshot+1)})
	}
	if len(problems) == 0 && log.Last == 0 && sum.Snapshot == 0 && !log.Joining {
		problems = append(problems, &CorruptError{file, 0, "log has no entries, and there is no snapshot"})
	}
	return sum, problems, nil
}

// Check verifies the newest snapshot. It returns the index of the last command in it, or what is
// wrong with it.
func (s *Snapshots) Check(ctx context.Context) (uint64, error) {
	ids, err := s.IDs()
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

// LockDir locks dir against other processes until the result is closed. The result is nil if the
// file system has no locks.
func LockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	l, ok := fsys.(vfs.Locker)
	if !ok {
		return nil, nil
	}
	lock, err := l.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return lock, nil
}
