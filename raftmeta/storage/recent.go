package storage

import (
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// recentMax is the number of cached entries: those that followers a few messages behind still
	// need.
	recentMax = 1024
	// recentBytesMax bounds a cached entry, so that the cache has at most 8 MiB.
	recentBytesMax = 8 << 10
)

// recentEntries caches the entries stored last. A read from the file takes a transaction and
// decodes the entry, and raft reads each entry for each follower, and to apply it.
type recentEntries struct {
	// mu guards the field in it. Never held across I/O.
	mu struct {
		sync.RWMutex
		// ring has entry i at index i modulo recentMax.
		ring [recentMax]raft.Log
	}
}

// put caches l, which has been stored.
func (r *recentEntries) put(l *raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &r.mu.ring[l.Index%recentMax]
	if *at = (raft.Log{}); len(l.Data) <= recentBytesMax {
		*at = *l
		at.Extensions = nil
	}
}

// get copies the entry at index to l, and reports whether it is cached.
func (r *recentEntries) get(index uint64, l *raft.Log) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	at := &r.mu.ring[index%recentMax]
	if at.Index != index || index == 0 {
		return false
	}
	*l = *at
	return true
}

// remove drops the entries from first to last.
func (r *recentEntries) remove(first, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.mu.ring {
		if at := &r.mu.ring[i]; at.Index >= first && at.Index <= last {
			*at = raft.Log{}
		}
	}
}
