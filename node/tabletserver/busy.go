package tabletserver

import "sync"

// Busy has the tablets that are being loaded or unloaded, by the master's key, so that these take turns.
type Busy struct {
	// mu guards the field in it.
	mu struct {
		sync.Mutex
		keys map[string]bool
	}
}

// Reserve reserves a tablet for loading or unloading until Release. It reports false if it is reserved.
func (b *Busy) Reserve(key []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.keys[string(key)] {
		return false
	}
	if b.mu.keys == nil {
		b.mu.keys = map[string]bool{}
	}
	b.mu.keys[string(key)] = true
	return true
}

// Release ends a reservation.
func (b *Busy) Release(key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.keys, string(key))
}

func (b *Busy) has(key []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.keys[string(key)]
}
