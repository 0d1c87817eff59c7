package blobfs

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
func (k *repairer) drain(v *view) {
	st := DrainStatus{Draining: k.stateOf(v, k.s.self) == nodeDraining}
	if st.Draining {
		st.Extents = int64(k.s.disks.Extents())
		k.countLogs(k.s.ctx, &st)
		st.Safe = st.Extents == 0 && st.LogExtentsOpen+st.LogExtentsSealed+st.LogsUnknown == 0
	}
	k.mu.Lock()
	k.mu.drain = st
	k.mu.Unlock()
}

// logReplicasPage is how many log replicas are listed at a time.
const logReplicasPage = 256

// countLogs counts the log extents that this node must keep.
func (k *repairer) countLogs(ctx context.Context, st *DrainStatus) {
	type logKey struct {
		server string
		id     ID
	}
	lists := map[logKey]*logproto.List{}
	var log ID
	var seq uint64
	for {
		infos := k.s.disks.ListLogReplicas(log, seq, logReplicasPage)
		for i := range infos {
			x := &infos[i]
			key := logKey{x.Server, x.Log}
			l, known := lists[key]
			if !known {
				// If one list cannot be read, the others are skipped: each would wait for a
				// timeout.
				read := st.LogsUnknown == 0
				if read {
					var err error
					l, err = k.logList(ctx, x)
					read = err == nil
				}
				if !read {
					st.LogsUnknown++
				}
				lists[key] = l
			}
			if l != nil {
				k.countLogExtent(l, x.Seq, st)
			}
		}
		if len(infos) < logReplicasPage {
			return
		}
		log, seq = infos[len(infos)-1].Log, infos[len(infos)-1].Seq
	}
}

// logList returns the list of a replica's log; nil if there is none, so that the replica is
// garbage.
func (k *repairer) logList(ctx context.Context, x *local.LogReplicaInfo) (*logproto.List, error) {
	ctx, cancel := context.WithTimeout(ctx, k.s.cluster.ReplyTimeout)
	defer cancel()
	l, gen, err := k.s.logs.Load(ctx, x.Server, x.Log)
	if err != nil || gen == 0 {
		return nil, err
	}
	return &l, nil
}

func (k *repairer) countLogExtent(l *logproto.List, seq uint64, st *DrainStatus) {
	for _, x := range l.Extents {
		switch {
		case x.Seq != seq || !slices.Contains(x.Replicas, k.s.self):
		case x.Length == logproto.Open:
			st.LogExtentsOpen++
		default:
			st.LogExtentsSealed++
		}
	}
}
