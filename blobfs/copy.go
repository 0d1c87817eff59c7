package blobfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// Copy implements api.Extents.
func (v server) Copy(ctx context.Context, c api.Copy) error {
	if err := v.s.copyExtent(ctx, c); err != nil {
		return fmt.Errorf("copy extent %s: %w", c.Extent, err)
	}
	return nil
}

// copyExtent copies a sealed extent from other nodes, unless a good local replica exists. A replica
// that is corrupt or in a retired folder is replaced: the repairer heals it only while this node is
// on the holder list. If one source fails, the copy continues from the next.
func (s *Store) copyExtent(ctx context.Context, c api.Copy) error {
	if s.disks.InQuarantine(c.Extent) {
		// No reader has asked for it here. If it is needed, other nodes have it, and garbage
		// collection learns that from them.
		return fmt.Errorf("%w: it is in quarantine until garbage collection decides", local.ErrExtentExists)
	}
	st, err := s.disks.StatExtent(ctx, c.Extent)
	s.corruption.RecordIfCorrupt(c.Extent, err)
	info, errInfo := s.disks.ExtentInfo(c.Extent)
	bad := errInfo == nil && (info.Retired || s.corruption.Has(c.Extent))
	switch {
	case err == nil && st.CRC != c.CRC:
		return local.ErrExtentExists
	case err == nil && !bad:
		return s.keepHolders(ctx, c)
	}
	done, err := s.repairer.Limits().AdmitCopy(ctx)
	if err != nil {
		return err
	}
	defer done()
	var w *local.ExtentWriter
	err = error(local.ErrNoExtent)
	for _, node := range c.From {
		var from api.Peer
		var st local.ExtentStat
		if from, err = s.peers.Peer(ctx, node); err != nil {
			continue
		}
		if st, err = from.Stat(ctx, c.Extent); err != nil {
			continue
		}
		if st.CRC != c.CRC {
			err = fmt.Errorf("%s has a different extent: %w", node, local.ErrOtherExtent)
			continue
		}
		if w == nil {
			if w, err = s.createCopy(ctx, c.Extent, st.Offset, bad); err != nil {
				return err
			}
			defer w.Abort()
		}
		if err = s.pull(ctx, from, c.Ref, w, st.Length); err == nil {
			if err = sealCopy(ctx, w, c, st); err == nil && bad {
				s.cache.forgetExtent(c.Extent)
				s.corruption.Clear(c.Extent)
			}
			return err
		}
		if !errors.Is(err, api.ErrUnreachable) && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// createCopy begins a copy. If bad is set it will replace the local replica.
func (s *Store) createCopy(ctx context.Context, x ExtentID, offset int64, bad bool) (*local.ExtentWriter, error) {
	if bad {
		return s.disks.ReplaceExtent(ctx, x, offset)
	}
	w, err := s.disks.CreateExtent(ctx, x, offset)
	if errors.Is(err, local.ErrExtentExists) && s.streams.endOrphan(ctx, x) {
		w, err = s.disks.CreateExtent(ctx, x, offset)
	}
	return w, err
}

// keepHolders stores the holder list of an extent that is already here.
func (s *Store) keepHolders(ctx context.Context, c api.Copy) error {
	if c.Holders.Epoch == 0 {
		return nil
	}
	return s.disks.SetHolders(ctx, c.Extent, c.Holders)
}

// copyBytes is the size of a read, in bytes. The next read runs while the last one is written.
const copyBytes = 512 << 10

// CopyMemory is the memory, in bytes, used by one copy to this node.
const CopyMemory = 2 * copyBytes

// pull reads the bytes that w does not have yet.
func (s *Store) pull(ctx context.Context, from api.Peer, ref api.Ref, w *local.ExtentWriter, length int64) error {
	ctx, cancel := context.WithCancel(ctx)
	type piece struct {
		p   []byte
		err error
	}
	pieces, spare := make(chan piece), make(chan []byte, 2)
	start := w.Length()
	size := min(copyBytes, length-start)
	spare <- make([]byte, size)
	if start+size < length {
		spare <- make([]byte, size)
	}
	go func() {
		defer close(pieces)
		for at := start; at < length; {
			var p []byte
			select {
			case p = <-spare:
			case <-ctx.Done():
				return
			}
			p = p[:min(size, length-at)]
			readCtx, done := context.WithTimeout(ctx, s.cluster.ReplyTimeout)
			began := s.cluster.Clock.Now()
			err := from.ReadToCopy(readCtx, ref, p, at)
			done()
			s.repairer.Limits().YieldIfBusy(ctx, s.cluster.Clock.Now()-began)
			select {
			case pieces <- piece{p, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			at += int64(len(p))
		}
	}()
	defer func() {
		cancel()
		for range pieces { // until the reading goroutine has ended
		}
	}()
	for got := range pieces {
		if got.err != nil {
			return got.err
		}
		if err := s.repairer.Limits().LimitCopyRate(ctx, int64(len(got.p))); err != nil {
			return err
		}
		if err := w.Write(got.p); err != nil {
			return err
		}
		spare <- got.p[:size]
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return nil
}

func sealCopy(ctx context.Context, w *local.ExtentWriter, c api.Copy, st local.ExtentStat) error {
	if w.Length() != st.Length || w.CRC() != c.CRC {
		return fmt.Errorf("%w: got %d bytes with table checksum %08x, want %d with %08x", api.ErrBadStream, w.Length(), w.CRC(), st.Length, c.CRC)
	}
	_, err := w.Seal(ctx, st.Last, c.Holders)
	return err
}
