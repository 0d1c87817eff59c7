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
	t, err := s.open(ctx, target{req.TableName, req.AuthorizedViewName, req.MaterializedViewName})
	if err != nil {
		return err
	}
	r := rowReader{table: t, to: sender{stream: stream, pool: s.cfg.Pool, whole: needsWholeRows(ctx)}, progress: featuresOf(ctx).GetLastScannedRowResponses()}
	defer r.to.release()
	spans, err := r.prepare(req)
	if err != nil {
		return err
	}
	if s.cfg.Reserve != nil && (len(spans) > 1 || len(spans) == 1 && !spans[0].one) {
		release, err := s.cfg.Reserve(ctx)
		if err != nil {
			return errcode.Convert(err, errcode.Repeatable)
		}
		defer release()
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
	batch   int                 // rows of the next batch of single rows
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
	if spans, err = rowSpans(req.Rows); r.reversed {
		slices.Reverse(spans)
	}
	return spans, err
}

// left returns how many rows are left of the limit, and whether there are any.
func (r *rowReader) left() (n int64, any bool) {
	if r.limit == 0 {
		return 0, true
	}
	n = r.limit - r.to.rows
	return n, n > 0
}

func (r *rowReader) read(ctx context.Context, spans []span) error {
	r.batch = batchRowsMin
	for len(spans) > 0 {
		left, any := r.left()
		if !any {
			return nil
		}
		if !spans[0].one {
			if err := r.scan(ctx, &spans[0], left); err != nil {
				return err
			}
			spans = spans[1:]
			continue
		}
		n := 1
		for n < len(spans) && spans[n].one && n < r.batch && (left == 0 || int64(n) < left) {
			n++
		}
		if err := r.get(ctx, spans[:n]); err != nil {
			return err
		}
		spans = spans[n:]
	}
	return nil
}

// Batches of single rows grow while their rows are small, because all rows of a batch are in memory.
const (
	batchRowsMin  = 8
	batchRowsMax  = 100 // as many as the client sends in a request
	batchBytesMax = 1 << 20
)

// get reads and sends single rows.
func (r *rowReader) get(ctx context.Context, spans []span) error {
	if len(spans) == 1 {
		row, err := r.table.Get(ctx, spans[0].start, r.options...)
		if err != nil || row == nil {
			return err
		}
		return r.to.add(row)
	}
	keys := make([]string, len(spans))
	for i := range spans {
		keys[i] = spans[i].start
	}
	rows, err := r.table.GetAll(ctx, keys, r.options...)
	if err != nil {
		return err
	}
	bytes := 0
	for _, row := range rows {
		if row == nil {
			continue
		}
		for i := range row.Cells {
			bytes += len(row.Cells[i].Value)
		}
		if err := r.to.add(row); err != nil {
			return err
		}
	}
	if bytes < batchBytesMax/2 {
		r.batch = min(2*r.batch, batchRowsMax)
	} else if bytes > batchBytesMax {
		r.batch = max(r.batch/2, 1)
	}
	return r.to.flush()
}

// scan reads and sends the rows of a range. It sends what it has whenever it would wait for the next
// batch of rows.
func (r *rowReader) scan(ctx context.Context, in *span, limit int64) error {
	options := []client.ScanOption{client.Start(in.start), client.End(in.end)}
	if limit > 0 {
		options = append(options, client.Limit(limit))
	}
	if r.reversed {
		options = append(options, client.Reversed())
	}
	for _, o := range r.options {
		options = append(options, o)
	}
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
		r.to.last = key
	}
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
