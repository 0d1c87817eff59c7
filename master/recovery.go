package master

import (
	"context"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
)

// Recovery is how far the sorting of a dead server's logs has come (paper §6, "Commit-log
// implementation"). It is kept in the lock service, so that whoever is master goes on with it.
type Recovery struct {
	Server string
	Pieces []Piece
}

// Piece is a part of a log that one server sorts: whole extents, about 64 MiB.
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
	if err := wire.CheckOne(b, wire.Limits{}); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
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
	// SaveRecovery replaces it if it is at that generation, and returns the next. After an error it
	// may have been replaced or not.
	SaveRecovery(ctx context.Context, r *Recovery, gen uint64) (uint64, error)
	// EndLogs ends a server's logs, so that it is acknowledged nothing more, and returns the pieces
	// that they consist of.
	EndLogs(ctx context.Context, server string) ([]Piece, error)
	// Sort has a server sort a piece of another's log, and returns the run. That is on disk then.
	Sort(ctx context.Context, by *TabletServer, server string, p *Piece) ([]byte, error)
}
