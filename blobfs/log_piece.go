package blobfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/logproto"
)

// LogPiece is a part of a log that has ended, from a position to another: whole extents. The payloads
// that begin there are the piece's; the last may go on behind its end.
type LogPiece struct{ Start, End int64 }

// ErrLogOpen means that a log has not ended, so that what is read of it now may not be what
// another reads later.
var ErrLogOpen = errors.New("log has not ended: end it first")

// EndSpreadLog ends a server's log as OpenSpreadLog does, and returns the pieces of which it consists:
// of up to so many bytes, or one extent. Each payload is in one of them. What is empty is in none.
func (s *Store) EndSpreadLog(ctx context.Context, server string, id ID, bytes int64) ([]LogPiece, error) {
	l, err := s.endLog(ctx, server, id)
	if err != nil {
		return nil, fmt.Errorf("end log %s: %w", id, err)
	}
	return logPieces(l, bytes), nil
}

// logPieces joins neighbouring extents while they are not too long together: a log that had to go on
// elsewhere often has short ones.
func logPieces(l *logproto.List, bytes int64) []LogPiece {
	var pieces []LogPiece
	p := LogPiece{l.Start, l.Start}
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

// OpenLogPiece opens a piece of a log that was ended, here or elsewhere. It reads the log's list and
// fences nothing. ErrLogOpen; ErrNoLog; what the lists return.
func (s *Store) OpenLogPiece(ctx context.Context, server string, id ID, p LogPiece) (*SpreadLogReader, error) {
	l, gen, err := s.loadLogList(ctx, logPath(server, id))
	switch {
	case err == nil && gen == 0:
		err = ErrNoLog
	case err == nil && !l.Closed:
		err = ErrLogOpen
	}
	if err == nil {
		err = s.usable(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", id, err)
	}
	start := l.Start
	for i, x := range l.Extents {
		if start == p.Start && x.Length > 0 && p.End > p.Start {
			return s.newLogReader(id, &l, i, p), nil
		}
		start += x.Length
	}
	return nil, fmt.Errorf("open log %s: it has no extent at position %d, or nothing from there to %d", id, p.Start, p.End)
}
