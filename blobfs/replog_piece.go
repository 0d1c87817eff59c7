package blobfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/blobfs/logproto"
)

// LogPiece is a range of positions of a closed log, made of whole extents. It holds the payloads
// that begin in the range; the last one may extend beyond End.
type LogPiece struct{ Start, End int64 }

// ErrLogOpen means that a log is not closed, so that a later reader may read more than one now.
var ErrLogOpen = errors.New("log is not closed: end it first")

// EndSpreadLog closes a server's log as OpenSpreadLog does and returns its pieces, each of up to
// bytes bytes or one extent. Each payload is in one piece. Empty extents are in none.
func (s *Store) EndSpreadLog(ctx context.Context, server string, id ID, bytes int64) ([]LogPiece, error) {
	l, err := s.endLog(ctx, server, id)
	if err != nil {
		return nil, fmt.Errorf("end log %s: %w", id, err)
	}
	return logPieces(l, bytes), nil
}

// logPieces joins adjacent extents up to the given size: a writer that had to change extents leaves
// short ones.
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

// OpenLogPiece opens a piece of a closed log on any node. It reads the log's list and fences
// nothing. It returns ErrLogOpen, ErrNoLog or the error of the lists.
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
	return nil, fmt.Errorf("open log %s: no extent begins at position %d, or the piece up to %d is empty", id, p.Start, p.End)
}
