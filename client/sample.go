package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// RowSample is a row key and the number of bytes before it.
type RowSample = api.RowSample

// SampleRowKeys returns row keys that divide the table into parts of about the same size, for
// parallel processing. The last key is empty and stands for the end of the table. Errors:
// ErrNoTable, and those of Tables.List.
func (t *Table) SampleRowKeys(ctx context.Context) (samples []RowSample, err error) {
	req := api.SampleRowKeysRequest{Table: t.name}
	before := int64(0) // bytes before start
	for {
		k := call{method: api.MethodSampleRowKeys, table: t.name, row: req.Start, id: &req.TableID, traceID: &req.TraceID, onlyID: req.TableID, safe: true, encode: req.Append}
		var part []RowSample
		k.decode = func(d *wire.Decoder) (err error) {
			part, err = api.DecodeSamples(d)
			return err
		}
		if err := t.client.calls.do(ctx, &k); err != nil {
			return nil, err
		}
		for _, s := range part {
			samples = append(samples, RowSample{Key: s.Key, Offset: before + s.Offset})
		}
		if len(part) == 0 || len(part[len(part)-1].Key) == 0 || k.sentTo.loc == nil {
			return samples, nil
		}
		last := samples[len(samples)-1]
		req.Start, before = successor(last.Key), last.Offset
	}
}
