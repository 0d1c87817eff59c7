package tabletserver

import (
	"context"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/tablet/sortedrun"
)

// sort sorts a piece of a dead server's log (paper §6).
func (s *Server) sort(ctx context.Context, r *command.Request) (reply.Result, error) {
	select {
	case s.sorting <- struct{}{}:
		defer func() { <-s.sorting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b := &s.Budget
	s.Reservation.Change(b.SortBytes())
	defer s.Reservation.Change(-b.SortBytes())
	piece := replog.Piece{Start: r.Start, End: r.End}
	log, err := s.Store().ReplicatedLogs().OpenPiece(ctx, r.Dead, r.Log, piece)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	runs, err := sortedrun.SortLog(ctx, s.blobs, log, piece.End-piece.Start, b.Sort)
	if err != nil {
		return nil, err
	}
	coded := sortedrun.EncodeAll(runs)
	// The master names them within its attempt at the recovery, 5 min at most. Garbage collection quarantines only what two rounds
	// have found unnamed, at least gc.Config.Warn apart, which is 10 min.
	for i := range runs {
		s.Store().Release(runs[i].Handle.ID)
	}
	return func(e *wire.Encoder) { e.Bin(coded) }, nil
}
