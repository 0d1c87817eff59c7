package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Bounds of bulk imports.
const (
	// BulkPartBytesMax bounds the keys and values of a part, in bytes, as SSTables have them. 256 MiB: larger files make later compactions no cheaper.
	BulkPartBytesMax = 256 << 20
	// BulkPartCellsMax bounds the cells of a part. The node needs memory for each until the part is committed.
	BulkPartCellsMax = 500_000
	// BulkValueBytesMax is the size of the largest value. Rows with larger ones are written in batches.
	BulkValueBytesMax = 1 << 20
	// BulkPartsMax is the largest number of parts that one node has open. One with little memory has fewer, at least 2. One user may have half of them.
	BulkPartsMax = 16
	// BulkIdle is how long a part stays open without BulkProgress more bytes of rows, and BulkOpenMax how long at all.
	BulkIdle     = 60 * time.Second
	BulkProgress = 64 << 10
	BulkOpenMax  = 10 * time.Minute
	// BulkCommitWait is how long a client may repeat bulk_commit after the first attempt. Until then, a node knows whether the part was committed.
	BulkCommitWait = 2 * time.Minute
	// BulkIDBytes is the length of a part's id, in bytes.
	BulkIDBytes = 16
)

// BulkWriteRequest holds the parameters of bulk_write:
//
//	[table, part, number, [[row, [mutation…]]…], options?]
//
// The part is an id of 16 random bytes. The numbers of its requests ascend from 0.
type BulkWriteRequest struct {
	MutateRowsRequest
	Part   [BulkIDBytes]byte
	Number int64
}

// Append encodes the parameters.
func (r *BulkWriteRequest) Append(e *wire.Encoder) {
	r.AppendEach(e, len(r.Rows), func(i int) *table.RowMutation { return &r.Rows[i] })
}

// AppendEach is Append for n rows that are not in Rows; row returns the i-th.
func (r *BulkWriteRequest) AppendEach(e *wire.Encoder, n int, row func(i int) *table.RowMutation) {
	opts := r.TableOptions.count()
	e.Array(4 + min(opts, 1))
	e.Str(r.Table)
	e.Bin(r.Part[:])
	e.Int(r.Number)
	e.Array(n)
	for i := range n {
		table.AppendRowMutation(e, row(i))
	}
	r.TableOptions.append(e, opts)
}

// Decode decodes the n parameters in d. A nil lim means the defaults. It checks only what costs
// memory; table.RowMutation.Validate checks the rest.
func (r *BulkWriteRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodBulkWrite, n, 4, 5); err != nil {
		return err
	}
	r.Table = r.names.table(d)
	if err := decodePart(d, &r.Part); err != nil {
		return err
	}
	if r.Number = d.Int(); r.Number < 0 && d.Err() == nil {
		return rpc.Errorf(rpc.CodeBadRequest, "number %d of a request, want 0 or more", r.Number)
	}
	if err := r.decodeRows(d, lim); err != nil {
		return err
	}
	return r.TableOptions.decode(d, n > 4, r)
}

// decodePart decodes the id of a part.
func decodePart(d *wire.Decoder, part *[BulkIDBytes]byte) error {
	id := d.Bytes()
	if d.Err() == nil && len(id) != BulkIDBytes {
		return rpc.Errorf(rpc.CodeBadRequest, "the id of a part has %d bytes, want %d", len(id), BulkIDBytes)
	}
	copy(part[:], id)
	return d.Err()
}

// BulkRequest holds the parameters of bulk_commit and bulk_abort:
//
//	[table, part, row, requests, options?]
//
// The row is the first of the part. Requests is the number of its bulk_write requests; bulk_abort ignores it.
type BulkRequest struct {
	TableOptions
	Table    string
	Part     [BulkIDBytes]byte
	Row      []byte
	Requests int64

	names names
}

// Append encodes the parameters.
func (r *BulkRequest) Append(e *wire.Encoder) {
	opts := r.TableOptions.count()
	e.Array(4 + min(opts, 1))
	e.Str(r.Table)
	e.Bin(r.Part[:])
	e.Bin(r.Row)
	e.Int(r.Requests)
	r.TableOptions.append(e, opts)
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *BulkRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodBulkCommit, n, 4, 5); err != nil {
		return err
	}
	r.Table = r.names.table(d)
	if err := decodePart(d, &r.Part); err != nil {
		return err
	}
	if r.Row = d.Bytes(); d.Err() == nil {
		if err := checkRow(d, r.Row, lim); err != nil {
			return err
		}
	}
	r.Requests = d.Int()
	return r.TableOptions.decode(d, n > 4, r)
}
