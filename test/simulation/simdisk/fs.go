package simdisk

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/steledb/stele/internal/vfs"
)

// FS is the file system of one process. It implements vfs.FS, vfs.Locker and vfs.Disks.
type FS struct {
	disk *Disk
	dead bool // belongs to Disk.mu
}

var (
	_ vfs.FS     = (*FS)(nil)
	_ vfs.Locker = (*FS)(nil)
	_ vfs.Disks  = (*FS)(nil)
)

// class is what the time and the faults of an operation depend on.
type class uint8

const (
	classNames class = iota // changes names
	classLook               // takes no time and has no faults
	classRead
	classWrite
	classSync
)

// delayLocked returns how long the operation takes.
func (d *Disk) delayLocked(c class) time.Duration {
	switch c {
	case classRead:
		return d.cfg.Read.draw(d.cfg.Rand)
	case classWrite:
		return d.cfg.Write.draw(d.cfg.Rand)
	case classSync:
		return d.cfg.Sync.draw(d.cfg.Rand)
	default:
		return 0
	}
}

// stallLocked returns how long the operation is still stalled.
func (d *Disk) stallLocked(c class) time.Duration {
	end := d.stalled[0]
	if c == classSync {
		end = max(end, d.stalled[1])
	}
	if end == 0 {
		return 0
	}
	return end - d.cfg.Now()
}

func (d *Disk) failsLocked(c class, name string) bool {
	f := &d.faults
	p := [...]float64{classNames: f.Names, classLook: 0, classRead: f.Read, classWrite: f.Write, classSync: f.Sync}[c]
	return p > 0 && (f.Match == nil || f.Match(name)) && d.cfg.Rand.Float64() < p
}

// stallCheck is how often a stalled operation looks whether the stall has ended before its time.
const stallCheck = time.Second

// do runs an operation: it sleeps, and then calls effect with the lock held. The effect gets EIO if
// the operation is to fail. Afterwards it emits the event.
func (f *FS) do(c class, e *Event, effect func(fault error) error) error {
	d := f.disk
	d.mu.Lock()
	wait := d.delayLocked(c)
	for {
		wait = max(wait, d.stallLocked(c))
		if wait <= 0 || f.dead {
			break
		}
		d.mu.Unlock()
		step := min(wait, stallCheck)
		time.Sleep(step)
		d.mu.Lock()
		wait -= step
		if wait > 0 {
			wait = max(0, d.stallLocked(c)) // it may have ended early
		}
	}
	defer d.mu.Unlock()
	if f.dead {
		return pathError(e.Kind.String(), e.Name, fs.ErrClosed)
	}
	var fault error
	if d.failsLocked(c, e.Name) {
		fault = pathError(e.Kind.String(), e.Name, syscall.EIO)
	}
	err := effect(fault)
	e.Failed = err != nil
	d.emitLocked(*e)
	return err
}

// run is do for an operation that a fault prevents.
func (f *FS) run(c class, e Event, effect func(d *Disk) error) error {
	return f.do(c, &e, func(fault error) error {
		if fault != nil {
			return fault
		}
		return effect(f.disk)
	})
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (file vfs.File, err error) {
	name = clean(name)
	err = f.run(classNames, Event{Kind: OpCreate, Name: name}, func(d *Disk) error {
		inner, err := d.mem.Create(name)
		if err == nil {
			n := &inode{linked: true}
			d.files[name] = n
			file = f.handleLocked(inner, n, name)
		}
		return err
	})
	return file, err
}

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) { return f.open(clean(name), f.disk.openLocked) }

// OpenRead implements vfs.FS.
func (f *FS) OpenRead(name string) (vfs.File, error) {
	return f.open(clean(name), f.disk.openReadLocked)
}

func (d *Disk) openLocked(name string) (vfs.File, error)     { return d.mem.Open(name) }
func (d *Disk) openReadLocked(name string) (vfs.File, error) { return d.mem.OpenRead(name) }

func (f *FS) open(name string, open func(string) (vfs.File, error)) (file vfs.File, err error) {
	err = f.run(classLook, Event{Kind: OpOpen, Name: name}, func(d *Disk) error {
		inner, err := open(name)
		if err == nil {
			file = f.handleLocked(inner, d.files[name], name)
		}
		return err
	})
	return file, err
}

func (f *FS) handleLocked(inner vfs.File, n *inode, name string) *file {
	n.open++
	return &file{fs: f, inner: inner, node: n, name: name}
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	name = clean(name)
	return f.run(classNames, Event{Kind: OpRemove, Name: name}, func(d *Disk) error {
		err := d.mem.Remove(name)
		if err == nil {
			d.unlinkLocked(name)
		}
		return err
	})
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	oldName, newName = clean(oldName), clean(newName)
	return f.run(classNames, Event{Kind: OpRename, Name: oldName, To: newName}, func(d *Disk) error {
		err := d.mem.Rename(oldName, newName)
		if err == nil {
			d.moveLocked(oldName, newName)
		}
		return err
	})
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	return f.run(classNames, Event{Kind: OpMkdir, Name: clean(dir)}, func(d *Disk) error { return d.mem.MkdirAll(dir) })
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(dir string) (names []string, err error) {
	err = f.run(classLook, Event{Kind: OpReadDir, Name: clean(dir)}, func(d *Disk) error {
		names, err = d.mem.ReadDir(dir)
		return err
	})
	return names, err
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (size int64, mod time.Time, err error) {
	err = f.run(classLook, Event{Kind: OpStat, Name: clean(name)}, func(d *Disk) error {
		size, mod, err = d.mem.Stat(name)
		return err
	})
	return size, mod, err
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	return f.run(classSync, Event{Kind: OpSyncDir, Name: clean(dir)}, func(d *Disk) error { return d.mem.SyncDir(dir) })
}

// FreeBytes implements vfs.FS.
func (f *FS) FreeBytes(dir string) (int64, error) {
	disk, err := f.Disk(dir)
	return disk.FreeBytes, err
}

// Disk implements vfs.Disks. All directories are on one disk.
func (f *FS) Disk(dir string) (disk vfs.Disk, err error) {
	err = f.run(classLook, Event{Kind: OpStat, Name: clean(dir)}, func(d *Disk) error {
		disk = vfs.Disk{ID: "simdisk", TotalBytes: d.capacity, FreeBytes: d.freeLocked()}
		return nil
	})
	return disk, err
}

// lock is a lock that a process holds.
type lock struct {
	fs   *FS
	name string
}

// Lock implements vfs.Locker. Crash releases the locks.
func (f *FS) Lock(name string) (io.Closer, error) {
	name = clean(name)
	if file, err := f.Create(name); err == nil {
		if err := file.Close(); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	l := &lock{fs: f, name: name}
	err := f.run(classLook, Event{Kind: OpLock, Name: name}, func(d *Disk) error {
		if d.locks[name] != nil {
			return pathError("lock", name, vfs.ErrLocked)
		}
		d.locks[name] = l
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Close releases the lock.
func (l *lock) Close() error {
	d := l.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[l.name] != l {
		return pathError("unlock", l.name, fs.ErrClosed)
	}
	delete(d.locks, l.name)
	return nil
}

// file is an open file of an FS.
type file struct {
	fs    *FS
	inner vfs.File
	node  *inode
	name  string
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	e := Event{Kind: OpRead, Name: f.name, Off: off, Len: int64(len(p))}
	err = f.fs.run(classRead, e, func(*Disk) error {
		n, err = f.inner.ReadAt(p, off)
		return err
	})
	return n, err
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	e := Event{Kind: OpWrite, Name: f.name, Off: off, Len: int64(len(p))}
	if f.fs.disk.cfg.Events != nil {
		e.Sum = xxhash.Sum64(p)
	}
	err = f.fs.do(classWrite, &e, func(fault error) error {
		d := f.fs.disk
		fits := p
		if grow := off + int64(len(p)) - f.node.size; grow > d.freeLocked() {
			fits = p[:max(0, int64(len(p))-(grow-d.freeLocked()))]
		}
		if fault != nil {
			fits = fits[:d.cfg.Rand.IntN(len(fits)+1)]
		}
		if n, err = f.inner.WriteAt(fits, off); n > 0 {
			d.resizeLocked(f.node, max(f.node.size, off+int64(n)))
		}
		switch {
		case err != nil:
		case fault != nil:
			err = fault
		case n < len(p):
			err = pathError("write", f.name, syscall.ENOSPC)
		}
		return err
	})
	return n, err
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	return f.sync(classSync, Event{Kind: OpSync, Name: f.name}, f.inner.Sync)
}

// StartSync implements vfs.File.
func (f *file) StartSync(off, n int64) error {
	e := Event{Kind: OpStartSync, Name: f.name, Off: off, Len: n}
	return f.sync(classLook, e, func() error { return f.inner.StartSync(off, n) })
}

func (f *file) sync(c class, e Event, do func() error) error {
	return f.fs.do(c, &e, func(fault error) error {
		d := f.fs.disk
		d.inject = fault // so that the Mem loses the unsynced data
		err := do()
		d.inject = nil
		if err == nil && e.Kind == OpSync {
			f.node.dirty = false
		}
		return err
	})
}

// Truncate implements vfs.File. It never fails for lack of space.
func (f *file) Truncate(size int64) error {
	return f.fs.run(classWrite, Event{Kind: OpTruncate, Name: f.name, Len: size}, func(d *Disk) error {
		err := f.inner.Truncate(size)
		if err == nil {
			d.resizeLocked(f.node, size)
		}
		return err
	})
}

// Preallocate implements vfs.File.
func (f *file) Preallocate(n int64) error {
	return f.fs.run(classWrite, Event{Kind: OpPreallocate, Name: f.name, Len: n}, func(d *Disk) error {
		if n-f.node.size > d.freeLocked() {
			return pathError("preallocate", f.name, syscall.ENOSPC)
		}
		err := f.inner.Preallocate(n)
		if err == nil && n > f.node.size {
			d.resizeLocked(f.node, n)
		}
		return err
	})
}

// Size implements vfs.File.
func (f *file) Size() (size int64, err error) {
	err = f.fs.run(classLook, Event{Kind: OpStat, Name: f.name}, func(*Disk) error {
		size, err = f.inner.Size()
		return err
	})
	return size, err
}

// Close implements io.Closer.
func (f *file) Close() error {
	d := f.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.fs.dead {
		return pathError("close", f.name, fs.ErrClosed)
	}
	err := f.inner.Close()
	if err == nil {
		f.node.open--
		d.dropLocked(f.node)
	}
	return err
}
