package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// RowSample is a row key and the number of bytes before it.
type RowSample = api.RowSample

// SampleRowKeys returns row keys that divide the table into parts of about the same size, for
// parallel processing. The last key is empty and stands for the end of the table. Those of a view are keys that its rows can have, without sizes, and the
// last one is the first key behind them. Errors:
// ErrNoTable, table.ErrNoView, and those of Tables.List.
func (t *Table) SampleRowKeys(ctx context.Context) (samples []RowSample, err error) {
	req := api.SampleRowKeysRequest{TableOptions: api.TableOptions{View: t.view}, Table: t.name}
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
			return t.samplesInView(ctx, samples)
		}
		last := samples[len(samples)-1]
		req.Start, before = successor(last.Key), last.Offset
	}
}

// samplesInView returns the samples that are in the view of t, and the end of the view.
func (t *Table) samplesInView(ctx context.Context, samples []RowSample) ([]RowSample, error) {
	if t.view == "" {
		return samples, nil
	}
	info, err := t.client.Tables().Describe(ctx, t.name)
	if err != nil {
		return nil, err
	}
	v := info.Schema.View(t.view)
	if v == nil {
		return nil, &table.NoViewError{Table: t.name, View: t.view}
	}
	var in []RowSample
	for _, s := range samples {
		if len(s.Key) > 0 && v.HasRow(s.Key) {
			in = append(in, RowSample{Key: s.Key})
		}
	}
	var end []byte
	if n := len(v.Rows); n > 0 {
		end = api.PrefixEnd(v.Rows[n-1])
	}
	return append(in, RowSample{Key: end}), nil
}
