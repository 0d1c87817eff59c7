package blobfs

import (
	"container/list"
	"context"
	"sync"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// cacheExtentsMax bounds the extents kept open for other nodes to read. Each uses at most 4 KiB of
// memory and one descriptor.
const cacheExtentsMax = 512

// extentCache keeps extents open that other nodes read, so that a read need not open the file and
// verify its table each time.
type extentCache struct {
	disks *local.Store

	// mu guards what follows. Never held across I/O.
	mu     sync.Mutex
	byRef  map[api.Ref]*list.Element // of *cachedExtent
	recent *list.List                // most recently used first
	closed bool
}

type cachedExtent struct {
	*local.ExtentReader
	ref     api.Ref
	uses    int
	evicted bool // removed from the cache; the last user closes it
}

func (c *extentCache) init(d *local.Store) {
	c.disks = d
	c.byRef = make(map[api.Ref]*list.Element)
	c.recent = list.New()
}

// open returns the extent and a function that releases it. If it is not open, openExtent opens it: a method of
// local.Store.
func (c *extentCache) open(ctx context.Context, ref api.Ref, openExtent func(context.Context, ExtentID, uint32) (*local.ExtentReader, error)) (*cachedExtent, func(), error) {
	if x := c.find(ref); x != nil {
		return x, func() { c.release(x) }, nil
	}
	r, err := openExtent(ctx, ref.Extent, ref.CRC)
	if err != nil {
		return nil, nil, err
	}
	x := c.add(&cachedExtent{ExtentReader: r, ref: ref, uses: 1})
	return x, func() { c.release(x) }, nil
}

func (c *extentCache) find(ref api.Ref) *cachedExtent {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byRef[ref]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	x := e.Value.(*cachedExtent)
	x.uses++
	return x
}

// add caches x, unless a concurrent call has cached the same extent, and returns x.
func (c *extentCache) add(x *cachedExtent) *cachedExtent {
	if old := c.keep(x); old != nil {
		old.Close()
	}
	return x
}

// keep returns the extent evicted for x, if any, which the caller closes.
func (c *extentCache) keep(x *cachedExtent) *cachedExtent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.byRef[x.ref] != nil {
		x.evicted = true
		return nil
	}
	c.byRef[x.ref] = c.recent.PushFront(x)
	if c.recent.Len() <= cacheExtentsMax {
		return nil
	}
	return c.dropLocked(c.recent.Back())
}

// dropLocked removes an extent. It returns the extent if it is unused, so that the caller closes
// it.
func (c *extentCache) dropLocked(e *list.Element) *cachedExtent {
	x := c.recent.Remove(e).(*cachedExtent)
	delete(c.byRef, x.ref)
	x.evicted = true
	if x.uses > 0 {
		return nil
	}
	return x
}

func (c *extentCache) release(x *cachedExtent) {
	c.mu.Lock()
	x.uses--
	last := x.uses == 0 && x.evicted
	c.mu.Unlock()
	if last {
		x.Close()
	}
}

// forgetWhere removes matching extents; each is closed once it is not in use.
func (c *extentCache) forgetWhere(match func(api.Ref) bool) {
	var unused []*cachedExtent
	c.mu.Lock()
	for ref, e := range c.byRef {
		if match(ref) {
			if x := c.dropLocked(e); x != nil {
				unused = append(unused, x)
			}
		}
	}
	c.mu.Unlock()
	for _, x := range unused {
		x.Close()
	}
}

func (c *extentCache) forgetExtent(x ExtentID) {
	c.forgetWhere(func(r api.Ref) bool { return r.Extent == x })
}

func (c *extentCache) forget(blob ID) {
	c.forgetWhere(func(r api.Ref) bool { return r.Extent.Blob == blob })
}

func (c *extentCache) close() {
	c.forgetWhere(func(api.Ref) bool { return true })
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
}
