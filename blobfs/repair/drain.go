package repair

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// drainEvery is how often a draining node scans what it still holds.
const drainEvery = 5 * time.Second

// DrainStatus is what a draining node still holds.
type DrainStatus struct {
	Draining bool
	// Extents counts the extents here. Each is dropped once enough of the remaining nodes have
	// confirmed that they have it.
	Extents int64
	// LogExtentsOpen and LogExtentsSealed count log extents whose lists name this node. Open ones
	// end when their writers move to another extent, sealed ones when the tablets release them.
	LogExtentsOpen, LogExtentsSealed int64
	// LogsUnknown counts logs with replicas here whose lists could not be read.
	LogsUnknown int64
	// Safe means that this node can be removed: nothing would be lost or under-replicated.
	Safe bool
}

// drain updates the drain status.
func (k *Repairer) drain(v *view) {
	st := DrainStatus{Draining: k.stateOf(v, k.self) == nodeDraining}
	if st.Draining {
		st.Extents = int64(k.deps.Disks.Extents())
		counter := logCounter{k: k, st: &st, lists: map[logKey]*logproto.List{}}
		counter.count(k.ctx)
		st.Safe = st.Extents == 0 && st.LogExtentsOpen+st.LogExtentsSealed+st.LogsUnknown == 0
	}
	k.mu.Lock()
	k.mu.drain = st
	k.mu.Unlock()
}

// logReplicasPage is how many log replicas are listed at a time.
const logReplicasPage = 256

// logCounter counts the log extents that a draining node must keep.
type logCounter struct {
	k     *Repairer
	st    *DrainStatus
	lists map[logKey]*logproto.List
}

type logKey struct {
	server string
	id     local.ID
}

// count counts the log extents of which this node has replicas.
func (c *logCounter) count(ctx context.Context) {
	var log local.ID
	var seq uint64
	for {
		infos := c.k.deps.Disks.ListLogReplicas(log, seq, logReplicasPage)
		for i := range infos {
			if l := c.list(ctx, &infos[i]); l != nil {
				c.countExtent(l, infos[i].Seq)
			}
		}
		if len(infos) < logReplicasPage {
			return
		}
		log, seq = infos[len(infos)-1].Log, infos[len(infos)-1].Seq
	}
}

// list returns the list of a replica's log, which is read once. It is nil if it could not be read, or
// if there is none, so that the replica is garbage.
func (c *logCounter) list(ctx context.Context, x *local.LogReplicaInfo) *logproto.List {
	key := logKey{x.Server, x.Log}
	l, known := c.lists[key]
	if known {
		return l
	}
	// If one list cannot be read, the others are skipped: each would wait for a timeout.
	if c.st.LogsUnknown > 0 {
		c.st.LogsUnknown++
	} else {
		var err error
		if l, err = c.load(ctx, x); err != nil {
			c.st.LogsUnknown++
		}
	}
	c.lists[key] = l
	return l
}

func (c *logCounter) load(ctx context.Context, x *local.LogReplicaInfo) (*logproto.List, error) {
	ctx, cancel := context.WithTimeout(ctx, c.k.deps.ReplyTimeout)
	defer cancel()
	l, gen, err := c.k.deps.Logs.Load(ctx, x.Server, x.Log)
	if err != nil || gen == 0 {
		return nil, err
	}
	return &l, nil
}

func (c *logCounter) countExtent(l *logproto.List, seq uint64) {
	for _, x := range l.Extents {
		switch {
		case x.Seq != seq || !slices.Contains(x.Replicas, c.k.self):
		case x.Length == logproto.Open:
			c.st.LogExtentsOpen++
		default:
			c.st.LogExtentsSealed++
		}
	}
}
