package blobfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// OpenLog implements api.Logs.
func (v server) OpenLog(ctx context.Context, o local.LogOpen) (int64, error) {
	return v.s.disks.OpenLogReplica(ctx, o)
}

// AppendLog implements api.Logs.
func (v server) AppendLog(_ context.Context, a local.LogAppend, done func(int64, error)) {
	if !v.s.disks.QueueLog(a, done) {
		return
	}
	flush := func() { v.s.disks.FlushLog(a.Log, a.Seq) }
	if !v.s.work.Go(flush) {
		flush() // the store is closed: FlushLog rejects what is queued
	}
}

// FenceLog implements api.Logs.
func (v server) FenceLog(ctx context.Context, log ID, epoch uint64) ([]logproto.State, error) {
	return v.s.disks.FenceLog(ctx, log, epoch)
}

// CutLog implements api.Logs.
func (v server) CutLog(ctx context.Context, c local.LogCut) error { return v.s.disks.CutLog(ctx, c) }

// RefillLog implements api.Logs.
func (v server) RefillLog(ctx context.Context, c local.LogCut, from []string) error {
	errs := []error{logproto.ErrNoExtent}
	for _, node := range from {
		if node == v.s.self {
			continue
		}
		err := v.s.refillFrom(ctx, c, node)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("from %s: %w", node, err))
	}
	return errors.Join(errs...)
}

func (s *Store) refillFrom(ctx context.Context, c local.LogCut, node string) error {
	p, err := s.peers.Peer(ctx, node)
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
	r := api.LogRead{Log: c.Log, Seq: c.Seq, Start: c.Start, Length: c.Length}
	return s.disks.RefillLog(ctx, c, local.LogSource{
		Server: info.Server, Epoch: info.Epoch, Salt: info.Salt,
		Read: func(ctx context.Context, b []byte, off int64) (int, error) { return p.ReadLog(ctx, r, b, off) },
	})
}

// StatLog implements api.Logs.
func (v server) StatLog(_ context.Context, log ID, seq uint64) (local.LogReplicaInfo, error) {
	return v.s.disks.StatLogReplica(log, seq)
}

// ReadLog implements api.Logs.
func (v server) ReadLog(ctx context.Context, r api.LogRead, p []byte, off int64) (int, error) {
	return v.s.disks.ReadLogReplica(ctx, r.Log, r.Seq, r.Start, r.Length, p, off)
}

// DropLog implements api.Logs.
func (v server) DropLog(ctx context.Context, log ID, seq uint64) error {
	return v.s.disks.DropLogReplica(ctx, log, seq)
}

// ListLogs implements api.Logs.
func (v server) ListLogs(_ context.Context, log ID, seq uint64, max int) ([]local.LogReplicaInfo, error) {
	return v.s.disks.ListLogReplicas(log, seq, max), nil
}

// VerifyLog implements api.Logs.
func (v server) VerifyLog(ctx context.Context, log ID, seq uint64) error {
	return v.s.disks.VerifyLogReplica(ctx, log, seq)
}
