package session

import (
	"slices"
	"sync"

	"github.com/steledb/stele/raftmeta/api"
)

// cache holds files that the leader has promised to ask back before they change.
type cache struct {
	filesMax int
	bytesMax int64
	// valid tells whether the session's lease holds now.
	valid func() bool

	// mu guards the fields in it.
	mu struct {
		sync.RWMutex
		term uint64
		// floor is the number of the last event that emptied the cache in this term: an
		// answer read before it is not kept.
		floor uint64
		files map[string]api.File
		bytes int64
		// fetches are the Gets under way, by path.
		fetches map[string][]*fetch
	}
}

// fetch is a Get under way.
type fetch struct {
	path string
	// invalid is the number of the last CacheInvalid of the path since it began: an
	// answer that was read before it is not kept, though it may come after it.
	invalid uint64
	dead    bool // the term has changed
}

func newCache(filesMax int, bytesMax int64, valid func() bool) *cache {
	c := &cache{filesMax: filesMax, bytesMax: bytesMax, valid: valid}
	c.mu.files = make(map[string]api.File)
	c.mu.fetches = make(map[string][]*fetch)
	return c
}

// get returns a file that is cached. The lease is looked at while the file cannot
// go: whoever lets a lapsed lease live again empties the cache before.
func (c *cache) get(path string) (api.File, bool) {
	c.mu.RLock()
	f, ok := c.mu.files[path]
	ok = ok && c.valid()
	c.mu.RUnlock()
	if !ok {
		return api.File{}, false
	}
	f.Data, f.Holders = slices.Clone(f.Data), slices.Clone(f.Holders)
	return f, true
}

// generation returns that of a file that is cached, as get does.
func (c *cache) generation(path string) (uint64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	f, ok := c.mu.files[path]
	return f.Generation, ok && c.valid()
}

// begin notes that a Get is made; the same fetch goes to finish.
func (c *cache) begin(path string) *fetch {
	t := &fetch{path: path}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.fetches[path] = append(c.mu.fetches[path], t)
	return t
}

// finish ends a fetch, and keeps the file if the answer gave leave and nothing has
// taken it back since. f's memory stays the caller's.
func (c *cache) finish(t *fetch, f *api.File, leave api.CacheLeave) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.mu.fetches[t.path], func(o *fetch) bool { return o == t })
	if c.mu.fetches[t.path] = left; len(left) == 0 {
		delete(c.mu.fetches, t.path)
	}
	if f == nil || !leave.OK || t.dead || leave.Term != c.mu.term || leave.At < c.mu.floor || leave.At < t.invalid {
		return
	}
	old, ok := c.mu.files[t.path]
	if ok && old.Generation > f.Generation { // of a Get that was read later
		return
	}
	c.dropLocked(t.path)
	for path := range c.mu.files { // any: what is in use comes back
		if len(c.mu.files) < c.filesMax && c.mu.bytes+size(f) <= c.bytesMax {
			break
		}
		c.dropLocked(path)
	}
	if c.filesMax <= 0 || size(f) > c.bytesMax {
		return
	}
	kept := *f
	kept.Data, kept.Holders = slices.Clone(f.Data), slices.Clone(f.Holders)
	c.mu.files[t.path] = kept
	c.mu.bytes += size(&kept)
}

// fileBytes is what a cached file costs beside its content.
const fileBytes = 256

func size(f *api.File) int64 { return int64(len(f.Data)+2*len(f.Path)) + fileBytes }

func (c *cache) dropLocked(path string) {
	if f, ok := c.mu.files[path]; ok {
		delete(c.mu.files, path)
		c.mu.bytes -= size(&f)
	}
}

// invalidate drops a path, by the event of that number.
func (c *cache) invalidate(path string, event uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(path)
	for _, t := range c.mu.fetches[path] {
		t.invalid = max(t.invalid, event)
	}
}

// empty drops everything, by the event of that number; 0 for none.
func (c *cache) empty(event uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.mu.files)
	c.mu.bytes = 0
	c.mu.floor = max(c.mu.floor, event)
}

// newTerm drops everything and begins with the events of another term.
func (c *cache) newTerm(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.mu.files)
	c.mu.bytes, c.mu.term, c.mu.floor = 0, term, 0
	for _, all := range c.mu.fetches {
		for _, t := range all {
			t.dead = true
		}
	}
}

// len returns the number of files.
func (c *cache) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.files)
}
