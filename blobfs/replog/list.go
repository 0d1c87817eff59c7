package replog

import (
	"context"
	"fmt"
	"path"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/wire"
)

// dir is the directory in the lock service that holds the lists of logs: a subdirectory for
// each server, with a file for each log. A file is the MessagePack array
//
//	[1, epoch, owner, closed, start, [[extent, length, [node...]]...]]
//
// in which a length of -1 means open. Later versions append; readers skip unknown values.
const dir = "/logs"

const (
	listVersion = 1
	listValues  = 6
)

func listPath(server string, id local.ID) string { return path.Join(dir, server, id.String()) }

func appendList(e *wire.Encoder, l *logproto.List) {
	e.Array(listValues)
	e.Uint(listVersion)
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

// EncodeList encodes a log's list for the lock service.
func EncodeList(l *logproto.List) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	appendList(e, l)
	return append([]byte(nil), e.Bytes()...)
}

// DecodeList decodes the form that EncodeList returns, and validates it.
func DecodeList(b []byte) (logproto.List, error) {
	var l logproto.List
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return l, fmt.Errorf("log list: %w", err)
	}
	d := wire.NewDecoder(b)
	more := d.Array() - listValues
	if v := d.Uint(); d.Err() == nil && v != listVersion {
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

// Load returns the list of a server's log; generation 0 if there is none, and local.ErrNoLog without
// a lock service.
func (logs *Logs) Load(ctx context.Context, server string, id local.ID) (logproto.List, uint64, error) {
	if logs.deps.Lists == nil {
		return logproto.List{}, 0, local.ErrNoLog
	}
	return logs.load(ctx, listPath(server, id))
}

// load reads a list; generation 0 if there is none.
func (logs *Logs) load(ctx context.Context, path string) (logproto.List, uint64, error) {
	b, gen, err := logs.deps.Lists.Load(ctx, path)
	if err != nil || gen == 0 {
		return logproto.List{}, 0, err
	}
	l, err := DecodeList(b)
	return l, gen, err
}

// List returns the logs of a server, as listed in the lock service.
func (logs *Logs) List(ctx context.Context, server string) ([]local.ID, error) {
	names, err := logs.deps.Lists.List(ctx, path.Join(dir, server))
	if err != nil {
		return nil, fmt.Errorf("list logs of %s: %w", server, err)
	}
	var ids []local.ID
	for _, n := range names {
		id, err := local.ParseID(n)
		if err != nil {
			return nil, fmt.Errorf("list logs of %s: %w", server, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
