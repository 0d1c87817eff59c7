package vfs

import (
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
// It has the hook of a [Faulty]. Directories cannot be renamed.
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

// memCore holds the current and the durable tree, as maps from full path to node. A crash chooses
// between them.
type memCore struct {
	// mu guards everything below and the content of every node.
	mu       sync.Mutex
	names    map[string]*memNode // the current tree
	durable  map[string]*memNode // the synced tree
	pending  []nameOp            // changes from durable to names, in order
	capacity map[string]int64    // by directory
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
}

func newMemCore() *memCore {
	root := &memNode{dir: true}
	return &memCore{
		names:    map[string]*memNode{"/": root},
		durable:  map[string]*memNode{"/": root},
		capacity: map[string]int64{},
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
	c.change(nameOp{name: name})
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
	if over := c.names[newName]; n.dir || (over != nil && over.dir) {
		return pathError("rename", oldName, syscall.EISDIR)
	}
	if parent := c.names[path.Dir(newName)]; parent == nil || !parent.dir {
		return pathError("rename", newName, fs.ErrNotExist)
	}
	if oldName != newName {
		c.change(nameOp{name: newName, from: oldName, node: n})
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

// free returns the smallest free space of any bound on a directory that contains name.
func (c *memCore) free(name string) int64 {
	least := int64(math.MaxInt64)
	for dir, limit := range c.capacity {
		if !under(name, dir) {
			continue
		}
		for other, n := range c.names {
			if under(other, dir) {
				limit -= int64(len(n.data))
			}
		}
		least = min(least, max(limit, 0))
	}
	return least
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
	if op.from != "" {
		delete(names, op.from)
	}
	if op.node == nil {
		delete(names, op.name)
		return
	}
	names[op.name] = op.node
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
// example, a file may have been created in another directory and moved to dir.
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
		in := path.Dir(op.name) == dir || (op.from != "" && path.Dir(op.from) == dir)
		if in || op.touches(needed) {
			op.addTo(needed)
			done = append(done, op)
		} else {
			rest = append(rest, op)
		}
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
