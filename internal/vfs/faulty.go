package vfs

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// OpKind is the kind of an operation. Reads are not operations.
type OpKind uint8

// The operations passed to a hook.
const (
	OpCreate OpKind = iota + 1
	OpWrite
	OpSync
	OpStartSync
	OpTruncate
	OpPreallocate
	OpRename
	OpRemove
	OpMkdir
	OpSyncDir
)

var opNames = [...]string{"", "create", "write", "sync", "startsync", "truncate", "preallocate", "rename", "remove", "mkdir", "syncdir"}

// String returns the operation's name in lower case.
func (k OpKind) String() string { return opNames[k] }

// Op is one operation that changes files or names.
type Op struct {
	N       int64 // sequence number, from 1
	Kind    OpKind
	Name    string
	NewName string // OpRename
	Off     int64  // OpWrite, OpStartSync
	Len     int64  // OpWrite, OpStartSync: bytes; OpTruncate and OpPreallocate: size
}

// String returns the number, kind and file of the operation, for test output.
func (op Op) String() string {
	return fmt.Sprintf("#%d %s %s", op.N, op.Kind, op.Name)
}

// Hook is called before each operation. If it returns nil, the operation proceeds. Any other error
// becomes the result of the operation, which is not done, except that a write that gets ErrTorn is
// half done.
type Hook func(op Op) error

// ErrTorn makes a write store the first half of its bytes and then fail.
var ErrTorn = errors.New("torn write")

// ErrPowerCut is for hooks that simulate a power loss at an operation. Unlike with any other error,
// the data of a failed Sync may then survive [Mem.Crash].
var ErrPowerCut = errors.New("power cut")

// Faulty is an FS that calls a hook before it changes another FS.
type Faulty struct {
	inner FS
	hook  atomic.Pointer[Hook]
	n     atomic.Int64
}

// NewFaulty returns a Faulty on top of inner, without a hook.
func NewFaulty(inner FS) *Faulty { return &Faulty{inner: inner} }

// SetHook sets or, with nil, removes the hook, at any time. The hook is called by the goroutine
// that does the operation, with no lock held.
func (f *Faulty) SetHook(h func(op Op) error) {
	if h == nil {
		f.hook.Store(nil)
		return
	}
	hook := Hook(h)
	f.hook.Store(&hook)
}

// Ops returns the number of operations so far.
func (f *Faulty) Ops() int64 { return f.n.Load() }

func (f *Faulty) callHook(op Op) error {
	op.N = f.n.Add(1)
	if h := f.hook.Load(); h != nil {
		return (*h)(op)
	}
	return nil
}

// Create implements FS.
func (f *Faulty) Create(name string) (File, error) {
	if err := f.callHook(Op{Kind: OpCreate, Name: name}); err != nil {
		return nil, err
	}
	return f.wrap(name)(f.inner.Create(name))
}

// Open implements FS.
func (f *Faulty) Open(name string) (File, error) { return f.wrap(name)(f.inner.Open(name)) }

// OpenRead implements FS.
func (f *Faulty) OpenRead(name string) (File, error) { return f.wrap(name)(f.inner.OpenRead(name)) }

func (f *Faulty) wrap(name string) func(File, error) (File, error) {
	return func(file File, err error) (File, error) {
		if err != nil {
			return nil, err
		}
		return &faultyFile{File: file, fs: f, name: name}, nil
	}
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	if err := f.callHook(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// Rename implements FS.
func (f *Faulty) Rename(oldName, newName string) error {
	if err := f.callHook(Op{Kind: OpRename, Name: oldName, NewName: newName}); err != nil {
		return err
	}
	return f.inner.Rename(oldName, newName)
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(dir string) error {
	if err := f.callHook(Op{Kind: OpMkdir, Name: dir}); err != nil {
		return err
	}
	return f.inner.MkdirAll(dir)
}

// ReadDir implements FS.
func (f *Faulty) ReadDir(dir string) ([]string, error) { return f.inner.ReadDir(dir) }

// Stat implements FS.
func (f *Faulty) Stat(name string) (int64, time.Time, error) { return f.inner.Stat(name) }

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	if err := f.callHook(Op{Kind: OpSyncDir, Name: dir}); err != nil {
		return err
	}
	return f.inner.SyncDir(dir)
}

// FreeBytes implements FS.
func (f *Faulty) FreeBytes(dir string) (int64, error) { return f.inner.FreeBytes(dir) }

// Disk implements Disks.
func (f *Faulty) Disk(dir string) (Disk, error) { return DiskOf(f.inner, dir) }

func (f *Faulty) sameFile(a, b string) bool { return SameFile(f.inner, a, b) }

// Lock implements Locker. It locks nothing if the inner FS cannot.
func (f *Faulty) Lock(name string) (io.Closer, error) {
	if l, ok := f.inner.(Locker); ok {
		return l.Lock(name)
	}
	return noLock{}, nil
}

type noLock struct{}

func (noLock) Close() error { return nil }

type faultyFile struct {
	File
	fs   *Faulty
	name string
}

// unsyncedLoser is a file that implements V4 of the package comment.
type unsyncedLoser interface{ loseUnsynced() }

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.fs.callHook(Op{Kind: OpWrite, Name: f.name, Off: off, Len: int64(len(p))})
	if errors.Is(err, ErrTorn) {
		n, werr := f.File.WriteAt(p[:len(p)/2], off)
		return n, errors.Join(err, werr)
	}
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Sync() error {
	return f.sync(Op{Kind: OpSync, Name: f.name}, f.File.Sync)
}

func (f *faultyFile) StartSync(off, n int64) error {
	return f.sync(Op{Kind: OpStartSync, Name: f.name, Off: off, Len: n}, func() error { return f.File.StartSync(off, n) })
}

func (f *faultyFile) sync(op Op, do func() error) error {
	err := f.fs.callHook(op)
	if err == nil {
		return do()
	}
	if l, ok := f.File.(unsyncedLoser); ok && !errors.Is(err, ErrPowerCut) {
		l.loseUnsynced()
	}
	return err
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.fs.callHook(Op{Kind: OpTruncate, Name: f.name, Len: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Preallocate(n int64) error {
	if err := f.fs.callHook(Op{Kind: OpPreallocate, Name: f.name, Len: n}); err != nil {
		return err
	}
	return f.File.Preallocate(n)
}
