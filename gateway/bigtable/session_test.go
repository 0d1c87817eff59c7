package bigtable

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// sessionTable fails as its function states; rows whose keys begin with "no" do not exist.
type sessionTable struct {
	Table
	fail func(ctx context.Context, row string) error
}

func (f sessionTable) Get(ctx context.Context, row string, _ ...client.ReadOption) (*table.Row, error) {
	if err := f.fail(ctx, row); err != nil || strings.HasPrefix(row, "no") {
		return nil, err
	}
	return &table.Row{Key: []byte(row), Cells: []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 1000, Value: []byte("v")}}}, nil
}

func (f sessionTable) Apply(ctx context.Context, m *client.RowMutation, _ ...client.ApplyOption) error {
	return f.fail(ctx, m.Row())
}

// wire is the stream of a session whose client is the test.
type wire struct {
	grpc.ServerStream
	ctx     context.Context
	to      chan *bigtablepb.SessionRequest
	from    chan *bigtablepb.SessionResponse
	result  chan error // of the session
	service *Service
	id      int64 // of the last virtual RPC
}

func (w *wire) Context() context.Context                 { return w.ctx }
func (w *wire) Send(m *bigtablepb.SessionResponse) error { w.from <- m; return nil }

// SendMsg decodes what is encoded already.
func (w *wire) SendMsg(m any) error {
	if e, ok := m.(*encoded); ok {
		decoded := &bigtablepb.SessionResponse{}
		if err := proto.Unmarshal(e.buffer.ReadOnlyData(), decoded); err != nil {
			return err
		}
		e.buffer.Free()
		return w.Send(decoded)
	}
	return w.Send(m.(*bigtablepb.SessionResponse))
}

func (w *wire) Recv() (*bigtablepb.SessionRequest, error) {
	m, ok := <-w.to
	if !ok {
		return nil, io.EOF
	}
	return m, nil
}

// openSession opens a session. fail is that of a sessionTable; an error of open means that the caller may not use the table.
func openSession(t *testing.T, permission bigtablepb.OpenTableRequest_Permission, open func() error, fail func(ctx context.Context, row string) error) *wire {
	s := New(Config{Peer: Peer{Node: "n1", Zone: "z1"}, Open: func(context.Context, string, string) (Table, error) { return sessionTable{fail: fail}, open() }})
	w := &wire{ctx: t.Context(), to: make(chan *bigtablepb.SessionRequest), from: make(chan *bigtablepb.SessionResponse, 100), result: make(chan error, 1), service: s}
	go func() { w.result <- s.OpenTable(w) }()
	w.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{
		Payload: encode(&bigtablepb.OpenTableRequest{TableName: tableName, Permission: permission})}}}
	if m := <-w.from; m.GetOpenSession() == nil {
		t.Errorf("the first message is %v", m)
	}
	if m := <-w.from; m.GetSessionParameters().GetKeepAlive().AsDuration() != keepAlive {
		t.Errorf("the second message is %v", m)
	}
	return w
}

// send sends a virtual RPC.
func (w *wire) send(m *bigtablepb.TableRequest) {
	w.id++
	w.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: w.id, Payload: encode(m)}}}
}

func (w *wire) close() error { close(w.to); return <-w.result }

func readOf(row string) *bigtablepb.TableRequest {
	return &bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_ReadRow{ReadRow: &bigtablepb.SessionReadRowRequest{Key: []byte(row)}}}
}

func writeOf(row string) *bigtablepb.TableRequest {
	return &bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_MutateRow{MutateRow: &bigtablepb.SessionMutateRowRequest{Key: []byte(row), Mutations: []*bigtablepb.Mutation{set(1)}}}}
}

// describe returns an answer as text.
func describe(m *bigtablepb.SessionResponse) string {
	switch p := m.GetPayload().(type) {
	case *bigtablepb.SessionResponse_VirtualRpc:
		answer := &bigtablepb.TableResponse{}
		if err := proto.Unmarshal(p.VirtualRpc.Payload, answer); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d %s %s", p.VirtualRpc.RpcId, p.VirtualRpc.ClusterInfo.ZoneId, strings.ReplaceAll(fmt.Sprint(answer), "  ", " "))
	case *bigtablepb.SessionResponse_Error:
		return fmt.Sprintf("%d %v retry=%t", p.Error.RpcId, codes.Code(p.Error.Status.Code), p.Error.RetryInfo.GetRetryDelay().IsValid())
	case *bigtablepb.SessionResponse_Heartbeat:
		return "heartbeat"
	case *bigtablepb.SessionResponse_GoAway:
		return fmt.Sprintf("away after %d", p.GoAway.LastRpcIdAdmitted)
	}
	return fmt.Sprint(m)
}

func ok() error { return nil }

// TestSession: virtual RPCs read and mutate rows, and their errors have the codes of plain calls, with a RetryInfo beside the status.
func TestSession(t *testing.T) {
	fail := func(_ context.Context, row string) error {
		return map[string]error{"busy": client.ErrOverloaded, "family": client.ErrNoFamily, "unsure": &client.AmbiguousError{Err: context.DeadlineExceeded}}[row]
	}
	w := openSession(t, bigtablepb.OpenTableRequest_PERMISSION_READ_WRITE, ok, fail)
	for i, c := range []struct {
		request *bigtablepb.TableRequest
		want    string
	}{
		{readOf("r"), `z1 read_row:{row:{key:"r" families:{name:"f" columns:{qualifier:"q" cells:{timestamp_micros:1000 value:"v"}}}}}`},
		{readOf("none"), "z1 read_row:{}"},
		{writeOf("r"), "z1 mutate_row:{}"},
		{readOf("busy"), "Unavailable retry=true"},
		{writeOf("busy"), "Unavailable retry=true"},
		{writeOf("unsure"), "Unavailable retry=true"},
		{writeOf("family"), "NotFound retry=false"},
		{&bigtablepb.TableRequest{}, "Unimplemented retry=false"},
		{&bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_MutateRow{}}, "InvalidArgument retry=false"},
	} {
		w.send(c.request)
		if got, want := describe(<-w.from), fmt.Sprintf("%d %s", i+1, c.want); got != want {
			t.Errorf("%v: %s, want %s", c.request, got, want)
		}
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}

// TestSessionPermission: a session that was opened for reads makes no changes, and the other way round.
func TestSessionPermission(t *testing.T) {
	fail := func(context.Context, string) error { return nil }
	reads := openSession(t, bigtablepb.OpenTableRequest_PERMISSION_READ, ok, fail)
	writes := openSession(t, bigtablepb.OpenTableRequest_PERMISSION_WRITE, ok, fail)
	reads.send(writeOf("r"))
	writes.send(readOf("r"))
	for _, w := range []*wire{reads, writes} {
		if got := describe(<-w.from); got != "1 PermissionDenied retry=false" {
			t.Error(got)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSessionRights: rights that are revoked while a session is open end with the next virtual RPC.
func TestSessionRights(t *testing.T) {
	revoked := false
	open := func() error {
		if revoked {
			return client.ErrPermission
		}
		return nil
	}
	w := openSession(t, 0, open, func(context.Context, string) error { return nil })
	w.send(writeOf("r"))
	if got := describe(<-w.from); got != "1 z1 mutate_row:{}" {
		t.Error(got)
	}
	revoked = true // the session waits for a message
	for _, m := range []*bigtablepb.TableRequest{writeOf("r"), readOf("r")} {
		w.send(m)
		if got := describe(<-w.from); !strings.HasSuffix(got, "PermissionDenied retry=false") {
			t.Error(got)
		}
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}

// TestSessionHeartbeats: a virtual RPC in progress causes heartbeats, and an idle session none.
func TestSessionHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openSession(t, 0, ok, func(_ context.Context, row string) error {
			if row == "slow" {
				time.Sleep(5 * heartbeatPeriod / 2)
			}
			return nil
		})
		time.Sleep(10 * heartbeatPeriod)
		w.send(readOf("none"))
		time.Sleep(10 * heartbeatPeriod)
		w.send(readOf("no"))
		w.send(writeOf("slow"))
		time.Sleep(10 * heartbeatPeriod)
		for _, want := range []string{"1 z1 read_row:{}", "2 z1 read_row:{}", "heartbeat", "heartbeat", "3 z1 mutate_row:{}"} {
			if got := describe(<-w.from); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		if err := w.close(); err != nil || len(w.from) > 0 {
			t.Errorf("%v, and %d further messages", err, len(w.from))
		}
	})
}

// TestSessionDeadline: the deadline of a virtual RPC ends it, and not the session.
func TestSessionDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openSession(t, 0, ok, func(ctx context.Context, row string) error { <-ctx.Done(); return ctx.Err() })
		w.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{
			RpcId: 9, Deadline: durationpb.New(time.Millisecond), Payload: encode(readOf("r"))}}}
		if got := describe(<-w.from); got != "9 DeadlineExceeded retry=false" {
			t.Error(got)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionDrain (GB5): the GoAway names the last virtual RPC that is executed, which is answered. Later ones are not executed.
func TestSessionDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		executed := ""
		w := openSession(t, 0, ok, func(_ context.Context, row string) error {
			time.Sleep(heartbeatPeriod / 2)
			executed += row
			return nil
		})
		w.send(writeOf("a"))
		synctest.Wait()
		w.service.Drain()
		w.send(writeOf("b")) // it waits for the answer to the first
		time.Sleep(heartbeatPeriod)
		for _, want := range []string{"away after 1", "1 z1 mutate_row:{}", "2 Unavailable retry=true"} {
			if got := describe(<-w.from); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		w.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_CloseSession{}}
		if err := <-w.result; err != nil || executed != "a" {
			t.Errorf("%v, and executed: %s", err, executed)
		}
		if err := w.service.OpenTable(&wire{ctx: t.Context(), to: handshakes()}); status.Code(err) != codes.Unavailable {
			t.Errorf("a session while the service drains: %v", err)
		}
	})
}

// handshakes is a stream of one opening.
func handshakes() chan *bigtablepb.SessionRequest {
	to := make(chan *bigtablepb.SessionRequest, 1)
	to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{
		Payload: encode(&bigtablepb.OpenTableRequest{TableName: tableName})}}}
	return to
}

// TestSessionDrainIdle: idle sessions get a GoAway at once.
func TestSessionDrainIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := openSession(t, 0, ok, func(context.Context, string) error { return nil })
		w.service.Drain()
		if got := describe(<-w.from); got != "away after 0" {
			t.Error(got)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionProtocol: messages that are out of order end a session.
func TestSessionProtocol(t *testing.T) {
	rpc := func(id int64) *bigtablepb.SessionRequest {
		return &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: id, Payload: encode(readOf("r"))}}}
	}
	for name, ms := range map[string][]*bigtablepb.SessionRequest{
		"an id twice":    {rpc(1), rpc(1)},
		"no id":          {rpc(0)},
		"nothing":        {{}},
		"a second start": {<-handshakes()},
	} {
		w := openSession(t, 0, ok, func(context.Context, string) error { return nil })
		for _, m := range ms {
			w.to <- m
		}
		if err := <-w.result; status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := (&fakeTable{}).service()
	for name, first := range map[string]*bigtablepb.SessionRequest{
		"a virtual RPC first": rpc(1),
		"no payload":          {Payload: &bigtablepb.SessionRequest_OpenSession{}},
		"no message":          {Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{Payload: []byte{1}}}},
	} {
		w := &wire{ctx: t.Context(), to: make(chan *bigtablepb.SessionRequest, 1)}
		w.to <- first
		if err := s.OpenTable(w); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEncodedRows (GB1): a row that is encoded by hand decodes to the Row with the same cells.
func TestEncodedRows(t *testing.T) {
	x := &session{service: New(Config{Peer: Peer{Node: "n1", Zone: "z1"}})}
	rapid.Check(t, func(t *rapid.T) {
		row := &table.Row{Key: []byte(rapid.StringN(1, 3, 3).Draw(t, "key"))}
		bytes := func(name string) []byte {
			return rapid.SliceOfN(rapid.Byte(), 0, rapid.SampledFrom([]int{0, 3, 200}).Draw(t, "most")).Draw(t, name)
		}
		for range rapid.IntRange(0, 12).Draw(t, "cells") {
			c := table.Cell{Family: rapid.SampledFrom([]string{"f", "g", "héé"}).Draw(t, "family"), Qualifier: bytes("qualifier"), Timestamp: rapid.Int64Range(0, 1<<60).Draw(t, "timestamp"), Value: bytes("value")}
			if rapid.Bool().Draw(t, "labelled") {
				c.Labels = []string{"l", ""}
			}
			row.Cells = append(row.Cells, c)
		}
		took := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "took"))
		want := &bigtablepb.TableResponse{Payload: &bigtablepb.TableResponse_ReadRow{ReadRow: &bigtablepb.SessionReadRowResponse{Row: convertRow(row)}}}
		e := x.encode(7, answer{row: row}, took, nil)
		defer e.buffer.Free()
		got, payload := &bigtablepb.SessionResponse{}, &bigtablepb.TableResponse{}
		if err := proto.Unmarshal(e.buffer.ReadOnlyData(), got); err != nil {
			t.Fatal(err)
		}
		v := got.GetVirtualRpc()
		if err := proto.Unmarshal(v.GetPayload(), payload); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(payload, want) || v.RpcId != 7 || !proto.Equal(v.ClusterInfo, x.service.peer.cluster) || v.Stats.GetBackendLatency().AsDuration() != took {
			t.Fatalf("%v\nwant %v after %v", got, want, took)
		}
	})
}
