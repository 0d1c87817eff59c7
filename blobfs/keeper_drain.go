package blobfs

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// drainEvery is how often a node that leaves looks at what it still has.
const drainEvery = 5 * time.Second

// DrainStatus is what a node that leaves still has.
type DrainStatus struct {
	Leaving bool
	// Extents are those that are here: each is dropped once enough nodes that stay have told that they have it.
	Extents int64
	// LogExtentsOpen and LogExtentsSealed count extents of logs whose lists name this node. The open ones end
	// when their writers go on elsewhere, the sealed ones when the tablets need them no more.
	LogExtentsOpen, LogExtentsSealed int64
	// LogsUnknown counts logs with replicas here whose lists could not be read.
	LogsUnknown int64
	// Safe means that nothing would be lost, and no extent would have too few replicas, without this node.
	Safe bool
}

// drain finds out what is still here.
func (k *keeper) drain(v *view) {
	st := DrainStatus{Leaving: k.of(v, k.s.self) == leaving}
	if st.Leaving {
		st.Extents = int64(k.s.disks.Extents())
		k.countLogs(k.s.ctx, &st)
		st.Safe = st.Extents == 0 && st.LogExtentsOpen+st.LogExtentsSealed+st.LogsUnknown == 0
	}
	k.mu.Lock()
	k.mu.drain = st
	k.mu.Unlock()
}

// logReplicasPage is how many replicas of logs are looked at at a time.
const logReplicasPage = 256

// countLogs counts the extents of logs that this node must keep.
func (k *keeper) countLogs(ctx context.Context, st *DrainStatus) {
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
				// Once one cannot be read nor will the others be, and each would take its time.
				err := ErrNoReplica
				if st.LogsUnknown == 0 {
					l, err = k.logList(ctx, x)
				}
				if err != nil {
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

// logList returns the list of a replica's log; nil if there is none: then the replica is garbage.
func (k *keeper) logList(ctx context.Context, x *local.LogReplicaInfo) (*logproto.List, error) {
	if k.s.cluster.Lists == nil {
		return nil, ErrNoLog
	}
	ctx, cancel := context.WithTimeout(ctx, k.s.cluster.ReplyTimeout)
	defer cancel()
	l, gen, err := k.s.loadLogList(ctx, logPath(x.Server, x.Log))
	if err != nil || gen == 0 {
		return nil, err
	}
	return &l, nil
}

func (k *keeper) countLogExtent(l *logproto.List, seq uint64, st *DrainStatus) {
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
