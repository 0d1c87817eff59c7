package blobfs

import (
	"errors"
	"sync"

	"github.com/steledb/stele/blobfs/local"
)

// rotMax is how many rotten extents are remembered; a scrub finds the others again.
const rotMax = 4096

// rot is the extents here of which somebody found bytes to be wrong. They are not
// dropped at once: it may be the last replica, of which other chunks are good.
type rot struct {
	mu    sync.Mutex
	found map[ExtentID]error
}

// judgeRead notes an extent that a read found rotten.
func (s *Store) judgeRead(x ExtentID, err error) {
	var corrupt *CorruptError
	if err == nil || !errors.As(err, &corrupt) || errors.Is(err, local.ErrOtherExtent) {
		return
	}
	s.noteRot(x, err)
}

// noteRot notes that an extent here is rotten, and has the keeper heal it.
func (s *Store) noteRot(x ExtentID, err error) {
	if !s.rot.add(x, err) {
		return
	}
	s.log.Error("extent is rotten", "extent", x.String(), "err", err)
	if s.keeper != nil {
		s.keeper.queue.push(task{id: x, rank: 1})
	}
}

// add notes an extent; false if it is known, or there are too many.
func (r *rot) add(x ExtentID, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found == nil {
		r.found = make(map[ExtentID]error)
	}
	if _, known := r.found[x]; known || len(r.found) >= rotMax {
		return false
	}
	r.found[x] = err
	return true
}

// has tells whether an extent was found rotten.
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

// why returns what was found wrong with an extent, if anything.
func (r *rot) why(x ExtentID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[x]
}

// Rotten returns the extents here that reads found rotten, and what they found.
func (s *Store) Rotten() map[ExtentID]error {
	s.rot.mu.Lock()
	defer s.rot.mu.Unlock()
	all := make(map[ExtentID]error, len(s.rot.found))
	for x, err := range s.rot.found {
		all[x] = err
	}
	return all
}

// forgetRot notes that an extent was healed or dropped.
func (s *Store) forgetRot(x ExtentID) {
	s.rot.mu.Lock()
	defer s.rot.mu.Unlock()
	delete(s.rot.found, x)
}
