package api

import (
	"bytes"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Bounds of read_changes.
const (
	// ChangesBytes is the default of bytes, and ChangesBytesMax its maximum.
	ChangesBytes    = 1 << 20
	ChangesBytesMax = 4 << 20
	// ChangesWaitMax is the maximum of wait_ms.
	ChangesWaitMax = 30 * time.Second
)

// ReadChangesRequest holds the parameters of read_changes:
//
//	[table, options?]    options: start, end, next, since, bytes, change_bytes, wait_ms
type ReadChangesRequest struct {
	TableOptions
	Table string
	// Start and End are the rows: Start < row <= End, an empty one meaning no bound.
	Start, End []byte
	// Next is the position from an earlier result; 0 means by Since.
	Next uint64
	// Since is the time in µs of the first change; 0 means the changes after the call.
	Since int64
	// Bytes bounds the result; 0 means ChangesBytes.
	Bytes int64
	// ChangeBytes rejects a larger change with an *RowTooLargeError; 0 means no bound.
	ChangeBytes int64
	// Wait is how long the call waits for a change.
	Wait time.Duration
}

// Append encodes the parameters.
func (r *ReadChangesRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Start) + present(r.End)
	numbers := [...]struct {
		key   string
		value int64
	}{{"next", int64(r.Next)}, {"since", r.Since}, {"bytes", r.Bytes}, {"change_bytes", r.ChangeBytes}, {"wait_ms", r.Wait.Milliseconds()}}
	for _, x := range numbers {
		if x.value > 0 {
			n++
		}
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Table)
	r.TableOptions.append(e, n)
	appendBytes(e, "start", r.Start)
	appendBytes(e, "end", r.End)
	for _, x := range numbers {
		if x.value > 0 {
			e.Str(x.key)
			e.Int(x.value)
		}
	}
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *ReadChangesRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodReadChanges, n, 1, 2); err != nil {
		return err
	}
	*r = ReadChangesRequest{Table: d.Str()}
	if err := r.TableOptions.decode(d, n > 1, r); err != nil {
		return err
	}
	return within("row key bytes", max(len(r.Start), len(r.End)), limitsOf(lim).RowKeyBytes)
}

func (r *ReadChangesRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "start":
		r.Start = optionalBytes(d)
	case "end":
		r.End = optionalBytes(d)
	case "next":
		r.Next = uint64(countOption(d, "next"))
	case "since":
		r.Since = int64(countOption(d, "since"))
	case "bytes":
		r.Bytes = int64(countOption(d, "bytes"))
	case "change_bytes":
		r.ChangeBytes = int64(countOption(d, "change_bytes"))
	case "wait_ms":
		r.Wait = millisOption(d, "wait_ms", ChangesWaitMax)
	default:
		return r.TableOptions.option(key, d)
	}
	return true
}

// Change is one row mutation of a change stream.
type Change struct {
	Row []byte
	// Seq increases with each change of the row.
	Seq uint64
	// Time is when the mutation was committed, in µs. Cells with a server timestamp have it.
	Time      int64
	Mutations []table.Mutation
}

// ChangesResult is the result of read_changes:
//
//	[end, next, watermark, [[row, seq, time, [mutation…]]…]]
type ChangesResult struct {
	// End is the last row that the result is about, which is below that of the request if another tablet has the rest; empty means
	// no bound. The rest is to be read from the position of the request.
	End []byte
	// Next is the position after the result.
	Next uint64
	// Watermark is a time in µs: changes of these rows with a lower time are all returned. 0 if none is known.
	Watermark int64
	Changes   []Change
}

// AppendChanges begins the encoding of a result of n changes, which AppendChange adds.
func AppendChanges(e *wire.Encoder, end []byte, next uint64, watermark int64, n int) {
	e.Array(4)
	e.Bin(end)
	e.Uint(next)
	e.Int(watermark)
	e.Array(n)
}

// AppendChange adds a change to a result.
func AppendChange(e *wire.Encoder, c *Change) {
	e.Array(4)
	e.Bin(c.Row)
	e.Uint(c.Seq)
	e.Int(c.Time)
	table.AppendMutations(e, c.Mutations)
}

// internedFamilies is the number of family names that a result shares.
const internedFamilies = 64

// Decode decodes a result, whose values alias d's bytes.
func (r *ChangesResult) Decode(d *wire.Decoder) error {
	n := d.Array()
	*r = ChangesResult{End: bytes.Clone(d.Bytes()), Next: d.Uint(), Watermark: d.Int()}
	in := table.NewInterner(internedFamilies)
	for range d.ArrayMax(ChangesBytesMax) {
		if d.Err() != nil {
			break
		}
		fields := d.Array()
		c := Change{Row: d.Bytes(), Seq: d.Uint(), Time: d.Int()}
		var err error
		if c.Mutations, err = table.DecodeMutations(d, nil, in, nil); err != nil {
			return err
		}
		r.Changes = append(r.Changes, c)
		for range fields - 4 {
			d.Skip()
		}
	}
	for range n - 4 {
		d.Skip()
	}
	return d.Err()
}
