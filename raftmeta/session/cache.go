package session

import (
	"slices"
	"sync"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/raftmeta/api"
)

// cache holds files that the leader has promised to invalidate before they change.
type cache struct {
	filesMax int
	bytesMax int64
	// valid reports whether the session's lease is valid now.
	valid func() bool
	// ended receives when a Version has ended. Its capacity is one.
	ended chan struct{}

	// mu guards the fields in it.
	mu struct {
		sync.RWMutex
		term uint64
		// floor is the number of the last event that emptied the cache in this term. An answer read
		// before it is not cached.
		floor uint64
		files map[string]api.File
		bytes int64
		// versions are those that were returned and have not ended, by path. A version stays when
		// its file is evicted: the leader still invalidates the path.
		versions map[string]*Version
		// fetches are the Gets in progress, by path.
		fetches map[string][]*fetch
	}
}

// fetch is a Get in progress.
type fetch struct {
	path string
	hold bool // a Version is requested
	// invalid is the number of the last CacheInvalid of the path since the fetch began. An answer
	// read before that event is not cached, even if it arrives after it.
	invalid  uint64
	outdated bool // the term has changed
}

func newCache(filesMax int, bytesMax int64, valid func() bool) *cache {
	c := &cache{filesMax: filesMax, bytesMax: bytesMax, valid: valid, ended: make(chan struct{}, 1)}
	c.mu.files = make(map[string]api.File)
	c.mu.versions = make(map[string]*Version)
	c.mu.fetches = make(map[string][]*fetch)
	return c
}

// get returns a cached file. The lease is checked while the lock is held: a lapsed lease is renewed
// only after the cache was emptied.
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

// getVersion is get with a Version of the file.
func (c *cache) getVersion(path string) (api.File, *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.mu.files[path]
	if !ok || !c.valid() {
		return api.File{}, nil
	}
	f.Data, f.Holders = slices.Clone(f.Data), slices.Clone(f.Holders)
	return f, c.versionLocked(path, f.Generation)
}

// versionLocked returns the Version of a file that the session may cache.
func (c *cache) versionLocked(path string, generation uint64) *Version {
	v := c.mu.versions[path]
	if v == nil {
		v = &Version{generation: generation}
		c.mu.versions[path] = v
	}
	return v
}

// endLocked ends the Version of a path.
func (c *cache) endLocked(path string) {
	v := c.mu.versions[path]
	if v == nil {
		return
	}
	v.over.Store(true)
	delete(c.mu.versions, path)
	select {
	case c.ended <- struct{}{}:
	default:
	}
}

// emptyLocked drops all files and ends all Versions.
func (c *cache) emptyLocked() {
	clear(c.mu.files)
	c.mu.bytes = 0
	for path := range c.mu.versions {
		c.endLocked(path)
	}
}

// generation returns the generation of a cached file, as get does.
func (c *cache) generation(path string) (uint64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	f, ok := c.mu.files[path]
	return f.Generation, ok && c.valid()
}

// begin registers a Get, for a Version if hold is set. The caller passes the result to finish.
func (c *cache) begin(path string, hold bool) *fetch {
	t := &fetch{path: path, hold: hold}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.fetches[path] = append(c.mu.fetches[path], t)
	return t
}

// finish ends a fetch. It caches the file if the answer permits that and no event has invalidated
// it since, and then returns a Version if the fetch is for one. The caller keeps ownership of f.
func (c *cache) finish(t *fetch, f *api.File, perm api.CachePermission) (v *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.mu.fetches[t.path], func(o *fetch) bool { return o == t })
	if c.mu.fetches[t.path] = left; len(left) == 0 {
		delete(c.mu.fetches, t.path)
	}
	if f == nil || !perm.OK || t.outdated || perm.Term != c.mu.term || perm.At < c.mu.floor || perm.At < t.invalid && !planted.On(planted.StaleFetchCached) {
		return nil
	}
	old, ok := c.mu.files[t.path]
	if ok && old.Generation > f.Generation { // read by a later Get
		return nil
	}
	if t.hold {
		v = c.versionLocked(t.path, f.Generation)
	}
	c.dropLocked(t.path)
	for path := range c.mu.files { // evict arbitrary files: those in use are fetched again
		if len(c.mu.files) < c.filesMax && c.mu.bytes+size(f) <= c.bytesMax {
			break
		}
		c.dropLocked(path)
	}
	if c.filesMax <= 0 || size(f) > c.bytesMax {
		return v
	}
	kept := *f
	kept.Data, kept.Holders = slices.Clone(f.Data), slices.Clone(f.Holders)
	c.mu.files[t.path] = kept
	c.mu.bytes += size(&kept)
	return v
}

// fileBytes is the charge for a cached file beside its content and path.
const fileBytes = 256

func size(f *api.File) int64 { return int64(len(f.Data)+2*len(f.Path)) + fileBytes }

func (c *cache) dropLocked(path string) {
	if f, ok := c.mu.files[path]; ok {
		delete(c.mu.files, path)
		c.mu.bytes -= size(&f)
	}
}

// invalidate drops a path because of the event with that number.
func (c *cache) invalidate(path string, event uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(path)
	c.endLocked(path)
	for _, t := range c.mu.fetches[path] {
		t.invalid = max(t.invalid, event)
	}
}

// empty drops everything because of the event with that number, 0 for none.
func (c *cache) empty(event uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emptyLocked()
	c.mu.floor = max(c.mu.floor, event)
}

// newTerm drops everything and starts the event numbers of another term.
func (c *cache) newTerm(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emptyLocked()
	c.mu.term, c.mu.floor = term, 0
	for _, all := range c.mu.fetches {
		for _, t := range all {
			t.outdated = true
		}
	}
}

// len returns the number of files.
func (c *cache) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.mu.files)
}
