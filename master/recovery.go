package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
)

// Recovery is how far the sorting of a dead server's logs has come (paper §6, "Commit-log
// implementation"). It is kept in the lock service, so that whoever is master goes on with it.
type Recovery struct {
	Server string
	Pieces []Piece
}

// Piece is a part of a log that one server sorts: an extent.
type Piece struct {
	Log        blobfs.ID
	Start, End int64 // positions in the log: payloads that begin there are the piece's
	// Run describes the sorted entries, in the form of package tablet; nil until the piece is sorted.
	Run []byte
}

// Done says whether all pieces are sorted.
func (r *Recovery) Done() bool {
	return !slices.ContainsFunc(r.Pieces, func(p Piece) bool { return p.Run == nil })
}

const (
	recoveryVersion = 1
	recoveryValues  = 3
	pieceValues     = 4
	piecesMax       = 1 << 16
)

// EncodeRecovery returns the recovery as it is kept in the lock service, the MessagePack array
//
//	[1, server, [[log, start, end, run or nil]…]]
//
// Later versions append values; readers pass over those that they do not know.
func EncodeRecovery(r *Recovery) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(recoveryValues)
	e.Uint(recoveryVersion)
	e.Str(r.Server)
	e.Array(len(r.Pieces))
	for i := range r.Pieces {
		p := &r.Pieces[i]
		e.Array(pieceValues)
		e.Bin(p.Log[:])
		e.Int(p.Start)
		e.Int(p.End)
		if p.Run == nil {
			e.Nil()
		} else {
			e.Bin(p.Run)
		}
	}
	return slices.Clone(e.Bytes())
}

// DecodeRecovery reads what EncodeRecovery wrote.
func DecodeRecovery(b []byte) (*Recovery, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("recovery: not one MessagePack value: %w", err)
	}
	d := wire.NewDecoder(b)
	r := &Recovery{}
	more := d.Array() - recoveryValues
	if v := d.Uint(); d.Err() == nil && v != recoveryVersion {
		return nil, fmt.Errorf("recovery: version %d is unknown", v)
	}
	r.Server = d.Str()
	for n := d.ArrayMax(piecesMax); n > 0 && d.Err() == nil; n-- {
		rest := d.Array() - pieceValues
		var p Piece
		if id := d.Bytes(); len(id) == len(p.Log) {
			copy(p.Log[:], id)
		} else if d.Err() == nil {
			return nil, fmt.Errorf("recovery of %s: a log's id has %d bytes", r.Server, len(id))
		}
		p.Start, p.End = d.Int(), d.Int()
		if !d.IsNil() {
			p.Run = slices.Clone(d.Bytes())
		}
		for ; rest > 0 && d.Err() == nil; rest-- {
			d.Skip()
		}
		r.Pieces = append(r.Pieces, p)
	}
	for ; more > 0 && d.Err() == nil; more-- {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	return r, nil
}

// Recoveries keeps recoveries, and has pieces sorted.
type Recoveries interface {
	// Recovery returns the recovery of a server and its generation; nil and zero if there is none.
	Recovery(ctx context.Context, server string) (*Recovery, uint64, error)
	// SaveRecovery replaces it if it is at that generation, and returns the next.
	SaveRecovery(ctx context.Context, r *Recovery, gen uint64) (uint64, error)
	// EndLogs ends a server's logs, so that it is acknowledged nothing more, and returns the pieces
	// that they consist of.
	EndLogs(ctx context.Context, server string) ([]Piece, error)
	// Sort has a server sort a piece of another's log, and returns the run. That is on disk then.
	Sort(ctx context.Context, by *TabletServer, server string, p *Piece) ([]byte, error)
}

// sortsMax bounds the pieces that one server sorts at a time: each takes memory for the piece twice.
const sortsMax = 2

// recoverLogs ends and sorts the logs of a dead server, with the help of those that live. What was
// sorted before, perhaps by another master, is not sorted again. The error is ctx's, or what kept
// some piece from being sorted.
func recoverLogs(ctx context.Context, rs Recoveries, server string, helpers []TabletServer) error {
	r, gen, err := rs.Recovery(ctx, server)
	if err != nil {
		return fmt.Errorf("read how far it has come: %w", err)
	}
	if r == nil {
		r = &Recovery{Server: server}
		if r.Pieces, err = rs.EndLogs(ctx, server); err != nil {
			return fmt.Errorf("end its logs: %w", err)
		}
		if gen, err = rs.SaveRecovery(ctx, r, gen); err != nil {
			return fmt.Errorf("begin to sort: %w", err)
		}
	}
	if len(helpers) == 0 {
		if r.Done() {
			return nil
		}
		return errors.New("there is no server to sort its logs")
	}
	s := sorter{rs: rs, r: r, gen: gen}
	return s.run(ctx, helpers)
}

// sorter hands the pieces of a recovery out.
type sorter struct {
	rs Recoveries
	// mu guards what follows, and is held while the recovery is saved.
	mu   sync.Mutex
	r    *Recovery
	gen  uint64
	next int
	errs []error
}

func (s *sorter) run(ctx context.Context, helpers []TabletServer) error {
	var work sync.WaitGroup
	for i := range helpers {
		for range sortsMax {
			work.Go(func() { s.help(ctx, &helpers[i]) })
		}
	}
	work.Wait()
	return errors.Join(append(s.errs, ctx.Err())...)
}

// help has one server sort pieces until there are none, or it fails.
func (s *sorter) help(ctx context.Context, by *TabletServer) {
	for ctx.Err() == nil {
		i := s.take()
		if i < 0 {
			return
		}
		piece := s.r.Pieces[i]
		run, err := s.rs.Sort(ctx, by, s.r.Server, &piece)
		if err == nil {
			err = s.sorted(ctx, i, run)
		}
		if err != nil {
			s.mu.Lock()
			s.errs = append(s.errs, fmt.Errorf("server %s: sort %d to %d of log %s: %w", by.Name, piece.Start, piece.End, piece.Log, err))
			s.mu.Unlock()
			return // the next try finds the piece again
		}
	}
}

// take returns a piece that is to be sorted, or -1.
func (s *sorter) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; s.next < len(s.r.Pieces); s.next++ {
		if s.r.Pieces[s.next].Run == nil {
			s.next++
			return s.next - 1
		}
	}
	return -1
}

// sorted notes that a piece is.
func (s *sorter) sorted(ctx context.Context, i int, run []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.r
	next.Pieces = slices.Clone(s.r.Pieces)
	next.Pieces[i].Run = run
	gen, err := s.rs.SaveRecovery(ctx, &next, s.gen)
	if err != nil {
		return fmt.Errorf("note it: %w", err)
	}
	s.r.Pieces[i].Run, s.gen = run, gen
	return nil
}
