package blobfs

import (
	"context"
	"fmt"
	"path"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/wire"
)

// logsDir is the directory in the lock service that holds the lists of logs: a subdirectory for
// each server, with a file for each log. A file is the MessagePack array
//
//	[1, epoch, owner, closed, start, [[extent, length, [node...]]...]]
//
// in which a length of -1 means open. Later versions append; readers skip unknown values.
const logsDir = "/logs"

const (
	logListVersion = 1
	logListValues  = 6
)

func logPath(server string, id ID) string { return path.Join(logsDir, server, id.String()) }

func appendLogList(e *wire.Encoder, l *logproto.List) {
	e.Array(logListValues)
	e.Uint(logListVersion)
	e.Uint(l.Epoch)
	e.Uint(l.Owner)
	e.Bool(l.Closed)
	e.Int(l.Start)
	e.Array(len(l.Extents))
	for _, x := range l.Extents {
		e.Array(3)
		e.Uint(x.Seq)
		e.Int(x.Length)
		e.Array(len(x.Replicas))
		for _, n := range x.Replicas {
			e.Str(n)
		}
	}
}

// EncodeLogList encodes a list for the lock service.
func EncodeLogList(l *logproto.List) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	appendLogList(e, l)
	return append([]byte(nil), e.Bytes()...)
}

// DecodeLogList decodes the form that EncodeLogList returns, and validates it.
func DecodeLogList(b []byte) (logproto.List, error) {
	var l logproto.List
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return l, fmt.Errorf("log list: %w", err)
	}
	d := wire.NewDecoder(b)
	more := d.Array() - logListValues
	if v := d.Uint(); d.Err() == nil && v != logListVersion {
		return l, fmt.Errorf("log list: version %d is unknown", v)
	}
	l.Epoch, l.Owner, l.Closed, l.Start = d.Uint(), d.Uint(), d.Bool(), d.Int()
	for n := d.ArrayMax(logproto.ExtentsMax); n > 0 && d.Err() == nil; n-- {
		rest := d.Array() - 3
		x := logproto.Extent{Seq: d.Uint(), Length: d.Int()}
		for m := d.ArrayMax(logproto.ReplicasMax); m > 0 && d.Err() == nil; m-- {
			x.Replicas = append(x.Replicas, d.Str())
		}
		for range rest {
			d.Skip()
		}
		l.Extents = append(l.Extents, x)
	}
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return logproto.List{}, fmt.Errorf("log list: %w", err)
	}
	if err := l.Validate(); err != nil {
		return logproto.List{}, err
	}
	return l, nil
}

// loadLogList reads the list of a log; generation 0 if there is none.
func (s *Store) loadLogList(ctx context.Context, path string) (logproto.List, uint64, error) {
	b, gen, err := s.cluster.Lists.Load(ctx, path)
	if err != nil || gen == 0 {
		return logproto.List{}, 0, err
	}
	l, err := DecodeLogList(b)
	return l, gen, err
}

// logLists implements gc.Logs.
type logLists struct{ s *Store }

func (l logLists) List(ctx context.Context, server string, id ID) (logproto.List, uint64, error) {
	return l.s.loadLogList(ctx, logPath(server, id))
}

// SpreadLogs returns the logs of a server, as listed in the lock service.
func (s *Store) SpreadLogs(ctx context.Context, server string) ([]ID, error) {
	names, err := s.cluster.Lists.List(ctx, path.Join(logsDir, server))
	if err != nil {
		return nil, fmt.Errorf("list logs of %s: %w", server, err)
	}
	var ids []ID
	for _, n := range names {
		id, err := ParseID(n)
		if err != nil {
			return nil, fmt.Errorf("list logs of %s: %w", server, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
