package bigtable

import (
	"context"
	"slices"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// ReadRows implements bigtablepb.BigtableServer.
func (s *Service) ReadRows(req *bigtablepb.ReadRowsRequest, stream bigtablepb.Bigtable_ReadRowsServer) error {
	began := time.Now()
	ctx := stream.Context()
	t, err := s.open(ctx, target{req.TableName, req.AuthorizedViewName, req.MaterializedViewName, req.AppProfileId, useAny})
	if err == nil {
		err = s.checkFilter(req.Filter)
	}
	if err != nil {
		return err
	}
	r := rowReader{table: t, to: sender{stream: stream, pool: s.cfg.Pool, whole: needsWholeRows(ctx)},
		progress: featuresOf(ctx).GetLastScannedRowResponses() && req.AuthorizedViewName == "", // a key may be outside of the view
		memory:   rowMemory{service: s, bytes: pointRowBytes}}
	r.to.memory = &r.memory
	defer r.memory.end(ctx)
	defer r.to.release()
	spans, err := r.prepare(req)
	if err != nil {
		return err
	}
	if len(spans) > 1 || len(spans) == 1 && !spans[0].one {
		if err := r.memory.reserveScan(ctx); err != nil {
			return errcode.Convert(err, errcode.Repeatable)
		}
	}
	if err := r.read(ctx, spans); err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	if err := r.to.flush(); err != nil {
		return err
	}
	if req.RequestStatsView == bigtablepb.ReadRowsRequest_REQUEST_STATS_FULL {
		return stream.Send(&bigtablepb.ReadRowsResponse{RequestStats: r.stats(time.Since(began))})
	}
	return nil
}

// rowReader reads the rows of a request, and sends them in order.
type rowReader struct {
	table   Table
	to      sender
	filter  table.Filter
	options []client.ReadOption // the filter
	limit   int64               // in rows; 0: no limit
	memory  rowMemory
	// reversed means that rows are sent in descending order.
	reversed bool
	// progress means that the client accepts keys up to which rows were looked at.
	progress bool
}

// prepare checks the request and returns its rows. Errors are statuses.
func (r *rowReader) prepare(req *bigtablepb.ReadRowsRequest) (spans []span, err error) {
	if req.RowsLimit < 0 {
		return nil, errcode.Invalid("rows_limit must not be negative")
	}
	r.limit, r.reversed = req.RowsLimit, req.Reversed
	if r.filter, err = convertFilter(req.Filter); err != nil {
		return nil, err
	}
	if r.filter != nil {
		r.options = []client.ReadOption{client.Filter(r.filter)}
	}
	return rowSpans(req.Rows)
}

// read reads the rows of spans: a single row by a point read, and all others by one scan, which sends
// each tablet server the spans that it has.
func (r *rowReader) read(ctx context.Context, spans []span) error {
	switch {
	case len(spans) == 0: // only the table must exist
		_, err := r.table.Get(ctx, "\x00", client.Filter(table.BlockAll{}))
		return err
	case len(spans) > 1 || !spans[0].one:
		return r.scan(ctx, spans)
	}
	row, err := r.memory.get(ctx, r.table, spans[0].start, r.options...)
	if err != nil || row == nil {
		return err
	}
	if err := r.memory.reserveMessage(ctx, row); err != nil {
		return err
	}
	return r.to.add(row)
}

// scanOptions returns the options of a scan of spans, behind the rows that were added.
func (r *rowReader) scanOptions(spans []span) []client.ScanOption {
	options := make([]client.ScanOption, 0, len(spans)+5)
	if len(spans) == 1 && !spans[0].one {
		options = append(options, client.Start(spans[0].start), client.End(spans[0].end))
		spans = nil
	}
	for i := range spans {
		if spans[i].one {
			options = append(options, client.RowKeys(spans[i].start))
		} else {
			options = append(options, client.RowRange(spans[i].start, spans[i].end))
		}
	}
	if r.limit > 0 {
		options = append(options, client.Limit(r.limit-r.to.rows))
	}
	if r.reversed {
		options = append(options, client.Reversed())
	}
	for _, o := range r.options {
		options = append(options, o)
	}
	return append(options, r.memory.option())
}

// scan reads and sends the rows of spans. If it comes to a row for which it needs more memory, it
// continues behind the row before it.
func (r *rowReader) scan(ctx context.Context, spans []span) error {
	for {
		err := r.scanPart(ctx, spans)
		if err == nil {
			return nil
		}
		if err := r.memory.grow(ctx, err); err != nil {
			return err
		}
		if r.to.last != nil {
			spans = after(spans, string(r.to.last), r.reversed)
		}
		if len(spans) == 0 {
			return nil
		}
	}
}

// scanPart reads and sends the rows of spans up to one for which it needs more memory. It sends what it
// has whenever it would wait for the next batch of rows.
func (r *rowReader) scanPart(ctx context.Context, spans []span) error {
	options := r.scanOptions(spans)
	var broken error // of the stream
	if r.progress {
		options = append(options, client.OnProgress(func(next []byte) {
			if broken == nil {
				broken = r.scanned(next)
			}
		}))
	}
	s := r.table.Scan(ctx, options...)
	defer s.Close()
	for s.Next() && broken == nil {
		if broken = r.to.add(s.Row()); broken == nil && s.Buffered() == 0 {
			broken = r.to.flush()
		}
	}
	if broken != nil {
		return broken
	}
	return s.Err()
}

// scanned sends a key up to which all rows were looked at. next is the key at which the scan continues
// or, if it is reversed, below which. The key must be behind the last one that was sent.
func (r *rowReader) scanned(next []byte) error {
	key := next
	if !r.reversed {
		if key = below(next); string(key) <= string(r.to.last) {
			return nil
		}
	}
	r.to.last = slices.Clone(key)
	return r.to.stream.SendMsg(&bigtablepb.ReadRowsResponse{LastScannedRowKey: key})
}

// below returns a key that is less than key, and near.
func below(key []byte) []byte {
	n := len(key) - 1
	if key[n] == 0 {
		return slices.Clone(key[:n])
	}
	b := append(slices.Clone(key), 0xff)
	b[n]--
	return b
}

// stats returns what a client requested to know about its read. The tablet servers do not report how
// many rows and cells they looked at: without a filter, these are the ones that were returned.
func (r *rowReader) stats(took time.Duration) *bigtablepb.RequestStats {
	n := &bigtablepb.ReadIterationStats{RowsReturnedCount: r.to.rows, CellsReturnedCount: r.to.cells}
	if r.filter == nil {
		n.RowsSeenCount, n.CellsSeenCount = n.RowsReturnedCount, n.CellsReturnedCount
	}
	return &bigtablepb.RequestStats{StatsView: &bigtablepb.RequestStats_FullReadStatsView{FullReadStatsView: &bigtablepb.FullReadStatsView{
		ReadIterationStats:  n,
		RequestLatencyStats: &bigtablepb.RequestLatencyStats{FrontendServerLatency: durationpb.New(took)},
	}}}
}
