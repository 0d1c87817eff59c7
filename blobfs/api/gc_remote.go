package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// callGC calls a method with the parameters r.
func (m *Remote) callGC(ctx context.Context, method string, r gcRequest, decode func(*wire.Decoder)) error {
	r.gcShape = gcShapeOf(method)
	return m.conns.call(ctx, laneCalls, method, r.append, decode)
}

// BeginSweep implements Sweep.
func (m *Remote) BeginSweep(ctx context.Context, round uint64) (alarm string, err error) {
	err = m.callGC(ctx, MethodSweepBegin, gcRequest{round: round}, func(d *wire.Decoder) { alarm = d.Str() })
	return alarm, err
}

// SweepPins implements Sweep.
func (m *Remote) SweepPins(ctx context.Context, round uint64, after local.ID, max int) (ids []local.ID, err error) {
	r := gcRequest{round: round, blob: after, count: min(max, SweepMax)}
	err = m.callGC(ctx, MethodSweepPins, r, func(d *wire.Decoder) { ids = decodeBlobIDs(d) })
	return ids, err
}

// SweepExtents implements Sweep.
func (m *Remote) SweepExtents(ctx context.Context, round uint64, max int) (all []local.ExtentID, err error) {
	r := gcRequest{round: round, count: min(max, SweepMax)}
	err = m.callGC(ctx, MethodSweepExtents, r, func(d *wire.Decoder) { all = decodeList(d, SweepMax, decodeExtentID) })
	return all, err
}

// JudgeExtents implements Sweep.
func (m *Remote) JudgeExtents(ctx context.Context, round uint64, upTo local.ExtentID, garbage []local.ExtentID) (alarm string, err error) {
	r := gcRequest{round: round, extent: upTo, extents: garbage}
	err = m.callGC(ctx, MethodSweepJudge, r, func(d *wire.Decoder) { alarm = d.Str() })
	return alarm, err
}

// SweepReplicas implements Sweep.
func (m *Remote) SweepReplicas(ctx context.Context, round uint64, max int) (all []SweepReplica, err error) {
	r := gcRequest{round: round, count: min(max, SweepMax)}
	err = m.callGC(ctx, MethodSweepReplicas, r, func(d *wire.Decoder) { all = decodeSweepReplicas(d) })
	return all, err
}

// JudgeReplicas implements Sweep.
func (m *Remote) JudgeReplicas(ctx context.Context, round uint64, upTo ReplicaKey, garbage []ReplicaKey) (alarm string, err error) {
	r := gcRequest{round: round, replica: upTo, replicas: garbage}
	err = m.callGC(ctx, MethodSweepJudgeReplicas, r, func(d *wire.Decoder) { alarm = d.Str() })
	return alarm, err
}

// EndSweep implements Sweep.
func (m *Remote) EndSweep(ctx context.Context, round uint64) (swept Swept, err error) {
	err = m.callGC(ctx, MethodSweepEnd, gcRequest{round: round}, func(d *wire.Decoder) { swept = decodeSwept(d) })
	return swept, err
}

// ReviveBlob implements Sweep.
func (m *Remote) ReviveBlob(ctx context.Context, blob local.ID) (n int, err error) {
	err = m.callGC(ctx, MethodSweepRevive, gcRequest{blob: blob}, func(d *wire.Decoder) { n = int(decodeInt(d, 0, local.ExtentsMax)) })
	return n, err
}

// ClearAlarm implements Sweep.
func (m *Remote) ClearAlarm(ctx context.Context) error {
	return m.callGC(ctx, MethodSweepClear, gcRequest{}, nil)
}
