package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // the programs have it, too: OTLP's exporter registers it
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/table"
)

// heapBound fails a test if the heap exceeds attackHeapMax before stop is called.
func heapBound(t *testing.T) (stop func()) {
	t.Helper()
	runtime.GC()
	ctx, cancel := context.WithCancel(t.Context())
	var most atomic.Int64
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), int64(m.HeapInuse)))
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() {
		t.Helper()
		cancel()
		watching.Wait()
		if n := most.Load(); n > attackHeapMax {
			t.Errorf("the heap had %d MiB, want at most %d", n>>20, attackHeapMax>>20)
		}
	}
}

// TestCompressedRequests (I13): requests whose few bytes become many are rejected before they are received.
func TestCompressedRequests(t *testing.T) {
	_, addr := start(t, memoryLimit)
	request, err := proto.Marshal(mutation("slow", requestMost-1000))
	if err != nil {
		t.Fatal(err)
	}
	codec := encodedCodec(request)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	c := bigtablepb.NewBigtableClient(connect(t, addr))
	stop := heapBound(t)
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			if _, err := c.MutateRow(ctx, &bigtablepb.MutateRowRequest{}, codec, grpc.UseCompressor(gzip.Name)); status.Code(err) != codes.Unimplemented {
				t.Errorf("a compressed request: %v", err)
			}
		})
	}
	calls.Wait()
	stop()
}

// encodedCodec sends encoded requests from the memory of the test.
func encodedCodec(request []byte) grpc.CallOption {
	return grpc.ForceCodecV2(sharedCodec{encoding.GetCodecV2("proto"), request})
}

// TestDecodedRequests (I13): a request whose many small messages need more memory than its bytes takes no more than the limit allows, and is rejected for
// good.
func TestDecodedRequests(t *testing.T) {
	_, addr := start(t, memoryLimit)
	name := "projects/p/instances/i/tables/aaaaa"
	request := append([]byte{0x0a, byte(len(name))}, name...)
	for len(request) < requestMost-1000 {
		request = append(request, 0x1a, 0) // mutations {}
	}
	c := bigtablepb.NewBigtableClient(connect(t, addr))
	stop := heapBound(t)
	if _, err := c.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{}, encodedCodec(request)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%d MiB of empty mutations: %v", len(request)>>20, err)
	}
	stop()
}

// TestLongRequests: a request that is longer than those of its method may be is rejected for good, with the memory that it was charged, although a longer
// MutateRows is not.
func TestLongRequests(t *testing.T) {
	s, addr := start(t, memoryLimit)
	c := bigtablepb.NewBigtableClient(connect(t, addr))
	if _, err := c.MutateRow(t.Context(), mutation("fast", requestMost+1)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long MutateRow: %v", err)
	}
	entry := func(size int) *bigtablepb.MutateRowsRequest_Entry {
		m := mutation("fast", size)
		return &bigtablepb.MutateRowsRequest_Entry{RowKey: m.RowKey, Mutations: m.Mutations}
	}
	many := &bigtablepb.MutateRowsRequest{TableName: mutation("", 0).TableName}
	for range 10 {
		many.Entries = append(many.Entries, entry(requestMost/5))
	}
	stream, err := c.MutateRows(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := countAnswers(stream); err != nil || n != 10 {
		t.Errorf("a MutateRows of %d MiB: %d answers, %v", proto.Size(many)>>20, n, err)
	}
	for range 10 {
		many.Entries = append(many.Entries, entry(requestMost/5))
	}
	if stream, err = c.MutateRows(t.Context(), many); err == nil {
		_, err = countAnswers(stream)
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a MutateRows of %d MiB: %v", proto.Size(many)>>20, err)
	}
	await(t, func() bool {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		return s.memory.mu.used == connBytes
	})
}

// countAnswers returns how many entries a MutateRows has answered.
func countAnswers(stream bigtablepb.Bigtable_MutateRowsClient) (n int, err error) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += len(m.Entries)
	}
}

// TestDecodedEntries (I13): the entries of a MutateRows are decoded some at a time, so that those that need much more memory than their bytes are executed.
func TestDecodedEntries(t *testing.T) {
	_, addr := start(t, memoryLimit)
	name := mutation("", 0).TableName
	entry, err := proto.Marshal(&bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("r"), Mutations: []*bigtablepb.Mutation{{}}})
	if err != nil {
		t.Fatal(err)
	}
	request := append([]byte{0x0a, byte(len(name))}, name...)
	const entries = 500_000
	for range entries {
		request = append(append(request, 0x12, byte(len(entry))), entry...)
	}
	c := bigtablepb.NewBigtableClient(connect(t, addr))
	stop := heapBound(t)
	stream, err := c.MutateRows(t.Context(), &bigtablepb.MutateRowsRequest{}, encodedCodec(request))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := countAnswers(stream); err != nil || n != entries {
		t.Errorf("%d answers, %v, want %d", n, err, entries)
	}
	stop()
}

// TestDecodedVirtualRPCs (I13): so is a virtual RPC of a session, whose request is within a message of it.
func TestDecodedVirtualRPCs(t *testing.T) {
	_, addr := start(t, memoryLimit)
	session, err := openSession(t, bigtablepb.NewBigtableClient(connect(t, addr)))
	if err != nil {
		t.Fatal(err)
	}
	mutations := make([]byte, (requestMost-1000)&^1)
	for i := 0; i < len(mutations); i += 2 {
		mutations[i], mutations[i+1] = 0x12, 0 // mutations {}
	}
	payload := append(binary.AppendUvarint([]byte{0x12}, uint64(len(mutations))), mutations...) // mutate_row
	stop := heapBound(t)
	if err := session.Send(&bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: 1, Payload: payload}}}); err != nil {
		t.Fatal(err)
	}
	m, err := session.Recv()
	for err == nil && m.GetHeartbeat() != nil { // the server is slow
		m, err = session.Recv()
	}
	if err != nil || codes.Code(m.GetError().GetStatus().GetCode()) != codes.InvalidArgument {
		t.Errorf("%d MiB of empty mutations: %v, %v", len(mutations)>>20, m, err)
	}
	stop()
}

// appendTable answers each read-modify-write with a cell of 15 MiB, as one that a byte was appended to, if the caller has memory for it.
type appendTable struct{ bigtable.Table }

func (appendTable) ReadModifyWriteWithin(_ context.Context, row string, bytesMax int64, _ ...table.Rule) (*table.Row, error) {
	const size = 15 << 20
	if size > bytesMax {
		return nil, &api.RowTooLargeError{Limit: bytesMax}
	}
	return &table.Row{Key: []byte(row), Cells: []table.Cell{{Family: "f", Timestamp: 1, Value: make([]byte, size)}}}, nil
}

// TestUnreadAnswers (I13, GB6): large answers of single calls, which clients do not receive, take no more memory than the limit allows.
func TestUnreadAnswers(t *testing.T) {
	s := New(Config{MemoryBytes: memoryLimit, Data: bigtable.Config{RowBytesMax: 16 << 20, Open: func(context.Context, string, string) (bigtable.Table, error) { return appendTable{}, nil }}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
		serving.Wait()
	})
	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	request := &bigtablepb.ReadModifyWriteRowRequest{TableName: "projects/p/instances/i/tables/t", RowKey: []byte("r"),
		Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "f", Rule: &bigtablepb.ReadModifyWriteRule_AppendValue{AppendValue: []byte("x")}}}}
	answer, err := bigtablepb.NewBigtableClient(c).ReadModifyWriteRow(t.Context(), request, grpc.MaxCallRecvMsgSize(32<<20))
	if err != nil || len(answer.Row.Families[0].Columns[0].Cells[0].Value) != 15<<20 {
		t.Fatalf("a large answer: %v", err)
	}
	stop := heapBound(t)
	for range 60 {
		stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, bigtablepb.Bigtable_ReadModifyWriteRow_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(request); err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
	}
	time.Sleep(4 * time.Second)
	stop()
}
