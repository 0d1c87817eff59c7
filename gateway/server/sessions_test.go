package server

import (
	"runtime"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// openSession opens a session of the table, and returns its stream. The error is that of the session.
func openSession(t *testing.T, c bigtablepb.BigtableClient) (bigtablepb.Bigtable_OpenTableClient, error) {
	t.Helper()
	payload, err := proto.Marshal(&bigtablepb.OpenTableRequest{TableName: "projects/p/instances/i/tables/t"})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.OpenTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{Payload: payload}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the session, and its parameters
		if _, err := stream.Recv(); err != nil {
			return nil, err
		}
	}
	return stream, nil
}

// TestSessionCharges: the charge of a session does not grow with its virtual RPCs.
func TestSessionCharges(t *testing.T) {
	s, addr := start(t, memoryLimit)
	stream, err := openSession(t, bigtablepb.NewBigtableClient(connect(t, addr)))
	if err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		return s.memory.mu.used
	}
	for id := range int64(2000) {
		m := mutation("fast", int(id)*10)
		payload, err := proto.Marshal(&bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_MutateRow{
			MutateRow: &bigtablepb.SessionMutateRowRequest{Key: m.RowKey, Mutations: m.Mutations}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{
			VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: id + 1, Payload: payload}}}); err != nil {
			t.Fatal(err)
		}
		if answer, err := stream.Recv(); err != nil || answer.GetVirtualRpc().GetRpcId() != id+1 {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	// The message that opened the session, whose charge ends with the first virtual RPC, is charged no longer.
	await(t, func() bool { return used() == connBytes+callBytes })
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return used() == connBytes })
}

// TestSessionLimit: sessions take a quarter of the memory at most, so that plain calls go on, and what an idle one takes is less than its
// charge.
func TestSessionLimit(t *testing.T) {
	s, addr := start(t, memoryLimit)
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapInuse + stats.StackInuse)
	}
	before, n := heap(), int64(0)
	var c bigtablepb.BigtableClient
	for {
		if n%500 == 0 {
			c = bigtablepb.NewBigtableClient(connect(t, addr))
		}
		if _, err := openSession(t, c); err != nil {
			if status.Code(err) != codes.Unimplemented {
				t.Fatal(err)
			}
			break
		}
		n++
	}
	took := (heap() - before) / n
	t.Logf("%d sessions, of %d bytes with their client", n, took)
	if n != memoryLimit/4/callBytes || took > callBytes {
		t.Errorf("%d sessions of %d bytes, want %d of at most %d", n, took, memoryLimit/4/callBytes, callBytes)
	}
	if _, err := c.MutateRow(t.Context(), mutation("fast", 1)); err != nil {
		t.Error(err)
	}
	config, err := c.GetClientConfiguration(t.Context(), &bigtablepb.GetClientConfigurationRequest{InstanceName: "projects/p/instances/i"})
	if err != nil || config.SessionConfiguration.SessionLoad != 0 {
		t.Errorf("%v, %v, want no sessions", config, err)
	}
	s.data.Drain()
}
