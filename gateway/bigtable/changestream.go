package bigtable

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
)

const (
	// changesBytes is the first bound of what a stream reads at a time, as client.Changes.Bound has it.
	changesBytes = 128 << 10
	// tokensBytesMax bounds the continuation tokens of a request, which take up to tokenMemory times their bytes: the shortest position has six
	// bytes.
	tokensBytesMax, tokenMemory = 1 << 20, 24
	// heartbeatDefault is the default of heartbeat_duration, and heartbeatMin the least that has an effect.
	heartbeatDefault, heartbeatMin = 5 * time.Second, time.Second
)

// GenerateInitialChangeStreamPartitions implements bigtablepb.BigtableServer: a partition for each tablet.
func (s *Service) GenerateInitialChangeStreamPartitions(req *bigtablepb.GenerateInitialChangeStreamPartitionsRequest, stream bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error {
	t, err := s.open(stream.Context(), target{table: req.TableName})
	if err != nil {
		return err
	}
	positions, err := t.ChangePositions(stream.Context())
	if err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	for i := range positions {
		part := &bigtablepb.GenerateInitialChangeStreamPartitionsResponse{Partition: partitionOf(&positions[i])}
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// ReadChangeStream implements bigtablepb.BigtableServer.
func (s *Service) ReadChangeStream(req *bigtablepb.ReadChangeStreamRequest, stream bigtablepb.Bigtable_ReadChangeStreamServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.streams, func() { cancel(errEnding) })()
	t, err := s.open(ctx, target{table: req.TableName})
	if err != nil {
		return err
	}
	r := changeReader{table: t, stream: stream, memory: rowMemory{service: s, bytes: changesBytes}}
	tokens := tokenBytes(req)
	if tokens > tokensBytesMax {
		return errcode.Invalid("continuation_tokens have %d bytes, want at most %d: read parts of the partition", tokens, tokensBytesMax)
	}
	defer r.memory.end(ctx)
	if r.memory.call, err = r.memory.reserve(ctx, rowCharge(changesBytes)+int64(tokens)*tokenMemory); err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	if err := r.prepare(req); err != nil {
		return err
	}
	r.changes.Bound(changesBytes)
	err = r.run(ctx)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return convertChangesError(err)
	}
	return nil
}

// errEnding is the status of a stream that ends before its node.
var errEnding = status.Error(codes.Unavailable, "The node is stopping: continue at another one.")

// convertChangesError returns the status of an error of a change stream.
func convertChangesError(err error) error {
	if errors.Is(err, client.ErrTableReplaced) {
		return status.Error(codes.FailedPrecondition, "The table that was read is dropped, and another one has its name: begin without continuation tokens.")
	}
	return errcode.Convert(err, errcode.Repeatable)
}

// changeReader sends the changes of a partition. It ends when all up to a time are sent, or when a tablet of the partition was split: then the
// client reads the parts.
type changeReader struct {
	table   Table
	stream  bigtablepb.Bigtable_ReadChangeStreamServer
	changes *client.Changes
	memory  rowMemory

	rows      span
	begin     int64 // in µs; the first watermark
	end       int64 // in µs, the last time to be sent; 0 means that there is none
	heartbeat time.Duration
	sent      time.Time // of the last message

	// kept is the token before the first change behind end, which a reader with a later end has yet to get.
	kept string
	// families has those of the table, for deletions of rows.
	families []string
}

// prepare checks the request. Errors are statuses.
func (r *changeReader) prepare(req *bigtablepb.ReadChangeStreamRequest) (err error) {
	if r.rows, err = rangeSpan(0, req.GetPartition().GetRowRange()); err != nil {
		return err
	}
	if r.rows.one {
		r.rows.one, r.rows.end = false, successor([]byte(r.rows.start))
	}
	r.heartbeat, r.sent = heartbeatDefault, time.Now()
	if d := req.HeartbeatDuration; d != nil {
		if !d.IsValid() || d.AsDuration() <= 0 {
			return errcode.Invalid("heartbeat_duration must be positive")
		}
		r.heartbeat = max(d.AsDuration(), heartbeatMin)
	}
	if r.end, err = micros("end_time", req.EndTime); err != nil {
		return err
	}
	return r.start(req)
}

// tokenBytes returns the size of a request's continuation tokens.
func tokenBytes(req *bigtablepb.ReadChangeStreamRequest) (n int) {
	for _, t := range req.GetContinuationTokens().GetTokens() {
		n += len(t.GetToken())
	}
	return n
}

// micros converts a time of a request to µs; that of a missing one is 0. The error is a status.
func micros(name string, t *timestamppb.Timestamp) (int64, error) {
	if t == nil {
		return 0, nil
	}
	if !t.IsValid() || t.AsTime().UnixMicro() <= 0 {
		return 0, errcode.Invalid("%s must be a time after 1970", name)
	}
	return t.AsTime().UnixMicro(), nil
}

// start opens the stream at the tokens of the request, or at its time. Errors are statuses.
func (r *changeReader) start(req *bigtablepb.ReadChangeStreamRequest) (err error) {
	now := time.Now()
	from := client.ChangesFrom{Start: startOf(r.rows.start), End: lastOf(r.rows.end)}
	switch f := req.StartFrom.(type) {
	case *bigtablepb.ReadChangeStreamRequest_ContinuationTokens:
		var tokens []string
		for _, t := range f.ContinuationTokens.GetTokens() {
			tokens = append(tokens, t.GetToken())
		}
		if from.Token, err = client.JoinChangeTokens(tokens...); err != nil {
			return errcode.Invalid("continuation_tokens: %v", err)
		}
	case *bigtablepb.ReadChangeStreamRequest_StartTime:
		at, err := micros("start_time", f.StartTime)
		if err != nil {
			return err
		}
		if from.Since = time.UnixMicro(at).Truncate(time.Millisecond); from.Since.After(now) { // as the times of commits in a table with the granularity MILLIS
			return errcode.Invalid("start_time must not be in the future")
		}
		now = from.Since
	}
	r.begin = now.UnixMicro()
	if r.changes, err = r.table.Changes(from); err != nil {
		return errcode.Invalid("continuation_tokens: %v", err)
	}
	if from.Token == "" || covered(r.changes.Positions(), from.Start, from.End) {
		return nil
	}
	return errcode.Invalid("the partitions of continuation_tokens do not cover the partition to be read")
}

// run sends changes until the stream ends.
func (r *changeReader) run(ctx context.Context) error {
	for {
		divided := r.changes.Divided()
		if err := r.sendNext(ctx); err != nil {
			return err
		}
		switch {
		case r.end > 0 && r.watermark() > r.end:
			return r.close(&bigtablepb.ReadChangeStreamResponse_CloseStream{})
		case r.changes.Divided() > divided && r.kept == "":
			return r.close(r.divide())
		case time.Since(r.sent) >= r.heartbeat:
			if err := r.beat(); err != nil {
				return err
			}
		}
	}
}

// sendNext sends the next changes. It reserves memory for a large one until it is sent.
func (r *changeReader) sendNext(ctx context.Context) error {
	got, err := r.changes.Next(ctx)
	for err != nil {
		if err := r.memory.grow(ctx, err); err != nil {
			return err
		}
		r.changes.Bound(r.memory.bytes)
		got, err = r.changes.Next(ctx)
	}
	for i := range got {
		if err := r.add(ctx, &got[i], i+1); err != nil {
			return err
		}
	}
	if r.memory.row != nil {
		r.memory.row.end(ctx)
		r.memory.row, r.memory.bytes = nil, changesBytes
		r.changes.Bound(changesBytes)
	}
	return nil
}

// watermark returns the time, in µs, up to which changes were sent.
func (r *changeReader) watermark() int64 {
	w := r.changes.Watermark()
	if w.IsZero() {
		return r.begin
	}
	return max(r.begin, w.UnixMicro())
}

// token returns the token after the first n changes of the last result.
func (r *changeReader) token(n int) string {
	if r.kept != "" {
		return r.kept
	}
	return r.changes.TokenAfter(n)
}

// add sends a change, the n-th of its result, unless it is of another row or time.
func (r *changeReader) add(ctx context.Context, c *client.Change, n int) error {
	if string(c.Row) < r.rows.start || r.rows.end != "" && string(c.Row) >= r.rows.end {
		return nil
	}
	if r.end > 0 && c.Time > r.end {
		if r.kept == "" {
			r.kept = r.changes.TokenAfter(n - 1)
		}
		return nil
	}
	mutations, err := r.convert(ctx, c.Mutations)
	if err != nil {
		return err
	}
	last, err := r.sendParts(&bigtablepb.ReadChangeStreamResponse_DataChange{
		Type:            bigtablepb.ReadChangeStreamResponse_DataChange_USER,
		SourceClusterId: r.memory.service.peer.cluster.ClusterId,
		RowKey:          c.Row,
		CommitTimestamp: timestamppb.New(time.UnixMicro(c.Time)),
	}, mutations)
	if err != nil {
		return err
	}
	last.Done, last.Token, last.EstimatedLowWatermark = true, r.token(n), r.low()
	return r.sendData(last)
}

// low returns the watermark as messages have it.
func (r *changeReader) low() *timestamppb.Timestamp {
	return timestamppb.New(time.UnixMicro(r.watermark()))
}

// beat sends a heartbeat.
func (r *changeReader) beat() error {
	token := r.kept
	if token == "" {
		token = r.changes.Token()
	}
	whole := &bigtablepb.StreamPartition{RowRange: rowRange([]byte(r.rows.start), []byte(r.rows.end))}
	return r.send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_Heartbeat_{
		Heartbeat: &bigtablepb.ReadChangeStreamResponse_Heartbeat{EstimatedLowWatermark: r.low(),
			ContinuationToken: &bigtablepb.StreamContinuationToken{Partition: whole, Token: token}}}})
}

// divide returns the end of a stream whose partition was divided.
func (r *changeReader) divide() *bigtablepb.ReadChangeStreamResponse_CloseStream {
	end := &bigtablepb.ReadChangeStreamResponse_CloseStream{
		Status: status.New(codes.OutOfRange, "A tablet of the partition was split: read the new partitions.").Proto()}
	tokens := r.changes.Tokens()
	for i, p := range r.changes.Positions() {
		part := r.within(&p)
		if part == nil {
			continue
		}
		end.NewPartitions = append(end.NewPartitions, part)
		end.ContinuationTokens = append(end.ContinuationTokens, &bigtablepb.StreamContinuationToken{Partition: part, Token: tokens[i]})
	}
	return end
}

func (r *changeReader) close(m *bigtablepb.ReadChangeStreamResponse_CloseStream) error {
	if m.Status == nil {
		m.Status = status.New(codes.OK, "").Proto()
	}
	return r.send(&bigtablepb.ReadChangeStreamResponse{StreamRecord: &bigtablepb.ReadChangeStreamResponse_CloseStream_{CloseStream: m}})
}

func (r *changeReader) send(m *bigtablepb.ReadChangeStreamResponse) error {
	r.sent = time.Now()
	return r.stream.Send(m)
}
