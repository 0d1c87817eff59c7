package world

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// Files that stir writes.
const (
	stirFiles = 3
	stirBytes = 8 << 10
	stirPause = 150 * time.Millisecond // at most between two writes
	stirBurst = 64                     // writes, and then a rest
	stirRest  = 20 * time.Second       // at most
)

// stir writes a few files of the lock service again and again until the context ends with the faults, in some plans: snapshots become
// frequent, and voters that were away get them. No judge reads the files; samples of the voters compare them (SW9).
func (w operators) stir(ctx context.Context) {
	if !w.plan.stir {
		return
	}
	locks, err := cluster{w.World}.OpenLocks(int(w.cfg.Seed))
	if err != nil {
		w.trace.addf("world", "error: %v", err)
		return
	}
	defer locks.Close()
	data := make([]byte, stirBytes)
	for i := uint64(0); ctx.Err() == nil; i++ {
		binary.BigEndian.PutUint64(data[i%stirBytes/8*8:], i)
		once, cancel := context.WithTimeout(ctx, probeTimeout)
		if _, err := locks.Set(once, fmt.Sprintf("/locks/stir%d", i%stirFiles), data, api.AnyGeneration, api.SetOptions{}); err == nil {
			w.count("writes that stir the lock service")
		}
		cancel()
		if sleepIn(ctx, w.between(0, stirPause)); i%stirBurst == stirBurst-1 {
			sleepIn(ctx, w.between(0, stirRest)) // what a voter lacks now, no later snapshot brings
		}
	}
}
