package command

import (
	"fmt"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
)

// Commands of the master to tablet servers. The parameters of every command are followed by the server instance that it is for, and by those
// listed here.
const (
	// MethodHeld returns the server's tablets: [[key, bytes, operations a second]…].
	MethodHeld = "tablet.held"
	// MethodLoad loads a tablet whose row is at a generation: key, generation.
	MethodLoad = "tablet.load"
	// MethodUnload unloads a tablet: key. The result is the generation of its row, 0 if another server has the tablet.
	MethodUnload = "tablet.unload"
	// MethodMerge merges two neighbouring tablets of the server: key, the upper one's key.
	MethodMerge = "tablet.merge"
	// MethodSort sorts a piece of a dead server's log: server, log, start, end. The result is the run, encoded by package tablet.
	MethodSort = "tablet.sort_piece"
)

// Request is a command of the master to a tablet server.
type Request struct {
	Header
	Server     string // the instance that it is for
	Key, Upper []byte // of tablets
	Generation uint64 // of the tablet's row
	Dead       string // the server whose log is sorted
	Log        blobfs.ID
	Start, End int64 // of the piece, in bytes of the log
}

const requestValues = 3 + 1

// Append appends the parameters of a method.
func (r *Request) Append(e *wire.Encoder, method string) {
	n := map[string]int{MethodHeld: 0, MethodLoad: 2, MethodUnload: 1, MethodMerge: 2, MethodSort: 4}[method]
	e.Array(requestValues + n)
	r.Header.AppendValues(e)
	e.Str(r.Server)
	switch method {
	case MethodLoad:
		e.Bin(r.Key)
		e.Uint(r.Generation)
	case MethodUnload:
		e.Bin(r.Key)
	case MethodMerge:
		e.Bin(r.Key)
		e.Bin(r.Upper)
	case MethodSort:
		e.Str(r.Dead)
		e.Bin(r.Log[:])
		e.Int(r.Start)
		e.Int(r.End)
	}
}

// Decode reads the n parameters of a method.
func (r *Request) Decode(d *wire.Decoder, n int, method string) error {
	if err := r.Header.Decode(d, n); err != nil {
		return err
	}
	r.Server = d.Str()
	switch method {
	case MethodLoad:
		r.Key, r.Generation = append([]byte(nil), d.Bytes()...), d.Uint()
	case MethodUnload:
		r.Key = append([]byte(nil), d.Bytes()...)
	case MethodMerge:
		r.Key, r.Upper = append([]byte(nil), d.Bytes()...), append([]byte(nil), d.Bytes()...)
	case MethodSort:
		r.Dead = d.Str()
		if id := d.Bytes(); len(id) == len(r.Log) {
			copy(r.Log[:], id)
		} else if d.Err() == nil {
			return fmt.Errorf("a log's id has %d bytes", len(id))
		}
		r.Start, r.End = d.Int(), d.Int()
	}
	return d.Err()
}

// AppendHeld appends the result of MethodHeld.
func AppendHeld(e *wire.Encoder, all []master.Held) {
	e.Array(len(all))
	for i := range all {
		e.Array(3)
		e.Bin([]byte(all[i].Key))
		e.Int(all[i].Bytes)
		e.Float(all[i].Load)
	}
}

// DecodeHeld reads the result of MethodHeld.
func DecodeHeld(d *wire.Decoder) []master.Held {
	var all []master.Held
	for n := d.Array(); n > 0 && d.Err() == nil; n-- {
		more := d.Array() - 3
		all = append(all, master.Held{Key: string(d.Bytes()), Bytes: d.Int(), Load: d.Float()})
		for ; more > 0 && d.Err() == nil; more-- {
			d.Skip()
		}
	}
	return all
}
