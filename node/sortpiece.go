package node

import (
	"context"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/tablet"
)

// sort sorts a piece of a dead server's log (paper §6).
func (s *tabletServer) sort(ctx context.Context, o *order) (answer, error) {
	piece := blobfs.LogPiece{Start: o.start, End: o.end}
	r, err := s.n.store.Load().OpenLogPiece(ctx, o.dead, o.log, piece)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	m, err := tablet.SortLog(ctx, s.blobs, r, piece.End-piece.Start)
	if err != nil {
		return nil, err
	}
	b := tablet.EncodeRun(&m)
	// The master names it in a moment; the sweep takes nothing that it has not found unnamed twice.
	s.n.store.Load().Release(m.Handle.ID)
	return func(e *wire.Encoder) { e.Bin(b) }, nil
}
