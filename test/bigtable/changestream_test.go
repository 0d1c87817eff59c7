package bigtable

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	tables "github.com/steledb/stele/table"
)

// streamed is a table with a change stream, and its users.
type streamed struct {
	t     *testing.T
	node  *node.Node
	name  string
	admin *bigtable.AdminClient
	table *bigtable.Table
	calls bigtablepb.BigtableClient
}

// newStreamed makes a table t with the families f and s, a sum, on a new node.
func newStreamed(t *testing.T) *streamed {
	n := startNode(t)
	c, admin := goClient(t, n)
	err := admin.CreateTableFromConf(t.Context(), &bigtable.TableConf{TableID: "t", ChangeStreamRetention: 24 * time.Hour, ColumnFamilies: map[string]bigtable.Family{
		"f": {}, "s": {ValueType: bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: bigtable.SumAggregator{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &streamed{t: t, node: n, name: "projects/p/instances/i/tables/t", admin: admin, table: c.Open("t"), calls: bigtablepb.NewBigtableClient(dial(t, n))}
}

func (s *streamed) apply(row string, fill func(m *bigtable.Mutation)) {
	s.t.Helper()
	m := bigtable.NewMutation()
	fill(m)
	if err := s.table.Apply(s.t.Context(), row, m); err != nil {
		s.t.Fatal(err)
	}
}

// set writes a cell with a number in column f:q.
func (s *streamed) set(row string, n int) {
	s.apply(row, func(m *bigtable.Mutation) { m.Set("f", "q", 1000, fmt.Append(nil, n)) })
}

func (s *streamed) partitions() (all []*bigtablepb.StreamPartition) {
	s.t.Helper()
	stream, err := s.calls.GenerateInitialChangeStreamPartitions(s.t.Context(), &bigtablepb.GenerateInitialChangeStreamPartitionsRequest{TableName: s.name})
	for err == nil {
		var p *bigtablepb.GenerateInitialChangeStreamPartitionsResponse
		if p, err = stream.Recv(); err == nil {
			all = append(all, p.Partition)
		}
	}
	if err != io.EOF {
		s.t.Fatal(err)
	}
	return all
}

// change is what a stream has about a row mutation.
type change struct {
	row, token string
	mutations  []*bigtablepb.Mutation
}

// text returns the mutations in short.
func (c *change) text() string {
	var b strings.Builder
	for _, m := range c.mutations {
		switch m := m.Mutation.(type) {
		case *bigtablepb.Mutation_SetCell_:
			fmt.Fprintf(&b, "set %s:%s@%d=%.20s ", m.SetCell.FamilyName, m.SetCell.ColumnQualifier, m.SetCell.TimestampMicros, m.SetCell.Value)
		case *bigtablepb.Mutation_DeleteFromColumn_:
			fmt.Fprintf(&b, "delete %s:%s %d-%d ", m.DeleteFromColumn.FamilyName, m.DeleteFromColumn.ColumnQualifier, m.DeleteFromColumn.TimeRange.GetStartTimestampMicros(), m.DeleteFromColumn.TimeRange.GetEndTimestampMicros())
		case *bigtablepb.Mutation_DeleteFromFamily_:
			fmt.Fprintf(&b, "delete %s ", m.DeleteFromFamily.FamilyName)
		case *bigtablepb.Mutation_MergeToCell_:
			fmt.Fprintf(&b, "merge %s:%s %x ", m.MergeToCell.FamilyName, m.MergeToCell.ColumnQualifier.GetRawValue(), m.MergeToCell.Input.GetRawValue())
		default:
			fmt.Fprintf(&b, "%v ", m)
		}
	}
	return strings.TrimSpace(b.String())
}

// reader reads one partition.
type reader struct {
	stream bigtablepb.Bigtable_ReadChangeStreamClient
	part   change
}

// open begins to read; to is a row range, and from an instant or tokens.
func (s *streamed) open(req *bigtablepb.ReadChangeStreamRequest) *reader {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	req.TableName = s.name
	stream, err := s.calls.ReadChangeStream(ctx, req)
	if err != nil {
		s.t.Fatal(err)
	}
	return &reader{stream: stream}
}

// next returns the next change, heartbeat or end of the stream.
func (r *reader) next() (*change, *bigtablepb.ReadChangeStreamResponse, error) {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return nil, nil, err
		}
		data := m.GetDataChange()
		if data == nil {
			return nil, m, nil
		}
		if data.Type == bigtablepb.ReadChangeStreamResponse_DataChange_USER {
			r.part = change{row: string(data.RowKey)}
		}
		for _, c := range data.Chunks {
			if c.GetChunkInfo().GetChunkedValueOffset() > 0 {
				last := r.part.mutations[len(r.part.mutations)-1].GetSetCell()
				last.Value = append(last.Value, c.Mutation.GetSetCell().Value...)
			} else {
				r.part.mutations = append(r.part.mutations, c.Mutation)
			}
		}
		if data.Done {
			whole := r.part
			whole.token = data.Token
			return &whole, nil, nil
		}
	}
}

// changes returns the next n changes.
func (s *streamed) changes(r *reader, n int) (all []*change) {
	s.t.Helper()
	for len(all) < n {
		c, _, err := r.next()
		if err != nil {
			s.t.Fatalf("after %d changes: %v", len(all), err)
		}
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

func since(at time.Time) *bigtablepb.ReadChangeStreamRequest_StartTime {
	return &bigtablepb.ReadChangeStreamRequest_StartTime{StartTime: timestamppb.New(at)}
}

func after(part *bigtablepb.StreamPartition, tokens ...string) *bigtablepb.ReadChangeStreamRequest {
	all := &bigtablepb.StreamContinuationTokens{}
	for _, t := range tokens {
		all.Tokens = append(all.Tokens, &bigtablepb.StreamContinuationToken{Partition: part, Token: t})
	}
	return &bigtablepb.ReadChangeStreamRequest{Partition: part, StartFrom: &bigtablepb.ReadChangeStreamRequest_ContinuationTokens{ContinuationTokens: all}}
}

// TestChangeStream: a reader gets each mutation as Google's clients expect it, and continues at the token of each of them (CS1).
func TestChangeStream(t *testing.T) {
	s := newStreamed(t)
	if info, err := s.admin.TableInfo(t.Context(), "t"); err != nil || info.ChangeStreamRetention != 24*time.Hour {
		t.Errorf("the table has %+v, %v", info, err)
	}
	began := time.Now()
	large := bytes.Repeat([]byte("0123456789"), 300_000)
	s.set("a", 1)
	s.apply("b", func(m *bigtable.Mutation) { m.Set("f", "large", 2000, large); m.Set("f", "after", 3000, []byte("x")) })
	s.apply("a", func(m *bigtable.Mutation) { m.DeleteTimestampRange("f", "q", 1000, 5000) })
	s.apply("b", func(m *bigtable.Mutation) { m.DeleteCellsInColumn("f", "large") })
	s.apply("c", func(m *bigtable.Mutation) { m.AddIntToCell("s", "n", 1000, 5) })
	s.apply("a", func(m *bigtable.Mutation) { m.DeleteRow() })
	parts := s.partitions()
	if len(parts) != 1 {
		t.Fatalf("%d partitions", len(parts))
	}
	want := []string{"a: set f:q@1000=1", "b: set f:large@2000=01234567890123456789 set f:after@3000=x", "a: delete f:q 1000-5000", "b: delete f:large 0-0",
		"c: merge s:n 0000000000000005", "a: delete f delete s"}
	all := s.changes(s.open(&bigtablepb.ReadChangeStreamRequest{Partition: parts[0], StartFrom: since(began)}), len(want))
	for i, c := range all {
		if got := c.row + ": " + c.text(); got != want[i] {
			t.Errorf("change %d is %q, want %q", i, got, want[i])
		}
		rest := s.changes(s.open(after(parts[0], c.token)), len(want)-1-i)
		for k, c := range rest {
			if got := c.row + ": " + c.text(); got != want[i+1+k] {
				t.Errorf("after the token of change %d: change %d is %q", i, k, got)
			}
		}
	}
	if got := all[1].mutations[0].GetSetCell().Value; !bytes.Equal(got, large) {
		t.Errorf("the large value has %d bytes", len(got))
	}
}

// TestChangeStreamOfRange: a reader of a range gets its rows only, also if no tablet begins or ends there.
func TestChangeStreamOfRange(t *testing.T) {
	s := newStreamed(t)
	began := time.Now()
	for i, row := range []string{"a", "b", "b\x00", "ba", "c", "c\x00", "a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "bz"} {
		s.set(row, i)
	}
	part := &bigtablepb.StreamPartition{RowRange: &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("b")}, EndKey: &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: []byte("c")}}}
	var rows []string
	for _, c := range s.changes(s.open(&bigtablepb.ReadChangeStreamRequest{Partition: part, StartFrom: since(began)}), 4) {
		rows = append(rows, c.row)
	}
	if want := []string{"b", "b\x00", "ba", "bz"}; !slices.Equal(rows, want) {
		t.Errorf("got %q, want %q", rows, want)
	}
}

// TestChangeStreamEnds: a stream with an end time ends with what was changed before, and its tokens continue behind that.
func TestChangeStreamEnds(t *testing.T) {
	s := newStreamed(t)
	began := time.Now()
	s.set("a", 1)
	s.set("b", 2)
	time.Sleep(2 * time.Millisecond)
	end := time.Now()
	time.Sleep(2 * time.Millisecond)
	s.set("c", 3)
	r := s.open(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(began), EndTime: timestamppb.New(end)})
	var rows []string
	token := ""
	for {
		c, m, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if c != nil {
			rows, token = append(rows, c.row), c.token
		} else if end := m.GetCloseStream(); end != nil {
			if end.Status.GetCode() != 0 || len(end.NewPartitions) > 0 {
				t.Errorf("the stream ended with %v", end)
			}
			break
		}
	}
	if _, _, err := r.next(); err != io.EOF || !slices.Equal(rows, []string{"a", "b"}) {
		t.Errorf("got %q and %v", rows, err)
	}
	if c := s.changes(s.open(after(nil, token)), 1); c[0].row != "c" {
		t.Errorf("after the last token: %q", c[0].row)
	}
}

// TestChangeStreamSplits (CS1): readers that follow the new partitions get every change of each row once and in its order, while tablets are
// split.
func TestChangeStreamSplits(t *testing.T) {
	const rows, rounds = 26, 40
	s := newStreamed(t)
	began := time.Now()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := range rounds {
			for i := range rows {
				s.set(string(rune('a'+i)), n)
			}
		}
	}()
	c, err := client.Open(t.Context(), s.node.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type event struct {
		change *change
		other  *bigtablepb.ReadChangeStreamResponse
		err    error
	}
	events := make(chan event)
	follow := func(req *bigtablepb.ReadChangeStreamRequest) {
		req.HeartbeatDuration = durationpb.New(time.Second)
		r := s.open(req)
		go func() {
			for e := (event{}); e.err == nil && e.other.GetCloseStream() == nil; {
				e.change, e.other, e.err = r.next()
				select {
				case events <- e:
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	follow(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(began)})
	got, closed, total, asked := map[string]int{}, 0, 0, false
	for total < rows*rounds {
		if total > rows*rounds/4 && !asked {
			asked = true
			if _, err := c.Tablets().Split(t.Context(), "t", "m"); err != nil {
				t.Fatal(err)
			}
		}
		e := <-events
		switch end := e.other.GetCloseStream(); {
		case e.err != nil:
			t.Fatal(e.err)
		case e.change != nil:
			x := e.change
			if n := string(x.mutations[0].GetSetCell().GetValue()); n != fmt.Sprint(got[x.row]) {
				t.Fatalf("row %s: change %s after %d", x.row, n, got[x.row])
			}
			got[x.row]++
			total++
		case end != nil:
			if end.Status.GetCode() != int32(codes.OutOfRange) || len(end.NewPartitions) != 2 || len(end.ContinuationTokens) != 2 {
				t.Fatalf("the stream ended with %v", end)
			}
			closed++
			for i, part := range end.NewPartitions {
				follow(after(part, end.ContinuationTokens[i].Token))
			}
		}
	}
	<-written
	if closed == 0 {
		t.Error("no partition was divided")
	}
	if n := len(s.partitions()); n != closed+1 {
		t.Errorf("%d partitions after %d splits", n, closed)
	}
}

// TestChangeStreamHeartbeats: an idle reader gets tokens and a watermark that rises.
func TestChangeStreamHeartbeats(t *testing.T) {
	s := newStreamed(t)
	s.set("a", 1)
	began := time.Now()
	r := s.open(&bigtablepb.ReadChangeStreamRequest{HeartbeatDuration: durationpb.New(time.Second)})
	for range 2 {
		_, m, err := r.next()
		if err != nil || m.GetHeartbeat() == nil {
			t.Fatalf("got %v, %v", m, err)
		}
		if w := m.GetHeartbeat().EstimatedLowWatermark.AsTime(); w.Before(began.Add(-time.Second)) {
			t.Errorf("the watermark is %v, of a stream that began at %v", w, began)
		}
		s.set("b", 2)
		next := s.changes(s.open(after(nil, m.GetHeartbeat().ContinuationToken.Token)), 1)
		if next[0].row != "b" {
			t.Errorf("after the token of a heartbeat: %q", next[0].row)
		}
		s.changes(r, 1)
	}
}

// TestChangeStreamErrors: what cannot be read has a status with the reason.
func TestChangeStreamErrors(t *testing.T) {
	s := newStreamed(t)
	part := s.partitions()[0]
	s.set("a", 1)
	token := s.changes(s.open(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(time.Now().Add(-time.Minute))}), 1)[0].token
	for name, x := range map[string]struct {
		req  *bigtablepb.ReadChangeStreamRequest
		want codes.Code
	}{
		"no tokens":               {after(part), codes.InvalidArgument},
		"a damaged token":         {after(part, token[:len(token)-3]), codes.InvalidArgument},
		"a token of another kind": {after(part, "x"), codes.InvalidArgument},
		"a large token":           {after(part, strings.Repeat("A", 2<<20)), codes.InvalidArgument},
		"a future time":           {&bigtablepb.ReadChangeStreamRequest{StartFrom: since(time.Now().Add(time.Hour))}, codes.InvalidArgument},
		"no duration":             {&bigtablepb.ReadChangeStreamRequest{HeartbeatDuration: durationpb.New(0)}, codes.InvalidArgument},
		"no end":                  {&bigtablepb.ReadChangeStreamRequest{EndTime: &timestamppb.Timestamp{Nanos: -5}}, codes.InvalidArgument},
	} {
		if _, _, err := s.open(x.req).next(); status.Code(err) != x.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.admin.UpdateTableDisableChangeStream(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.open(&bigtablepb.ReadChangeStreamRequest{}).next(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a change stream: %v", err)
	}
	s.set("a", 2)
	if err := s.admin.UpdateTableWithChangeStream(t.Context(), "t", 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.open(after(part, token)).next(); status.Code(err) != codes.OutOfRange {
		t.Errorf("with a token from before: %v", err)
	}
}

// TestChangeStreamsEndWithNode: an idle stream does not delay the end of its node.
func TestChangeStreamsEndWithNode(t *testing.T) {
	s := newStreamed(t)
	r := s.open(&bigtablepb.ReadChangeStreamRequest{HeartbeatDuration: durationpb.New(time.Second)})
	if _, m, err := r.next(); err != nil || m.GetHeartbeat() == nil {
		t.Fatalf("got %v, %v", m, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := r.next()
		for err == nil {
			_, _, err = r.next()
		}
		ended <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.node.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
}

// rest returns the changes of a stream up to its end, or up to a heartbeat. The watermark of each message is no later than any change after it.
func (s *streamed) rest(r *reader) (rows []string, last *bigtablepb.ReadChangeStreamResponse, token string) {
	s.t.Helper()
	var low time.Time
	for {
		m, err := r.stream.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		d := m.GetDataChange()
		if d == nil {
			return rows, m, token
		}
		if at := d.CommitTimestamp.AsTime(); at.Before(low) {
			s.t.Errorf("the change of row %s at %v comes after the watermark %v", d.RowKey, at, low)
		}
		low = d.EstimatedLowWatermark.AsTime()
		rows, token = append(rows, string(d.RowKey)), d.Token
	}
}

// TestChangeStreamResumed: a reader that continues after the end time gets all changes until then, none of which is before a watermark.
func TestChangeStreamResumed(t *testing.T) {
	s := newStreamed(t)
	began := time.Now()
	for i := range 10 {
		s.apply(fmt.Sprint("r", i), func(m *bigtable.Mutation) { m.Set("f", "q", 1000, make([]byte, 100<<10)) })
	}
	time.Sleep(2 * time.Millisecond)
	end := timestamppb.Now()
	time.Sleep(2 * time.Millisecond)
	first := s.changes(s.open(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(began)}), 1)[0]
	req := after(nil, first.token)
	req.EndTime = end
	rows, last, _ := s.rest(s.open(req))
	if last.GetCloseStream() == nil || len(rows) != 9 {
		t.Errorf("got %q and %v", rows, last)
	}
}

// TestChangeStreamEndsOfTablets (CS1): each tablet of a partition ends at the end time. A reader that continues gets all later changes, and no
// earlier one again.
func TestChangeStreamEndsOfTablets(t *testing.T) {
	s := newStreamed(t)
	c, err := client.Open(t.Context(), s.node.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Tablets().Split(t.Context(), "t", "m"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.set("z", 1)
	s.set("z2", 1)
	time.Sleep(2 * time.Millisecond)
	end := timestamppb.Now()
	time.Sleep(2 * time.Millisecond)
	s.set("a", 3)
	rows, _, token := s.rest(s.open(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(began), EndTime: end}))
	if !slices.Equal(rows, []string{"z", "z2"}) {
		t.Errorf("got %q", rows)
	}
	if rows, _, _ := s.rest(s.open(after(nil, token))); !slices.Equal(rows, []string{"a"}) {
		t.Errorf("then %q", rows)
	}
}

// TestChangeStreamAfterLargeChange: a change that is too large for the port stops the readers that must send it, with the reason, and no reader from a
// later time.
func TestChangeStreamAfterLargeChange(t *testing.T) {
	s := newStreamed(t)
	c, err := client.Open(t.Context(), s.node.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if err := c.Table("t").Apply(t.Context(), client.NewRowMutation("large").SetAt("f:q", 1000, make([]byte, 12<<20))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	later := time.Now()
	s.set("a", 1)
	if c := s.changes(s.open(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(later)}), 1); c[0].row != "a" {
		t.Errorf("from a later time: row %s", c[0].row)
	}
	_, _, err = s.open(&bigtablepb.ReadChangeStreamRequest{StartFrom: since(began)}).next()
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "start_time") {
		t.Errorf("from before: %v", err)
	}
}

// TestChangeStreamOfIdleRows: on a cluster with certificates, a reader of rows that do not change goes on while others of their tablet do.
func TestChangeStreamOfIdleRows(t *testing.T) {
	s := startSecured(t)
	if _, err := s.admin.Tables().Alter(t.Context(), table, tables.Change{Op: tables.ChangeStream, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ann := s.user("ann", "write", table)
	if err := s.admin.Grants().Add(t.Context(), client.Grant{Principal: "ann", Rights: "read", Table: table}); err != nil {
		t.Fatal(err)
	}
	conn := s.dial(s.nodes[0], nil)
	ctx, cancel := context.WithTimeout(withToken(t.Context(), ann), time.Minute)
	defer cancel()
	stream, err := bigtablepb.NewBigtableClient(conn).ReadChangeStream(ctx, &bigtablepb.ReadChangeStreamRequest{TableName: "projects/p/instances/i/tables/" + table,
		Partition: &bigtablepb.StreamPartition{RowRange: &bigtablepb.RowRange{StartKey: &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: []byte("b")}}}, HeartbeatDuration: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { // ends with ctx
		for ctx.Err() == nil {
			_ = writeRow(ctx, conn, table, "a", "f")
		}
	}()
	for range 3 {
		if m, err := stream.Recv(); err != nil || m.GetHeartbeat() == nil {
			t.Fatalf("got %v, %v", m, err)
		}
	}
}
