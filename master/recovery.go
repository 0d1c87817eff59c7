package master

import (
	"context"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
)

// Recovery is the progress of sorting a dead server's logs (paper §6, "Commit-log implementation").
// It is stored in the lock service, so that the next master continues it.
type Recovery struct {
	Server string
	Pieces []Piece
}

// Piece is the part of a log that one server sorts: whole extents, about 64 MiB.
type Piece struct {
	Log        blobfs.ID
	Start, End int64 // positions in the log: payloads that begin there belong to the piece
	// Run describes the sorted entries, in the form of package tablet; nil until the piece is
	// sorted.
	Run []byte
}

// Done reports whether all pieces are sorted.
func (r *Recovery) Done() bool {
	return !slices.ContainsFunc(r.Pieces, func(p Piece) bool { return p.Run == nil })
}

const (
	recoveryVersion = 1
	recoveryValues  = 3
	pieceValues     = 4
	piecesMax       = 1 << 16
)

// EncodeRecovery returns the form stored in the lock service, the MessagePack array
//
//	[1, server, [[log, start, end, run or nil]…]]
//
// Later versions append values; readers skip unknown ones.
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

// DecodeRecovery decodes the output of EncodeRecovery.
func DecodeRecovery(b []byte) (*Recovery, error) {
	if err := wire.CheckOne(b, wire.Limits{}); err != nil {
		return nil, fmt.Errorf("decode recovery: %w", err)
	}
	d := wire.NewDecoder(b)
	r := &Recovery{}
	more := d.Array() - recoveryValues
	if v := d.Uint(); d.Err() == nil && v != recoveryVersion {
		return nil, fmt.Errorf("decode recovery: unknown version %d", v)
	}
	r.Server = d.Str()
	for n := d.ArrayMax(piecesMax); n > 0 && d.Err() == nil; n-- {
		p, err := decodePiece(&d)
		if err != nil {
			return nil, fmt.Errorf("decode recovery of %s: %w", r.Server, err)
		}
		r.Pieces = append(r.Pieces, p)
	}
	for ; more > 0 && d.Err() == nil; more-- {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("decode recovery: %w", err)
	}
	return r, nil
}

// decodePiece decodes a piece. Malformed input is the error of d; the result is the error of a log
// id of another length.
func decodePiece(d *wire.Decoder) (p Piece, err error) {
	rest := d.Array() - pieceValues
	if id := d.Bytes(); len(id) == len(p.Log) {
		copy(p.Log[:], id)
	} else if d.Err() == nil {
		return p, fmt.Errorf("log id has %d bytes, want %d", len(id), len(p.Log))
	}
	p.Start, p.End = d.Int(), d.Int()
	if !d.IsNil() {
		p.Run = slices.Clone(d.Bytes())
	}
	for ; rest > 0 && d.Err() == nil; rest-- {
		d.Skip()
	}
	return p, nil
}

// Recoveries stores recoveries, closes logs, and has servers sort pieces.
type Recoveries interface {
	// Recovery returns the recovery of a server and its generation; nil and zero if there is none.
	Recovery(ctx context.Context, server string) (*Recovery, uint64, error)
	// SaveRecovery replaces the recovery if it is at that generation, and returns the new
	// generation. After an error it may or may not have been replaced.
	SaveRecovery(ctx context.Context, r *Recovery, gen uint64) (uint64, error)
	// EndLogs closes a server's logs, so that no further write of it is acknowledged, and returns
	// the pieces that they consist of.
	EndLogs(ctx context.Context, server string) ([]Piece, error)
	// Sort has a server sort a piece of another server's log, and returns the run, which is then on
	// disk.
	Sort(ctx context.Context, by *TabletServer, server string, p *Piece) ([]byte, error)
}
