package bigtable

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
)

const (
	// idleChangesBytes is the first bound of what a stream reads at a time, as client.Changes.Bound has it: the charge of a call covers it. After a
	// result of more than half of it, the bound is changesBytes until there are no changes.
	idleChangesBytes, changesBytes = 8 << 10, 128 << 10
	// tokensBytesMax bounds the continuation tokens of a request, which take up to tokenMemory times their bytes: the shortest position has six
	// bytes.
	tokensBytesMax, tokenMemory = 1 << 20, 24
	// heartbeatDefault is the default of heartbeat_duration, and heartbeatMin the least that has an effect.
	heartbeatDefault, heartbeatMin = 5 * time.Second, time.Second
)

// GenerateInitialChangeStreamPartitions implements bigtablepb.BigtableServer: a partition for each tablet.
func (s *Service) GenerateInitialChangeStreamPartitions(req *bigtablepb.GenerateInitialChangeStreamPartitionsRequest, stream bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error {
	t, err := s.open(stream.Context(), target{table: req.TableName, profile: req.AppProfileId, use: useOfChanges})
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
	t, err := s.open(ctx, target{table: req.TableName, profile: req.AppProfileId, use: useOfChanges})
	if err != nil {
		return err
	}
	r := changeReader{table: t, stream: stream, memory: rowMemory{service: s, bytes: idleChangesBytes}}
	tokens := tokenBytes(req)
	if tokens > tokensBytesMax {
		return errcode.Invalid("continuation_tokens have %d bytes, want at most %d: read parts of the partition", tokens, tokensBytesMax)
	}
	defer r.memory.end(ctx)
	if r.memory.call, err = r.memory.reserve(ctx, int64(tokens)*tokenMemory); err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	if err := r.prepare(req); err != nil {
		return err
	}
	r.changes.Bound(idleChangesBytes)
	err = r.run(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errcode.Convert(err, errcode.Repeatable)
}

// errEnding is the status of a stream that ends before its node.
var errEnding = status.Error(codes.Unavailable, "The node is stopping: continue at another one.")

// changeReader sends the changes of a partition. It ends when all up to a time are sent, or when a tablet of the partition was split: then the
// client reads the parts.
type changeReader struct {
	table   Table
	stream  bigtablepb.Bigtable_ReadChangeStreamServer
	changes *client.Changes
	memory  rowMemory

	rows      span
	end       int64 // in µs, the last time to be sent; 0 means that there is none
	heartbeat time.Duration
	sent      time.Time // of the last message
	// mark is the time, in µs, up to which changes were sent.
	mark int64
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
	r.mark = now.Truncate(time.Millisecond).UnixMicro() // commits of a table with the granularity MILLIS have such times
	from := client.ChangesFrom{Start: startOf(r.rows.start), End: lastOf(r.rows.end)}
	switch f := req.StartFrom.(type) {
	case *bigtablepb.ReadChangeStreamRequest_ContinuationTokens:
		var tokens []string
		for _, t := range f.ContinuationTokens.GetTokens() {
			mark, token, err := splitToken(t.GetToken())
			if err != nil {
				return err
			}
			tokens = append(tokens, token)
			r.mark = min(r.mark, mark)
		}
		if from.Token, err = client.JoinChangeTokens(tokens...); err != nil {
			return errcode.Invalid("continuation_tokens: %v", err)
		}
	case *bigtablepb.ReadChangeStreamRequest_StartTime:
		at, err := micros("start_time", f.StartTime)
		if err != nil {
			return err
		}
		if from.Since = time.UnixMicro(at).Truncate(time.Millisecond); from.Since.After(now) {
			return errcode.Invalid("start_time must not be in the future")
		}
		r.mark = from.Since.UnixMicro()
	}
	if r.end > 0 {
		from.Until = time.UnixMicro(r.end)
	}
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
		err := r.sendNext(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return r.close(&bigtablepb.ReadChangeStreamResponse_CloseStream{})
		case err != nil:
			return err
		case r.changes.Divided() > divided:
			return r.close(r.divide())
		case time.Since(r.sent) >= r.heartbeat:
			if err := r.beat(); err != nil {
				return err
			}
		}
	}
}

// sendNext sends the next changes. It reserves memory for large ones until they are sent. The error is io.EOF after those of the end time.
func (r *changeReader) sendNext(ctx context.Context) error {
	got, err := r.changes.Next(ctx)
	for errors.Is(err, client.ErrRowTooLarge) {
		if err := r.widen(ctx, err); err != nil {
			return err
		}
		got, err = r.changes.Next(ctx)
	}
	if err != nil {
		return err
	}
	bytes := 0
	for i := range got {
		n, err := r.add(ctx, &got[i], i+1)
		if err != nil {
			return err
		}
		bytes += n
	}
	if w := r.changes.Watermark(); !w.IsZero() {
		r.mark = max(r.mark, w.UnixMicro())
	}
	switch {
	case len(got) == 0 || r.memory.bytes > changesBytes:
		r.narrow(ctx)
	case bytes > idleChangesBytes/2 && r.memory.bytes < changesBytes:
		_ = r.widen(ctx, nil) // without memory, it goes on in small parts
	}
	return nil
}

// widen reserves memory for larger changes than before. Errors: a status if there is no larger bound, those of Config.Reserve.
func (r *changeReader) widen(ctx context.Context, tooLarge error) (err error) {
	if r.memory.bytes < changesBytes {
		if r.memory.row, err = r.memory.reserve(ctx, rowCharge(changesBytes)); err != nil {
			return err
		}
		r.memory.bytes = changesBytes
	} else if most := r.memory.service.cfg.RowBytesMax; r.memory.bytes >= most {
		return status.Errorf(codes.FailedPrecondition,
			"A change takes more than %d bytes of memory, the most that this node can send: raise the node's setting \"memory\", or begin with a start_time after the change.", most)
	} else if err := r.memory.grow(ctx, tooLarge); err != nil {
		return err
	}
	r.changes.Bound(r.memory.bytes)
	return nil
}

// narrow releases the memory for large changes.
func (r *changeReader) narrow(ctx context.Context) {
	r.memory.row.end(ctx)
	r.memory.row, r.memory.bytes = nil, idleChangesBytes
	r.changes.Bound(idleChangesBytes)
}

// joinToken returns a token of the client's with the watermark at it, and splitToken divides it. The error is a status.
func (r *changeReader) joinToken(token string) string {
	return strconv.FormatInt(r.mark, 36) + "." + token
}

func splitToken(text string) (mark int64, token string, err error) {
	number, token, found := strings.Cut(text, ".")
	if mark, err = strconv.ParseInt(number, 36, 64); err != nil || !found || mark < 0 {
		return 0, "", errcode.Invalid("continuation_tokens: %v", client.ErrBadToken)
	}
	return mark, token, nil
}

// add sends a change, the n-th of its result, unless it is of another row. It returns the size of the change.
func (r *changeReader) add(ctx context.Context, c *client.Change, n int) (bytes int, err error) {
	if string(c.Row) < r.rows.start || r.rows.end != "" && string(c.Row) >= r.rows.end {
		return 0, nil
	}
	mutations, err := r.convert(ctx, c.Mutations)
	if err != nil {
		return 0, err
	}
	last, bytes, err := r.sendParts(&bigtablepb.ReadChangeStreamResponse_DataChange{
		Type:            bigtablepb.ReadChangeStreamResponse_DataChange_USER,
		SourceClusterId: r.memory.service.peer.cluster.ClusterId,
		RowKey:          c.Row,
		CommitTimestamp: timestamppb.New(time.UnixMicro(c.Time)),
	}, mutations)
	if err != nil {
		return 0, err
	}
	last.Done, last.Token, last.EstimatedLowWatermark = true, r.joinToken(r.changes.TokenAfter(n)), r.low()
	return bytes, r.sendData(last)
}

// low returns the watermark as messages have it.
func (r *changeReader) low() *timestamppb.Timestamp { return timestamppb.New(time.UnixMicro(r.mark)) }

// beat sends a heartbeat.
func (r *changeReader) beat() error {
	token := r.joinToken(r.changes.Token())
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
		end.ContinuationTokens = append(end.ContinuationTokens, &bigtablepb.StreamContinuationToken{Partition: part, Token: r.joinToken(tokens[i])})
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
