package replog

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// Piece is a range of positions of a closed log, made of whole extents. It holds the payloads
// that begin in the range; the last one may extend beyond End.
type Piece struct{ Start, End int64 }

// ErrOpen means that a log is not closed, so that a later reader may read more than one now.
var ErrOpen = errors.New("log is not closed: end it first")

// End closes a server's log as Open does and returns its pieces, each of up to
// bytes bytes or one extent. Each payload is in one piece. Empty extents are in none.
func (logs *Logs) End(ctx context.Context, server string, id local.ID, bytes int64) ([]Piece, error) {
	l, err := logs.endLog(ctx, server, id)
	if err != nil {
		return nil, fmt.Errorf("end log %s: %w", id, err)
	}
	return pieces(l, bytes), nil
}

// pieces joins adjacent extents up to the given size: a writer that had to change extents leaves
// short ones.
func pieces(l *logproto.List, bytes int64) []Piece {
	var pieces []Piece
	p := Piece{l.Start, l.Start}
	for _, x := range l.Extents {
		if p.End > p.Start && p.End-p.Start+x.Length > bytes {
			pieces = append(pieces, p)
			p.Start = p.End
		}
		p.End += x.Length
	}
	if p.End > p.Start {
		pieces = append(pieces, p)
	}
	return pieces
}

// OpenPiece opens a piece of a closed log on any node. It reads the log's list and fences
// nothing. It returns ErrOpen, local.ErrNoLog or the error of the lists.
func (logs *Logs) OpenPiece(ctx context.Context, server string, id local.ID, p Piece) (*Reader, error) {
	l, gen, err := logs.load(ctx, listPath(server, id))
	switch {
	case err == nil && gen == 0:
		err = local.ErrNoLog
	case err == nil && !l.Closed:
		err = ErrOpen
	}
	if err == nil {
		err = logs.usable(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", id, err)
	}
	start := l.Start
	for i, x := range l.Extents {
		if start == p.Start && x.Length > 0 && p.End > p.Start {
			return logs.newReader(id, &l, i, p), nil
		}
		start += x.Length
	}
	return nil, fmt.Errorf("open log %s: no extent begins at position %d, or the piece up to %d is empty", id, p.Start, p.End)
}
