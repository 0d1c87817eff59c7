package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// healBytes is the size of a read, in bytes.
const healBytes = 512 << 10

// heal rebuilds the local replica if it is corrupt or its folder is retired. It reads each chunk
// from wherever it is good, the old replica included, and keeps the old one until then. It returns
// local.ErrDiskFull or local.ErrFolderRetired if this node has no space for it.
func (k *Repairer) heal(ctx context.Context, sv *survey) error {
	x := sv.info.ID
	others := slices.Concat(sv.good, sv.goodDraining, sv.corrupt)
	st, err := k.statAny(ctx, x, append([]string{k.self}, others...))
	if err != nil {
		return errors.Join(errNoGood, err)
	}
	ref := api.Ref{Extent: x, CRC: st.CRC}
	h := healing{k: k, ctx: ctx, ref: ref, others: others}
	if h.localReplica, err = k.deps.Disks.OpenToCopy(ctx, x, st.CRC); err == nil {
		defer h.localReplica.Close()
	}
	w, err := k.deps.Disks.ReplaceExtent(ctx, x, st.Offset)
	if err != nil {
		return err
	}
	defer w.Abort()
	buf := make([]byte, healBytes)
	for at := int64(0); at < st.Length; at += int64(len(buf)) {
		p := buf[:min(healBytes, st.Length-at)]
		if err := h.read(p, at); err != nil {
			return err
		}
		if err := k.limits.rate.wait(ctx, int64(len(p))); err != nil {
			return err
		}
		if err := w.Write(p); err != nil {
			return err
		}
	}
	if w.CRC() != st.CRC || w.Length() != st.Length {
		return fmt.Errorf("%w: healed extent of %d bytes has table checksum %08x, want %d with %08x", api.ErrBadStream, w.Length(), w.CRC(), st.Length, st.CRC)
	}
	if _, err := w.Seal(ctx, st.Last, sv.info.Holders); err != nil {
		return err
	}
	k.deps.Forget(x)
	k.deps.Corruption.Clear(x)
	k.count(func(c *Counts) { c.Healed++ })
	k.deps.Logger.Info("extent healed", "extent", x.String(), "retired", sv.info.Retired)
	return nil
}

// healing reads the chunks of an extent that is being rebuilt.
type healing struct {
	k            *Repairer
	ctx          context.Context
	ref          api.Ref
	localReplica *local.ExtentReader // nil if its table cannot be read
	others       []string
}

// read reads verified bytes from any replica, in one read or chunk by chunk.
func (h *healing) read(p []byte, off int64) error {
	err := h.readFrom(p, off)
	if err == nil || len(p) <= local.ChunkBytes {
		return err
	}
	for i := 0; i < len(p); i += local.ChunkBytes {
		chunk := p[i:min(i+local.ChunkBytes, len(p))]
		if err := h.readFrom(chunk, off+int64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (h *healing) readFrom(p []byte, off int64) error {
	errs := []error{errNoGood}
	if h.localReplica != nil {
		err := h.localReplica.ReadVerified(p, off)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	for _, node := range h.others {
		if err := h.ctx.Err(); err != nil {
			return err
		}
		err := h.readNode(node, p, off)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("from %s: %w", node, err))
	}
	return errors.Join(errs...)
}

func (h *healing) readNode(node string, p []byte, off int64) error {
	ctx, cancel := context.WithTimeout(h.ctx, h.k.deps.ReplyTimeout)
	defer cancel()
	peer, err := h.k.deps.Peers.Peer(ctx, node)
	if err != nil {
		return err
	}
	return peer.ReadToCopy(ctx, h.ref, p, off)
}
