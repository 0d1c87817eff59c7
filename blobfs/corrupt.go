package blobfs

import (
	"errors"
	"sync"

	"github.com/steledb/stele/blobfs/local"
)

// corruptExtentsMax bounds the corrupt extents that are remembered. The scrub finds the others again.
const corruptExtentsMax = 4096

// rot records the extents on this node that were found corrupt. They are not dropped at once: it
// may be the last replica, and other chunks of it may be good.
type rot struct {
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
	if !s.rot.add(x, err) {
		return
	}
	s.log.Error("extent corrupt", "extent", x.String(), "err", err)
	if s.repairer != nil {
		s.repairer.queue.push(task{id: x, rank: 1})
	}
}

// add records an extent. It returns false if the extent is known already or there are too many.
func (r *rot) add(x ExtentID, err error) bool {
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
func (r *rot) has(x ExtentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.found[x]
	return ok
}

func (r *rot) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}

// why returns the corruption found in an extent; nil if none was.
func (r *rot) why(x ExtentID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[x]
}

// Rotten returns the extents on this node that were found corrupt, and the error of each.
func (s *Store) Rotten() map[ExtentID]error {
	s.rot.mu.Lock()
	defer s.rot.mu.Unlock()
	all := make(map[ExtentID]error, len(s.rot.found))
	for x, err := range s.rot.found {
		all[x] = err
	}
	return all
}

// clearCorruption removes the record of an extent that was healed or dropped.
func (s *Store) clearCorruption(x ExtentID) {
	s.rot.mu.Lock()
	defer s.rot.mu.Unlock()
	delete(s.rot.found, x)
}
