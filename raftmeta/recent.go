package raftmeta

import (
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// recentMax is how many entries are kept: those that followers a few
	// messages behind still need.
	recentMax = 1024
	// recentBytesMax is the largest entry that is kept, so that all of them
	// have 8 MiB at most.
	recentBytesMax = 8 << 10
)

// recentEntries are the entries stored last. Reading one from the file takes a
// transaction and decodes it; raft does so for each follower, and to apply it.
type recentEntries struct {
	// mu guards the field in it. Never held across I/O.
	mu struct {
		sync.RWMutex
		// ring has entry i at i modulo recentMax.
		ring [recentMax]raft.Log
	}
}

// put keeps l, which has been stored.
func (r *recentEntries) put(l *raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &r.mu.ring[l.Index%recentMax]
	if *at = (raft.Log{}); len(l.Data) <= recentBytesMax {
		*at = *l
		at.Extensions = nil
	}
}

// get tells whether the entry at index is kept, and copies it to l.
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

// remove forgets the entries from first to last.
func (r *recentEntries) remove(first, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.mu.ring {
		if at := &r.mu.ring[i]; at.Index >= first && at.Index <= last {
			*at = raft.Log{}
		}
	}
}
