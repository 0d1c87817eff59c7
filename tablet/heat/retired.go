package heat

import "sync"

// retiredMax is the number of retired tablets that are kept.
const retiredMax = 1024

// Retired keeps the counters of the last tablets that are no longer served, for example of the parent of a split: operations that had
// begun on one of them may still end. It is safe for concurrent use.
type Retired struct {
	// mu guards what follows. Never held with another lock.
	mu  sync.Mutex
	all []*Tablet
}

// Add adds a tablet that no new operation uses. Above retiredMax the oldest is forgotten.
func (r *Retired) Add(t *Tablet) {
	if t == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= retiredMax {
		r.all = append(r.all[:0], r.all[1:]...)
	}
	r.all = append(r.all, t)
}

// Take returns what was noted for them since the last call.
func (r *Retired) Take() (parts []*Part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.all {
		if p := t.Take(); p != nil {
			parts = append(parts, p)
		}
	}
	return parts
}
