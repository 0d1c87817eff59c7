package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is an in-memory file system that can lose power; see the package comment for its disk model.
// It has the hook of a [Faulty].
type Mem struct {
	*Faulty
	core *memCore
}

// MemOptions are the options of NewMem. The zero value is valid.
type MemOptions struct {
	// Capacity bounds the sum of all file sizes in bytes. Zero means unbounded.
	Capacity int64
}

// NewMem returns an empty file system with only a root directory. Relative names are relative to
// the root.
func NewMem(opts MemOptions) *Mem {
	core := newMemCore()
	if opts.Capacity > 0 {
		core.capacity["/"] = opts.Capacity
	}
	return &Mem{Faulty: NewFaulty(core), core: core}
}

// SetCapacity bounds the sum of the file sizes under dir, in bytes, as if a disk of that size were
// mounted there. Zero removes the bound.
func (m *Mem) SetCapacity(dir string, bytes int64) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	if bytes == 0 {
		delete(m.core.capacity, memPath(dir))
		return
	}
	m.core.capacity[memPath(dir)] = bytes
}

// ReleaseLocks releases all locks, as the operating system does when the processes that hold them are
// killed.
func (m *Mem) ReleaseLocks() {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	m.core.locked = map[string]*memLock{}
}

// memCore holds the current and the durable tree, as maps from full path to node. A crash chooses
// between them.
type memCore struct {
	// mu guards everything below and the content of every node.
	mu       sync.Mutex
	names    map[string]*memNode // the current tree
	durable  map[string]*memNode // the synced tree
	pending  []nameOp            // changes from durable to names, in order
	capacity map[string]int64    // by directory
	locked   map[string]*memLock // by the name of the file
}

type memNode struct {
	dir    bool
	mod    time.Time
	data   []byte // current content
	synced []byte
	writes []memWrite // changes from synced to data, in order
}

// memWrite is a write, or, with truncate, a change of the size to off.
type memWrite struct {
	off      int64
	data     []byte
	truncate bool
}

// nameOp adds name, or moves from to name, or, with a nil node, removes name.
type nameOp struct {
	name, from string
	node       *memNode
	dir        bool // name is a directory that is moved or removed, with all below it
}

func newMemCore() *memCore {
	root := &memNode{dir: true}
	return &memCore{
		names:    map[string]*memNode{"/": root},
		durable:  map[string]*memNode{"/": root},
		capacity: map[string]int64{},
		locked:   map[string]*memLock{},
	}
}

func memPath(name string) string { return path.Clean("/" + filepath.ToSlash(name)) }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (c *memCore) Create(name string) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = memPath(name)
	if c.names[name] != nil {
		return nil, pathError("create", name, fs.ErrExist)
	}
	if parent := c.names[path.Dir(name)]; parent == nil || !parent.dir {
		return nil, pathError("create", name, fs.ErrNotExist)
	}
	n := &memNode{mod: time.Now()}
	c.change(nameOp{name: name, node: n})
	return &memFile{core: c, node: n, name: name, writable: true}, nil
}

func (c *memCore) Open(name string) (File, error) { return c.open(name, true) }

func (c *memCore) OpenRead(name string) (File, error) { return c.open(name, false) }

func (c *memCore) open(name string, writable bool) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = memPath(name)
	n := c.names[name]
	if n == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	if n.dir {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return &memFile{core: c, node: n, name: name, writable: writable}, nil
}

func (c *memCore) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = memPath(name)
	n := c.names[name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if n.dir && len(c.list(name)) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	c.change(nameOp{name: name, dir: n.dir})
	return nil
}

func (c *memCore) Rename(oldName, newName string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldName, newName = memPath(oldName), memPath(newName)
	n := c.names[oldName]
	if n == nil {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	if parent := c.names[path.Dir(newName)]; parent == nil || !parent.dir {
		return pathError("rename", newName, fs.ErrNotExist)
	}
	if oldName == newName {
		return nil
	}
	if err := c.checkRename(n, oldName, newName); err != nil {
		return pathError("rename", oldName, err)
	}
	c.change(nameOp{name: newName, from: oldName, node: n, dir: n.dir})
	return nil
}

// checkRename returns why n, named oldName, cannot replace what newName names.
func (c *memCore) checkRename(n *memNode, oldName, newName string) error {
	over := c.names[newName]
	switch {
	case n.dir && under(newName, oldName):
		return syscall.EINVAL
	case over == nil:
		return nil
	case over.dir && !n.dir:
		return syscall.EISDIR
	case n.dir && !over.dir:
		return syscall.ENOTDIR
	case over.dir:
		return syscall.EEXIST
	}
	return nil
}

func (c *memCore) MkdirAll(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir = memPath(dir)
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		n := c.names[dir[:i]]
		if n == nil {
			c.change(nameOp{name: dir[:i], node: &memNode{dir: true, mod: time.Now()}})
		} else if !n.dir {
			return pathError("mkdir", dir[:i], syscall.ENOTDIR)
		}
	}
	return nil
}

func (c *memCore) ReadDir(dir string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir = memPath(dir)
	if n := c.names[dir]; n == nil {
		return nil, pathError("readdir", dir, fs.ErrNotExist)
	} else if !n.dir {
		return nil, pathError("readdir", dir, syscall.ENOTDIR)
	}
	return c.list(dir), nil
}

func (c *memCore) list(dir string) []string {
	var names []string
	for name := range c.names {
		if name != "/" && path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names
}

func (c *memCore) Stat(name string) (int64, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.names[memPath(name)]
	if n == nil {
		return 0, time.Time{}, pathError("stat", name, fs.ErrNotExist)
	}
	return int64(len(n.data)), n.mod, nil
}

func (c *memCore) FreeBytes(dir string) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.free(memPath(dir)), nil
}

// Disk implements Disks: the disk of a directory is the bound with the least free space.
func (c *memCore) Disk(dir string) (Disk, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disk(memPath(dir)), nil
}

// Lock implements Locker. The result of Crash has no locks.
func (c *memCore) Lock(name string) (io.Closer, error) {
	if file, err := c.Create(name); err == nil {
		_ = file.Close() // of a file in memory
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name = memPath(name)
	if c.locked[name] != nil {
		return nil, pathError("lock", name, ErrLocked)
	}
	l := &memLock{core: c, name: name}
	c.locked[name] = l
	return l, nil
}

type memLock struct {
	core *memCore
	name string
}

// Close releases the lock, if it is still held.
func (l *memLock) Close() error {
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	if l.core.locked[l.name] == l {
		delete(l.core.locked, l.name)
	}
	return nil
}

func (c *memCore) free(name string) int64 { return c.disk(name).FreeBytes }

// disk returns the bound on a directory that contains name, of several the one with the least free
// space, and of equal ones that on the longest name.
func (c *memCore) disk(name string) Disk {
	tightest := Disk{ID: "", TotalBytes: math.MaxInt64, FreeBytes: math.MaxInt64}
	for dir, limit := range c.capacity {
		if !under(name, dir) {
			continue
		}
		free := limit
		for other, n := range c.names {
			if under(other, dir) {
				free -= int64(len(n.data))
			}
		}
		free = max(free, 0)
		if free < tightest.FreeBytes || free == tightest.FreeBytes && len(dir) > len(tightest.ID.(string)) {
			tightest = Disk{ID: dir, TotalBytes: limit, FreeBytes: free}
		}
	}
	return tightest
}

func under(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// change applies a change of names that a crash may undo until it is synced.
func (c *memCore) change(op nameOp) {
	op.apply(c.names)
	c.pending = append(c.pending, op)
}

func (op nameOp) apply(names map[string]*memNode) {
	if op.dir {
		op.applyBelow(names)
	}
	if op.from != "" {
		delete(names, op.from)
	}
	if op.node == nil {
		delete(names, op.name)
		return
	}
	names[op.name] = op.node
}

// applyBelow moves or removes the names below a directory. What is below the new name goes: it was
// removed before, although that may not be durable.
func (op nameOp) applyBelow(names map[string]*memNode) {
	moved := map[string]*memNode{}
	for name, n := range names {
		if to, is := op.moved(name); is {
			moved[to] = n
			delete(names, name)
		} else if name != op.name && under(name, op.name) {
			delete(names, name)
		}
	}
	maps.Copy(names, moved)
}

// moved returns the name that a name below a moved directory has afterwards.
func (op nameOp) moved(name string) (string, bool) {
	if !op.dir || op.from == "" || name == op.from || !under(name, op.from) {
		return name, false
	}
	return op.name + strings.TrimPrefix(name, op.from), true
}

// before returns the name that a moved directory, or one below it, had before.
func (op nameOp) before(name string) (string, bool) {
	if !op.dir || op.from == "" || !under(name, op.name) {
		return name, false
	}
	return op.from + strings.TrimPrefix(name, op.name), true
}

// after returns an earlier, unsynced change by the names that it has once op, a move of a directory,
// is durable.
func (op nameOp) after(earlier nameOp) nameOp {
	earlier.name, _ = op.moved(earlier.name)
	if earlier.from != "" {
		earlier.from, _ = op.moved(earlier.from)
	}
	return earlier
}

func (op nameOp) touches(names map[string]bool) bool {
	return names[op.name] || (op.from != "" && names[op.from])
}

func (op nameOp) addTo(names map[string]bool) {
	names[op.name] = true
	if op.from != "" {
		names[op.from] = true
	}
}

// SyncDir makes the changes in dir durable, and the earlier changes that they depend on. For
// example, a file may have been created in another directory and moved to dir, or dir itself may
// have been moved.
func (c *memCore) SyncDir(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir = memPath(dir)
	if n := c.names[dir]; n == nil || !n.dir {
		return pathError("syncdir", dir, fs.ErrNotExist)
	}
	needed := map[string]bool{}
	var done, rest []nameOp
	for _, op := range slices.Backward(c.pending) {
		was, moved := op.before(dir)
		in := path.Dir(op.name) == dir || (op.from != "" && path.Dir(op.from) == dir)
		if !in && !moved && !op.touches(needed) {
			for _, later := range slices.Backward(done) {
				op = later.after(op)
			}
			rest = append(rest, op)
			continue
		}
		dir = was
		for name := range maps.Clone(needed) {
			if was, moved := op.before(name); moved {
				needed[was] = true
			}
		}
		op.addTo(needed)
		done = append(done, op)
	}
	for _, op := range slices.Backward(done) {
		op.apply(c.durable)
	}
	slices.Reverse(rest)
	c.pending = rest
	return nil
}

// clone returns a core with the given names and content, all of it synced.
func (c *memCore) clone(names map[string]*memNode, content func(*memNode) []byte) *memCore {
	out := newMemCore()
	out.capacity = maps.Clone(c.capacity)
	for name, n := range names {
		if name == "/" || !rooted(names, name) {
			continue
		}
		data := content(n)
		out.names[name] = &memNode{dir: n.dir, mod: n.mod, data: data, synced: slices.Clone(data)}
	}
	out.durable = maps.Clone(out.names)
	return out
}

// rooted reports whether every directory above name exists.
func rooted(names map[string]*memNode, name string) bool {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if n := names[dir]; n == nil || !n.dir {
			return false
		}
	}
	return true
}
