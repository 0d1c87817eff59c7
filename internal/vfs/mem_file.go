package vfs

import (
	"io"
	"io/fs"
	"slices"
	"syscall"
	"time"
)

type memFile struct {
	core     *memCore
	node     *memNode
	name     string
	writable bool
	closed   bool
}

// usableLocked returns an error if the file is closed or, for writes, read-only.
func (f *memFile) usableLocked(op string, write bool) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if write && !f.writable {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	if err := f.usableLocked("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	if err := f.usableLocked("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	// Like a disk, write what fits.
	fits := p
	if grow := off + int64(len(p)) - int64(len(f.node.data)); grow > 0 {
		if free := f.core.free(f.name); grow > free {
			fits = p[:max(0, int64(len(p))-(grow-free))]
		}
	}
	if len(fits) > 0 {
		f.node.do(memWrite{off: off, data: slices.Clone(fits)})
	}
	if len(fits) < len(p) {
		return len(fits), pathError("write", f.name, syscall.ENOSPC)
	}
	return len(p), nil
}

func (f *memFile) Sync() error {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	if err := f.usableLocked("sync", true); err != nil {
		return err
	}
	for _, w := range f.node.writes {
		f.node.synced = w.apply(f.node.synced)
	}
	f.node.writes = nil
	return nil
}

func (f *memFile) StartSync(int64, int64) error {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	return f.usableLocked("start sync", true)
}

func (f *memFile) loseUnsynced() {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	f.node.writes = nil
}

func (f *memFile) Truncate(size int64) error {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	if err := f.usableLocked("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, fs.ErrInvalid)
	}
	f.node.do(memWrite{off: size, truncate: true})
	return nil
}

func (f *memFile) Preallocate(n int64) error {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	if err := f.usableLocked("preallocate", true); err != nil {
		return err
	}
	grow := n - int64(len(f.node.data))
	if grow <= 0 {
		return nil
	}
	if grow > f.core.free(f.name) {
		return pathError("preallocate", f.name, syscall.ENOSPC)
	}
	f.node.do(memWrite{off: n, truncate: true})
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	return int64(len(f.node.data)), f.usableLocked("size", false)
}

func (f *memFile) Close() error {
	f.core.mu.Lock()
	defer f.core.mu.Unlock()
	if err := f.usableLocked("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}

// do applies a change that a crash may undo, in whole or in part, until it is synced.
func (n *memNode) do(w memWrite) {
	n.data = w.apply(n.data)
	n.writes = append(n.writes, w)
	n.mod = time.Now()
}

func (w memWrite) apply(data []byte) []byte {
	if w.truncate {
		return resize(data, w.off)
	}
	if end := w.off + int64(len(w.data)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[w.off:], w.data)
	return data
}

// resize sets the length. New bytes are zero.
func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		clear(data[size:])
		return data[:size]
	}
	old := len(data)
	data = slices.Grow(data, int(size)-old)[:size]
	clear(data[old:])
	return data
}
