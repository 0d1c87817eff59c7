package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/vfs"
)

// Entries of a data folder. Temporary files are next to their final names.
const (
	lockFile  = "LOCK"
	blobsDir  = "blobs"
	logsDir   = "logs"
	tmpSuffix = ".tmp"
)

// folder is one data folder, and so one disk.
type folder struct {
	path   string
	fs     vfs.FS
	logger *slog.Logger
	lock   io.Closer // nil when read-only or the FS has no locks

	// retired is nil while the folder accepts writes.
	retired atomic.Pointer[retirement]
	// committed is the number of bytes that open extents may still write. They do not count as free.
	committed atomic.Int64
	// ampleBytes is the free space, in bytes, above which removals may be slow.
	ampleBytes int64
	// credit is the folder's weight in placement: the folder with the most is next. Guarded by
	// disks.placing.
	credit float64
	// unreadable is set if Open could not list the folder.
	unreadable          bool
	blobNames, logNames dirSync
	holders             *holderLog
	spaceFreer          *spaceFreer
}

// retirement is the end of a folder's use.
type retirement struct {
	err error // that retired it
	at  time.Time
}

// dirSync makes the names in one directory durable. Callers are serialized, because Linux reports a
// failed write-back only once and a concurrent second fsync would return nil. Callers that wait at
// the same time share one sync.
type dirSync struct {
	requested atomic.Uint64
	mu        sync.Mutex // held across I/O
	done      uint64     // requests up to this number are served; guarded by mu
}

func (f *folder) blobPath(name string) string { return filepath.Join(f.path, blobsDir, name) }
func (f *folder) logPath(name string) string  { return filepath.Join(f.path, logsDir, name) }

// RetiredFolders returns how many data folders take no writes.
func (s *disks) RetiredFolders() int {
	n := 0
	for _, f := range s.folders {
		if f.isRetired() {
			n++
		}
	}
	return n
}

// FolderFailed retires a data folder after an error of its disk that was found outside the store, unless the error does not discredit
// the disk. Unknown folders are ignored.
func (s *disks) FolderFailed(path string, err error) {
	for _, f := range s.folders {
		if f.path == filepath.Clean(path) {
			f.failed(err)
		}
	}
}

func (f *folder) isRetired() bool { return f.retired.Load() != nil }

// syncBlobNames makes the names of sealed extents durable, syncLogNames those of log files. Both
// have passed the error to failed.
func (f *folder) syncBlobNames() error { return f.syncDir(blobsDir, &f.blobNames) }
func (f *folder) syncLogNames() error  { return f.syncDir(logsDir, &f.logNames) }

func (f *folder) syncDir(sub string, d *dirSync) error {
	ticket := d.requested.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done >= ticket {
		return nil
	}
	if f.isRetired() {
		return f.retiredError()
	}
	serves := d.requested.Load()
	if err := f.fs.SyncDir(filepath.Join(f.path, sub)); err != nil {
		f.failed(err)
		return err
	}
	d.done = serves
	return nil
}

// failed retires the folder after a failed write, unless the error does not discredit it, and
// reports whether another folder may work. A full disk and a single corrupt file do not discredit a
// folder. Nor do the limits of this process, which apply to every folder.
func (f *folder) failed(err error) (retry bool) {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
		return false
	}
	if vfs.IsDiskFull(err) || errors.Is(err, ErrFolderRetired) || errors.As(err, new(*vfs.DamageError)) {
		return true
	}
	if f.retired.CompareAndSwap(nil, &retirement{err, time.Now()}) {
		f.logger.Error("data folder retired", "folder", f.path, "err", err)
	}
	return true
}

// remove deletes a file, if it exists and the folder is not retired. Its space is freed later. An
// error has been passed to failed: a disk that cannot remove is as bad as one that cannot write.
func (f *folder) remove(path string) error {
	if f.isRetired() {
		return f.retiredError()
	}
	free, err := vfs.RemoveLater(f.fs, path)
	if free != nil {
		f.spaceFreer.add(removed{f, free})
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if f.failed(err) && f.isRetired() {
		return f.retiredError()
	}
	return err
}

// ampleExtents is the free space above the reserve, in extents, above which removals may be slow.
const ampleExtents = 16

// hasAmpleSpace reports whether the folder has so much free space that removals may be slow.
func (f *folder) hasAmpleSpace() bool {
	n, err := f.fs.FreeBytes(f.path)
	return err == nil && n >= f.committed.Load()+f.ampleBytes
}

// rename renames a file, if the folder is not retired. An error has been passed to failed.
func (f *folder) rename(from, to string) error {
	if f.isRetired() {
		return f.retiredError()
	}
	err := f.fs.Rename(from, to)
	if err != nil && f.failed(err) && f.isRetired() {
		return f.retiredError()
	}
	return err
}

func (f *folder) retiredError() error {
	return fmt.Errorf("write to %s: %w: %w", f.path, ErrFolderRetired, f.retired.Load().err)
}

// prepare creates the folder and its subfolders durably and locks it. A read-only store creates
// nothing, and locks only if the lock file exists.
func (f *folder) prepare(readOnly bool) error {
	lockPath := filepath.Join(f.path, lockFile)
	if readOnly {
		if _, _, err := f.fs.Stat(lockPath); err != nil {
			return nil
		}
	} else {
		for _, dir := range []string{f.path, filepath.Join(f.path, blobsDir), filepath.Join(f.path, logsDir)} {
			if err := vfs.MakeDir(f.fs, dir); err != nil {
				return err
			}
		}
	}
	l, ok := f.fs.(vfs.Locker)
	if !ok {
		return nil
	}
	lock, err := l.Lock(lockPath)
	if err != nil {
		return err
	}
	f.lock = lock
	return nil
}

func (f *folder) unlock() error {
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

// pick selects the folder for a new extent of up to need bytes and adds it to committed;
// the caller reduces committed as it writes. A high-priority extent uses the reserve only if no
// folder has other space, and then spare log files are removed before it is rejected. ErrDiskFull
// if no folder has space, ErrFolderRetired if all are retired.
func (s *disks) pick(need int64, highPriority bool, avoid func(*folder) bool) (*folder, error) {
	f, err := s.pickAbove(s.cfg.ReserveBytes, need, avoid)
	if !highPriority || !errors.Is(err, ErrDiskFull) {
		return f, err
	}
	for {
		f, err = s.pickAbove(s.hardReserve(), need, avoid)
		if !errors.Is(err, ErrDiskFull) || !s.spares.removeSpare(avoid) {
			return f, err
		}
	}
}

// hardReserve is the free space that no extent may use.
func (s *disks) hardReserve() int64 { return s.cfg.ReserveBytes / 2 }

// hasSpace reports whether a folder has need bytes of free space above the reserve.
func (s *disks) hasSpace(f *folder, need int64) bool {
	n, err := f.fs.FreeBytes(f.path)
	if err != nil {
		f.failed(err)
		return false
	}
	return n >= need+f.committed.Load()+s.cfg.ReserveBytes
}

// pickAbove is pick with a given reserve. Folders get extents in proportion to their space above
// the reserve. If a folder lacks space, extents in quarantine are removed from it.
func (s *disks) pickAbove(reserve, need int64, avoid func(*folder) bool) (*folder, error) {
	if planted.On(planted.ReserveIgnored) {
		reserve = 0
	}
	free := make([]int64, len(s.folders))
	for i, f := range s.folders {
		free[i] = -1
		if f.isRetired() {
			continue
		}
		n, err := f.fs.FreeBytes(f.path)
		if err != nil {
			f.failed(err)
			continue
		}
		if needed := need + f.committed.Load() + reserve; n < needed && (avoid == nil || !avoid(f)) {
			s.evict(f, func() bool {
				if now, err := f.fs.FreeBytes(f.path); err == nil {
					n = now
				}
				return n >= needed
			})
		}
		free[i] = n
	}

	s.placing.Lock()
	defer s.placing.Unlock()
	var best *folder
	var total float64
	alive := false
	for i, f := range s.folders {
		if free[i] < 0 {
			continue
		}
		alive = true
		free[i] -= f.committed.Load() + reserve
		if free[i] < need || (avoid != nil && avoid(f)) {
			free[i] = -1
			continue
		}
		total += float64(free[i])
	}
	for i, f := range s.folders {
		if free[i] < 0 {
			continue
		}
		f.credit += float64(free[i]) / max(total, 1)
		if best == nil || f.credit > best.credit {
			best = f
		}
	}
	switch {
	case best != nil:
		best.credit--
		best.committed.Add(need)
		return best, nil
	case alive:
		return nil, ErrDiskFull
	default:
		var errs []error
		for _, f := range s.folders {
			errs = append(errs, f.retiredError())
		}
		return nil, errors.Join(errs...)
	}
}
