package blobfs

import (
	"context"
	"errors"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// Peer returns the methods that this node serves to other nodes, see api.Serve.
func (s *Store) Peer() api.Peer {
	return server{s: s, Sweep: s.gc.Participant(), Logs: s.logs.Replicas()}
}

// server is the store as other nodes see it. Its methods call other nodes only to forward down a
// chain and for Copy.
type server struct {
	s *Store
	api.Sweep
	api.Logs
}

// Begin implements api.Extents.
func (v server) Begin(_ context.Context, b api.Begin, done func(error)) {
	x, err := v.s.streams.begin(b)
	if err != nil {
		done(err)
		return
	}
	x.put(streamOp{do: func(x *stream) { done(x.start()) }, refuse: done})
}

// Piece implements api.Extents.
func (v server) Piece(_ context.Context, id api.StreamID, off int64, p []byte, done func(error)) {
	x, err := v.s.streams.find(id)
	if err != nil {
		done(err)
		return
	}
	x.put(streamOp{bytes: len(p), do: func(x *stream) { x.piece(off, p, done) }, refuse: done})
}

// Seal implements api.Extents.
func (v server) Seal(_ context.Context, s api.Seal, done func([]string, error)) {
	refuse := func(err error) { done(nil, err) }
	x, err := v.s.streams.find(s.Stream)
	if err != nil {
		refuse(err)
		return
	}
	x.put(streamOp{do: func(x *stream) { x.seal(s, done) }, refuse: refuse})
}

// ask runs do in a stream's goroutine and waits for it.
func (v server) ask(id api.StreamID, do func(x *stream) error) error {
	x, err := v.s.streams.find(id)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	x.put(streamOp{do: func(x *stream) { answer <- do(x) }, refuse: func(err error) { answer <- err }})
	return <-answer // not interrupted by ctx: do uses the caller's buffers
}

// Resume implements api.Extents.
func (v server) Resume(_ context.Context, id api.StreamID) (length int64, err error) {
	err = v.ask(id, func(x *stream) error {
		x.next, x.nextErr = nil, nil
		if x.err != nil {
			return x.err
		}
		length = x.w.Length()
		return nil
	})
	return length, err
}

// Reread implements api.Extents.
func (v server) Reread(_ context.Context, id api.StreamID, p []byte, off int64) error {
	return v.ask(id, func(x *stream) error {
		if x.err != nil {
			return x.err
		}
		return x.w.ReadBack(p, off)
	})
}

// Abort implements api.Extents.
func (v server) Abort(_ context.Context, id api.StreamID, done func(error)) {
	x, err := v.s.streams.find(id)
	if err != nil {
		done(err)
		return
	}
	x.put(streamOp{do: func(x *stream) {
		if x.next != nil {
			x.s.abortInBackground(x.begin.Chain[:1], id)
		}
		x.end()
		done(nil)
	}, refuse: done})
}

// Read implements api.Extents.
func (v server) Read(ctx context.Context, r api.Ref, p []byte, off int64) error {
	return v.read(ctx, r, p, off, v.s.disks.OpenExtent)
}

// ReadToCopy implements api.Extents.
func (v server) ReadToCopy(ctx context.Context, r api.Ref, p []byte, off int64) error {
	return v.read(ctx, r, p, off, v.s.disks.OpenToCopy)
}

func (v server) read(ctx context.Context, r api.Ref, p []byte, off int64, open func(context.Context, ExtentID, uint32) (*local.ExtentReader, error)) error {
	x, release, err := v.s.cache.open(ctx, r, open)
	if err != nil {
		v.s.corruption.RecordIfCorrupt(r.Extent, err)
		return err
	}
	defer release()
	err = x.ReadVerified(p, off)
	v.s.corruption.RecordIfCorrupt(r.Extent, err)
	return err
}

// Stat implements api.Extents.
func (v server) Stat(ctx context.Context, x ExtentID) (local.ExtentStat, error) {
	st, err := v.s.disks.StatExtent(ctx, x)
	v.s.corruption.RecordIfCorrupt(x, err)
	if err == nil {
		err = v.s.corruption.Reason(x)
	}
	return st, err
}

// Check implements api.Extents.
func (v server) Check(ctx context.Context, xs []ExtentID) ([]api.Held, error) {
	if err := v.s.usable(ctx); err != nil {
		return nil, err
	}
	return v.s.held(xs), nil
}

// List implements api.Extents.
func (v server) List(ctx context.Context, after ExtentID, max int) ([]local.ExtentInfo, error) {
	if err := v.s.usable(ctx); err != nil {
		return nil, err
	}
	return v.s.disks.ListExtents(after, min(max, api.ListMax)), nil
}

// Drop implements api.Extents. It checks no reference, and ignores the reason (R14).
func (v server) Drop(ctx context.Context, x ExtentID, _ api.Reason) error {
	v.s.cache.forgetExtent(x) // an open file keeps its space until it is closed
	defer v.s.cache.forgetExtent(x)
	err := v.s.disks.DropExtent(ctx, x)
	if err == nil {
		v.s.corruption.Clear(x)
	}
	return err
}

// DropBlob implements api.Extents. It checks no reference, and ignores the reason (R14).
func (v server) DropBlob(ctx context.Context, blob ID, _ api.Reason) (int, error) {
	v.s.cache.forget(blob)
	defer v.s.cache.forget(blob)
	n := 0
	for _, info := range v.s.extentsOf(blob) {
		err := v.s.disks.DropExtent(ctx, info.ID)
		if err == nil {
			v.s.corruption.Clear(info.ID)
			n++
		} else if !errors.Is(err, local.ErrNoExtent) {
			return n, err
		}
	}
	// The list of extents does not include those in quarantine.
	switch err := v.s.disks.Delete(ctx, blob); {
	case err == nil:
		n++
	case !errors.Is(err, ErrNoBlob):
		return n, err
	}
	return n, nil
}

// SetHolders implements api.Extents.
func (v server) SetHolders(ctx context.Context, x ExtentID, h Holders) error {
	err := v.s.disks.SetHolders(ctx, x, h)
	if err == nil {
		v.s.repairer.ListChanged(x, h)
	}
	return err
}

// Verify implements api.Extents. It pauses while the disk is busy with other requests.
func (v server) Verify(ctx context.Context, r api.Ref) error {
	clock := v.s.cluster.Clock
	began := clock.Now()
	err := v.s.disks.ScrubExtent(ctx, r.Extent, func(int64) error {
		v.s.repairer.Limits().YieldIfBusy(ctx, clock.Now()-began)
		began = clock.Now()
		return ctx.Err()
	})
	v.s.corruption.RecordIfCorrupt(r.Extent, err)
	if err != nil {
		return err
	}
	x, err := v.s.disks.OpenToCopy(ctx, r.Extent, r.CRC) // the replica is whole, but its checksum may be another
	if err != nil {
		return err
	}
	return x.Close()
}

// extentsOf returns the extents of a blob on this node.
func (s *Store) extentsOf(blob ID) []local.ExtentInfo {
	var all []local.ExtentInfo
	for after := (ExtentID{Blob: blob, Index: -1}); ; {
		infos := s.disks.ListExtents(after, api.ListMax)
		for _, x := range infos {
			if x.ID.Blob != blob {
				return all
			}
			all = append(all, x)
		}
		if len(infos) < api.ListMax {
			return all
		}
		after = infos[len(infos)-1].ID
	}
}

// held returns the state of extents on this node.
func (s *Store) held(xs []ExtentID) []api.Held {
	all := make([]api.Held, len(xs))
	for i, x := range xs {
		info, err := s.disks.ExtentInfo(x)
		if err != nil {
			if s.disks.InQuarantine(x) {
				all[i].State = api.Quarantined
			}
			continue
		}
		all[i] = api.Held{State: api.Good, Length: info.Length, Holders: info.Holders}
		if info.Retired || s.corruption.Has(x) {
			all[i].State = api.Bad
		}
		all[i].Repairs = s.repairer.Repairs(&info)
	}
	return all
}
