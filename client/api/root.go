package api

import (
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// RootInfo is the result of root: the first step to locate the tablets of a table (paper §5.1).
type RootInfo struct {
	// Metadata is false while the cluster has no METADATA. The node that answers then serves all
	// tables, and the other fields are empty.
	Metadata bool
	// Table is the id of the requested table, which is part of its keys in METADATA.
	Table uint64
	// Server is the tablet server of the root tablet, METADATA's first, and Addr its host:port.
	// Both are empty while the root tablet is unassigned.
	Server, Addr string
}

func (r *RootInfo) fields() fields {
	return fields{{"metadata", &r.Metadata}, {"table", &r.Table}, {"server", &r.Server}, {"addr", &r.Addr}}
}

// Append encodes the result of root.
func (r *RootInfo) Append(e *wire.Encoder) { r.fields().append(e) }

// Decode decodes the result of root.
func (r *RootInfo) Decode(d *wire.Decoder) error {
	*r = RootInfo{}
	return r.fields().decode(d)
}

// SampleRowKeysRequest holds the parameters of sample_row_keys:
//
//	[table, options?]    options: start
type SampleRowKeysRequest struct {
	TableOptions
	Table string
	// Start is the row from which keys are sampled; empty means the start of the table.
	Start []byte
}

// Append encodes the parameters.
func (r *SampleRowKeysRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + present(r.Start)
	e.Array(1 + min(n, 1))
	e.Str(r.Table)
	r.TableOptions.append(e, n)
	appendBytes(e, "start", r.Start)
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *SampleRowKeysRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodSampleRowKeys, n, 1, 2); err != nil {
		return err
	}
	*r = SampleRowKeysRequest{Table: d.Str()}
	if err := r.TableOptions.decode(d, n > 1, r); err != nil {
		return err
	}
	return within("row key bytes", len(r.Start), limitsOf(lim).RowKeyBytes+1)
}

func (r *SampleRowKeysRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "start" {
		return r.TableOptions.option(key, d)
	}
	r.Start = optionalBytes(d)
	return true
}
