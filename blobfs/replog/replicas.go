package replog

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// Replicas are the log replicas on the disks of this node.
type Replicas struct{ logs *Logs }

// OpenLog implements api.Logs.
func (r *Replicas) OpenLog(ctx context.Context, o local.LogOpen) (int64, error) {
	return r.logs.deps.Disks.OpenLogReplica(ctx, o)
}

// AppendLog implements api.Logs.
func (r *Replicas) AppendLog(_ context.Context, a local.LogAppend, done func(int64, error)) {
	if !r.logs.deps.Disks.QueueLog(a, done) {
		return
	}
	flush := func() { r.logs.deps.Disks.FlushLog(a.Log, a.Seq) }
	if !r.logs.deps.Work.Go(flush) {
		flush() // the store is closed: FlushLog rejects what is queued
	}
}

// FenceLog implements api.Logs.
func (r *Replicas) FenceLog(ctx context.Context, log local.ID, epoch uint64) ([]logproto.State, error) {
	return r.logs.deps.Disks.FenceLog(ctx, log, epoch)
}

// CutLog implements api.Logs.
func (r *Replicas) CutLog(ctx context.Context, c local.LogCut) error {
	return r.logs.deps.Disks.CutLog(ctx, c)
}

// RefillLog implements api.Logs.
func (r *Replicas) RefillLog(ctx context.Context, c local.LogCut, from []string) error {
	errs := []error{logproto.ErrNoExtent}
	for _, node := range from {
		if node == r.logs.self {
			continue
		}
		err := r.refillFrom(ctx, c, node)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("from %s: %w", node, err))
	}
	return errors.Join(errs...)
}

func (r *Replicas) refillFrom(ctx context.Context, c local.LogCut, node string) error {
	p, err := r.logs.deps.Peers.Peer(ctx, node)
	if err != nil {
		return err
	}
	info, err := p.StatLog(ctx, c.Log, c.Seq)
	if err != nil {
		return err
	}
	if !info.Sealed || info.Start != c.Start || info.Length != c.Length {
		return logproto.ErrUncut
	}
	read := api.LogRead{Log: c.Log, Seq: c.Seq, Start: c.Start, Length: c.Length}
	return r.logs.deps.Disks.RefillLog(ctx, c, local.LogSource{
		Server: info.Server, Epoch: info.Epoch, Salt: info.Salt,
		Read: func(ctx context.Context, b []byte, off int64) (int, error) { return p.ReadLog(ctx, read, b, off) },
	})
}

// StatLog implements api.Logs.
func (r *Replicas) StatLog(_ context.Context, log local.ID, seq uint64) (local.LogReplicaInfo, error) {
	return r.logs.deps.Disks.StatLogReplica(log, seq)
}

// ReadLog implements api.Logs.
func (r *Replicas) ReadLog(ctx context.Context, x api.LogRead, p []byte, off int64) (int, error) {
	return r.logs.deps.Disks.ReadLogReplica(ctx, x.Log, x.Seq, x.Start, x.Length, p, off)
}

// DropLog implements api.Logs.
func (r *Replicas) DropLog(ctx context.Context, log local.ID, seq uint64) error {
	return r.logs.deps.Disks.DropLogReplica(ctx, log, seq)
}

// ListLogs implements api.Logs.
func (r *Replicas) ListLogs(_ context.Context, log local.ID, seq uint64, max int) ([]local.LogReplicaInfo, error) {
	return r.logs.deps.Disks.ListLogReplicas(log, seq, max), nil
}

// VerifyLog implements api.Logs.
func (r *Replicas) VerifyLog(ctx context.Context, log local.ID, seq uint64) error {
	return r.logs.deps.Disks.VerifyLogReplica(ctx, log, seq)
}
