package repair

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/steledb/stele/blobfs/local"
)

// corruptExtentsMax bounds the corrupt extents that are remembered. The scrub finds the others
// again.
const corruptExtentsMax = 4096

// Corruption records the extents on this node that were found corrupt. They are not dropped at
// once: it may be the last replica, and other chunks of it may be good.
type Corruption struct {
	log     *slog.Logger
	onFound func(x local.ExtentID) // queues the repair; nil without a repairer

	mu    sync.Mutex
	found map[local.ExtentID]error
}

// NewCorruption returns a record of no extents.
func NewCorruption(log *slog.Logger) *Corruption { return &Corruption{log: log} }

// RecordIfCorrupt records an extent if err is the corruption that a read found.
func (r *Corruption) RecordIfCorrupt(x local.ExtentID, err error) {
	var corrupt *local.CorruptError
	if err == nil || !errors.As(err, &corrupt) || errors.Is(err, local.ErrOtherExtent) {
		return
	}
	r.Record(x, err)
}

// Record records that an extent here is corrupt, and queues its repair.
func (r *Corruption) Record(x local.ExtentID, err error) {
	if !r.add(x, err) {
		return
	}
	r.log.Error("extent corrupt", "extent", x.String(), "err", err)
	if r.onFound != nil {
		r.onFound(x)
	}
}

// add records an extent. It returns false if the extent is known already or there are too many.
func (r *Corruption) add(x local.ExtentID, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found == nil {
		r.found = make(map[local.ExtentID]error)
	}
	if _, known := r.found[x]; known || len(r.found) >= corruptExtentsMax {
		return false
	}
	r.found[x] = err
	return true
}

// Has reports whether an extent was found corrupt.
func (r *Corruption) Has(x local.ExtentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.found[x]
	return ok
}

// Count returns the number of extents.
func (r *Corruption) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found)
}

// Reason returns the corruption found in an extent; nil if none was.
func (r *Corruption) Reason(x local.ExtentID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found[x]
}

// All returns the extents on this node that were found corrupt, and the error of each.
func (r *Corruption) All() map[local.ExtentID]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[local.ExtentID]error, len(r.found))
	for x, err := range r.found {
		all[x] = err
	}
	return all
}

// Clear removes the record of an extent that was healed or dropped.
func (r *Corruption) Clear(x local.ExtentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.found, x)
}
