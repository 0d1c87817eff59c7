package blobfs

import (
	"errors"
	"sync"

	"github.com/steledb/stele/blobfs/local"
)

// corruptExtentsMax bounds the corrupt extents that are remembered. The scrub finds the others
// again.
const corruptExtentsMax = 4096

// corruptExtents records the extents on this node that were found corrupt. They are not dropped at
// once: it may be the last replica, and other chunks of it may be good.
type corruptExtents struct {
	mu    sync.Mutex
	found map[ExtentID]error
}

// recordIfCorrupt records an extent if err is the corruption that a read found.
func (s *Store) recordIfCorrupt(x ExtentID, err error) {
	var corrupt *CorruptError
	if err == nil || !errors.As(err, &corrupt) || errors.Is(err, local.ErrOtherExtent) {
		return
	}
	s.recordCorruption(x, err)
}

// recordCorruption records that an extent here is corrupt, and queues its repair.
func (s *Store) recordCorruption(x ExtentID, err error) {
	if !s.corruptExtents.add(x, err) {
		return
	}
	s.log.Error("extent corrupt", "extent", x.String(), "err", err)
	if s.repairer != nil {
		s.repairer.queue.push(task{id: x, rank: 1})
	}
}

// add records an extent. It returns false if the extent is known already or there are too many.
func (r *corruptExtents) add(x ExtentID, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found == nil {
		r.found = make(map[ExtentID]error)
	}
	if _, known := r.found[x]; known || len(r.found) >= corruptExtentsMax {
		return false
	}
	r.found[x] = err
	return true
}

// has reports whether an extent was found corrupt.
func (r *corruptExtents) has(x ExtentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.found[x]
	return ok
}

func (r *corruptExtents) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}

// reason returns the corruption found in an extent; nil if none was.
func (r *corruptExtents) reason(x ExtentID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[x]
}

// Corrupt returns the extents on this node that were found corrupt, and the error of each.
func (s *Store) Corrupt() map[ExtentID]error {
	s.corruptExtents.mu.Lock()
	defer s.corruptExtents.mu.Unlock()
	all := make(map[ExtentID]error, len(s.corruptExtents.found))
	for x, err := range s.corruptExtents.found {
		all[x] = err
	}
	return all
}

// clearCorruption removes the record of an extent that was healed or dropped.
func (s *Store) clearCorruption(x ExtentID) {
	s.corruptExtents.mu.Lock()
	defer s.corruptExtents.mu.Unlock()
	delete(s.corruptExtents.found, x)
}
