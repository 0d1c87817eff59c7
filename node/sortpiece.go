package node

import (
	"context"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/tablet/sortedrun"
)

// sort sorts a piece of a dead server's log (paper §6).
func (s *tabletServer) sort(ctx context.Context, o *command.Request) (reply.Result, error) {
	select {
	case s.n.sorting <- struct{}{}:
		defer func() { <-s.n.sorting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b := s.n.cfg.budget()
	s.n.reservation.Change(b.SortBytes())
	defer s.n.reservation.Change(-b.SortBytes())
	piece := replog.Piece{Start: o.Start, End: o.End}
	r, err := s.n.store.Load().ReplicatedLogs().OpenPiece(ctx, o.Dead, o.Log, piece)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	runs, err := sortedrun.SortLog(ctx, s.blobs, r, piece.End-piece.Start, b.Sort)
	if err != nil {
		return nil, err
	}
	coded := sortedrun.EncodeAll(runs)
	// The master names them soon; garbage collection removes only what it has found unnamed twice.
	for i := range runs {
		s.n.store.Load().Release(runs[i].Handle.ID)
	}
	return func(e *wire.Encoder) { e.Bin(coded) }, nil
}
