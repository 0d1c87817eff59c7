package blobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/reply"
)

// nodeStoreTimeout bounds the wait for another node's status.
const nodeStoreTimeout = 3 * time.Second

// status returns the status of this node's block store, and those of all other nodes unless only this one is requested.
func (bs *Service) status(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	store := bs.Store()
	s := &api.StoreStatus{ReplicationFactor: int64(store.Wanted())}
	if r.Here {
		s.Nodes = []api.NodeStore{bs.nodeStore(ctx, store)}
		return s.Append, nil
	}
	members := bs.Members().Members()
	s.Nodes = make([]api.NodeStore, len(members))
	var group sync.WaitGroup
	for i := range members {
		group.Go(func() { s.Nodes[i] = bs.askNodeStore(ctx, members[i].ID) })
	}
	group.Wait()
	return s.Append, ctx.Err()
}

func (bs *Service) askNodeStore(ctx context.Context, id string) api.NodeStore {
	if id == bs.ID() {
		return bs.nodeStore(ctx, bs.Store())
	}
	ctx, cancel := context.WithTimeout(ctx, nodeStoreTimeout)
	defer cancel()
	var s api.StoreStatus
	r := api.BlobRequest{Method: api.MethodBlobStatus, Here: true}
	err := bs.Peers.Call(ctx, id, r.Method, r.Append, s.Decode)
	if err == nil && len(s.Nodes) != 1 {
		err = errors.New("want the status of one node")
	}
	if err != nil {
		return api.NodeStore{Node: id, Name: bs.nameOf(id), Error: err.Error()}
	}
	return s.Nodes[0]
}

// nodeStore returns the status of this node's block store.
func (bs *Service) nodeStore(ctx context.Context, store *blobfs.Store) api.NodeStore {
	k := store.Repairs()
	x := api.NodeStore{
		Node: bs.ID(), Name: bs.NodeName, Known: k.Known, Extents: k.Extents, Bytes: k.Bytes,
		UnderBytes: k.ToCopyBytes, CopyRate: k.BytesPerSec, Copied: k.Copied, CopiedBytes: k.CopiedBytes,
		Surplus: k.Surplus, Trimmed: k.Trimmed, Corrupt: k.Corrupt, Healed: k.Healed, Unhealed: k.Unhealed,
		ScrubPosition: k.Scrub.Position, ScrubRate: k.Scrub.BytesPerSec, ScrubBytes: k.Scrub.Read, ScrubFound: k.Scrub.Found,
		Balancing: k.Balance.Active, Moved: k.Moved, MovedBytes: k.MovedBytes, BalanceRate: k.Balance.BytesPerSec,
		Draining: k.Drain.Draining, DrainExtents: k.Drain.Extents, Safe: k.Drain.Safe,
		DrainLogs: k.Drain.LogExtentsOpen + k.Drain.LogExtentsSealed + k.Drain.LogsUnknown, Alarm: store.Alarm(),
	}
	x.Under, x.OneLeft = Under(&k)
	x.ScrubbedAt = time.UnixMilli(0)
	if !k.Scrub.LastPass.IsZero() {
		x.ScrubbedAt = k.Scrub.LastPass
	}
	for _, f := range store.Stats().Folders {
		x.Quarantined += int64(f.QuarantineFiles)
		x.QuarantinedBytes += f.QuarantineBytes
		if f.Retired != nil {
			x.FailedDisks = append(x.FailedDisks, Disk(bs.FS, &f))
		}
	}
	x.Logs, x.LogReplicas = OpenLogs(store)
	x.LogUnder = UnderLogs(store)
	x.LogTimes = bs.LogTimes()
	pauses, longest := bs.Pauses()
	x.Pauses, x.PauseMaxMS = pauses, longest.Milliseconds()
	bs.addSweep(ctx, store, &x)
	return x
}

// Disk returns the state of a data folder for clients.
func Disk(fs vfs.FS, f *local.FolderStats) api.DiskStatus {
	d := api.DiskStatus{Path: f.Path, FreeBytes: f.FreeBytes, UsedBytes: f.BlobBytes + f.LogBytes, Retired: f.Retired != nil}
	if disk, err := vfs.DiskOf(fs, f.Path); err == nil {
		d.TotalBytes = disk.TotalBytes
	}
	if f.Retired != nil {
		d.Error, d.FailedForS = f.Retired.Error(), time.Since(f.RetiredAt).Seconds()
	}
	return d
}

// gcStateTimeout bounds the master's wait for the state of garbage collection.
const gcStateTimeout = time.Second

// addSweep adds the statistics of garbage collection on this node and, if it is the master, whether it is halted.
func (bs *Service) addSweep(ctx context.Context, store *blobfs.Store, x *api.NodeStore) {
	if bs.MasterEpoch() != 0 {
		ctx, cancel := context.WithTimeout(ctx, gcStateTimeout)
		defer cancel()
		if halted, err := store.GC().Halted(ctx); err == nil {
			x.SweepHalted = halted
		} else {
			x.SweepHalted = store.GC().Status().Halted
		}
	}
	s := store.GC().Status()
	x.Sweeps, x.SweepsFailed, x.SweepRound, x.SweptAt = s.Rounds, s.Failed, int64(s.Last.Round), time.UnixMilli(0)
	x.SweptFound, x.SweptAside, x.SweptRemoved, x.SweptRemovedBytes = int64(s.Last.Garbage), int64(s.Last.Quarantined), int64(s.Last.Removed), s.Last.Bytes
	if x.SweepError = s.Err; !s.At.IsZero() {
		x.SweptAt = s.At
	}
}

// Under returns the number of under-replicated extents that this node repairs, and how many of them have one replica or none.
func Under(k *repair.Status) (all, oneLeft int64) {
	for live, count := range k.Short {
		all += count
		if live <= 1 {
			oneLeft += count
		}
	}
	return all, oneLeft
}

// OpenLogs returns the number of logs that this node appends to, and the smallest number of nodes that one of them is on.
func OpenLogs(store *blobfs.Store) (logs, replicas int64) {
	for i, l := range store.ReplicatedLogs().Writers() {
		if logs++; i == 0 || int64(l.Replicas) < replicas {
			replicas = int64(l.Replicas)
		}
	}
	return logs, replicas
}

// UnderLogs returns the number of sealed extents of the logs that this node appends to that are under-replicated.
func UnderLogs(store *blobfs.Store) (n int64) {
	for _, l := range store.ReplicatedLogs().Writers() {
		n += int64(l.Under)
	}
	return n
}
