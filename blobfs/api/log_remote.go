package api

import (
	"context"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/wire"
)

// callLog calls a method with the parameters r.
func (m *Remote) callLog(ctx context.Context, lane lane, method string, r logRequest, decode func(*wire.Decoder)) error {
	r.logShape = logShapeOf(method)
	return m.conns.call(ctx, lane, method, r.append, decode)
}

// OpenLog implements Logs.
func (m *Remote) OpenLog(ctx context.Context, o local.LogOpen) (capacity int64, err error) {
	r := logRequest{log: o.Log, server: o.Server, seq: o.Seq, epoch: o.Epoch, salt: o.Salt, highPriority: o.HighPriority}
	err = m.callLog(ctx, laneCalls, MethodLogOpen, r, func(d *wire.Decoder) { capacity = decodeInt(d, 0, logExtentBytesMax) })
	return capacity, err
}

// AppendLog implements Logs. It may dial, and blocks while too many bytes of the connection are
// unsent. ctx bounds both, and the wait for the answer.
func (m *Remote) AppendLog(ctx context.Context, a local.LogAppend, done func(int64, error)) {
	if len(a.Frames) > LogBytesMax {
		done(0, badBytes(len(a.Frames)))
		return
	}
	r := logRequest{logShape: logShapeOf(MethodLogAppend), log: a.Log, seq: a.Seq, epoch: a.Epoch, start: a.Start, pos: a.Pos, frames: a.Frames}
	conn, err := m.conns.get(ctx, laneLogs)
	if err != nil {
		done(0, err)
		return
	}
	err = conn.Go(ctx, r.method, r.append, func(d *wire.Decoder, err error) {
		var length int64
		if err == nil {
			length = decodeInt(d, 0, logExtentBytesMax)
			err = d.Err()
		}
		done(length, callError(err))
	})
	if err != nil {
		done(0, callError(err))
	}
}

// FenceLog implements Logs.
func (m *Remote) FenceLog(ctx context.Context, log local.ID, epoch uint64) (states []logproto.State, err error) {
	err = m.callLog(ctx, laneCalls, MethodLogFence, logRequest{log: log, epoch: epoch}, func(d *wire.Decoder) { states = decodeLogStates(d) })
	return states, err
}

func cutOf(c local.LogCut) logRequest {
	return logRequest{log: c.Log, seq: c.Seq, epoch: c.Epoch, start: c.Start, length: c.Length}
}

// CutLog implements Logs.
func (m *Remote) CutLog(ctx context.Context, c local.LogCut) error {
	return m.callLog(ctx, laneCalls, MethodLogCut, cutOf(c), nil)
}

// RefillLog implements Logs.
func (m *Remote) RefillLog(ctx context.Context, c local.LogCut, from []string) error {
	r := cutOf(c)
	r.nodes = from
	return m.callLog(ctx, laneCalls, MethodLogRefill, r, nil)
}

// StatLog implements Logs.
func (m *Remote) StatLog(ctx context.Context, log local.ID, seq uint64) (info local.LogReplicaInfo, err error) {
	err = m.callLog(ctx, laneCalls, MethodLogStat, logRequest{log: log, seq: seq}, func(d *wire.Decoder) { decodeLogInfo(d, &info) })
	return info, err
}

// ReadLog implements Logs.
func (m *Remote) ReadLog(ctx context.Context, l LogRead, p []byte, off int64) (n int, err error) {
	r := logRequest{log: l.Log, seq: l.Seq, start: l.Start, length: l.Length, offset: off, count: min(len(p), LogBytesMax)}
	err = m.callLog(ctx, laneReads, MethodLogRead, r, func(d *wire.Decoder) {
		b := d.Bytes()
		if len(b) > len(p) {
			d.Fail(badBytes(len(b)))
			return
		}
		n = copy(p, b)
	})
	return n, err
}

// DropLog implements Logs.
func (m *Remote) DropLog(ctx context.Context, log local.ID, seq uint64) error {
	return m.callLog(ctx, laneCalls, MethodLogDrop, logRequest{log: log, seq: seq}, nil)
}

// ListLogs implements Logs.
func (m *Remote) ListLogs(ctx context.Context, log local.ID, seq uint64, max int) (infos []local.LogReplicaInfo, err error) {
	r := logRequest{log: log, seq: seq, count: min(max, ListMax)}
	err = m.callLog(ctx, laneCalls, MethodLogList, r, func(d *wire.Decoder) { infos = decodeLogInfos(d) })
	return infos, err
}

// VerifyLog implements Logs.
func (m *Remote) VerifyLog(ctx context.Context, log local.ID, seq uint64) error {
	return m.callLog(ctx, laneCalls, MethodLogVerify, logRequest{log: log, seq: seq}, nil)
}
