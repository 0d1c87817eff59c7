package server

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/internal/testseed"
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

// chaos is a client of sessions that keeps to no protocol.
type chaos struct {
	*rand.Rand
	c      bigtablepb.BigtableClient
	stream bigtablepb.Bigtable_OpenTableClient
	id     int64
}

// payload returns a request: one that succeeds, one that waits for its deadline, or noise.
func (c *chaos) payload(t *testing.T) []byte {
	row := []string{"fast", "fast", "slow", ""}[c.IntN(4)]
	m := mutation(row, c.IntN(2)*c.IntN(1<<16))
	b, err := proto.Marshal(&bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_MutateRow{
		MutateRow: &bigtablepb.SessionMutateRowRequest{Key: m.RowKey, Mutations: m.Mutations[:c.IntN(2)]}}})
	if err != nil {
		t.Error(err)
	}
	if c.IntN(8) == 0 {
		return b[:c.IntN(len(b)+1)]
	}
	return b
}

// step sends a message. It returns false if the session has ended.
func (c *chaos) step(t *testing.T) bool {
	virtual := &bigtablepb.VirtualRpcRequest{RpcId: c.id, Payload: c.payload(t), Deadline: durationpb.New(time.Duration(c.IntN(3)) * time.Millisecond)}
	m := &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: virtual}}
	switch c.IntN(40) {
	case 0:
		m.Payload = &bigtablepb.SessionRequest_CloseSession{}
	case 1:
		m.Payload = &bigtablepb.SessionRequest_OpenSession{}
	case 2:
		m.Payload = nil
	case 3:
		virtual.RpcId -= int64(c.IntN(3))
	default:
		c.id++
		virtual.RpcId = c.id
	}
	if c.stream.Send(m) != nil {
		return false
	}
	if c.IntN(10) == 0 { // several virtual RPCs at once
		return true
	}
	for {
		answer, err := c.stream.Recv()
		if err != nil {
			return false
		}
		if answer.GetVirtualRpc() != nil || answer.GetError() != nil {
			return true
		}
	}
}

// run has a session, and leaves it in some way.
func (c *chaos) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	payload, err := proto.Marshal(&bigtablepb.OpenTableRequest{TableName: "projects/p/instances/i/tables/t", Permission: bigtablepb.OpenTableRequest_Permission(c.IntN(4))})
	if err != nil {
		t.Error(err)
	}
	if c.stream, err = c.c.OpenTable(ctx); err != nil {
		t.Error(err)
		return
	}
	if c.id = 0; c.IntN(10) > 0 {
		_ = c.stream.Send(&bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{Payload: payload}}})
	}
	for range c.IntN(60) {
		if !c.step(t) {
			return
		}
	}
	if c.IntN(2) == 0 {
		_ = c.stream.CloseSend()
	}
}

// TestSessionChaos: sessions whose clients send what they like, and leave when they like, leave nothing behind, also while the service drains.
func TestSessionChaos(t *testing.T) {
	s, addr := start(t, memoryLimit)
	seed := testseed.New(t)
	var conns []*grpc.ClientConn
	var clients sync.WaitGroup
	for i := range uint64(8) {
		if i%2 == 0 {
			conns = append(conns, connect(t, addr))
		}
		c := chaos{Rand: rand.New(rand.NewPCG(seed, i)), c: bigtablepb.NewBigtableClient(conns[i/2])}
		clients.Go(func() {
			for range 60 {
				c.run(t)
			}
		})
	}
	clients.Wait()
	left := func() (used int64, sessions int) {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		return s.memory.mu.used, len(s.memory.mu.sessions)
	}
	await(t, func() bool { used, sessions := left(); return used == int64(len(conns))*connBytes && sessions == 0 })
	for i := range uint64(8) {
		c := chaos{Rand: rand.New(rand.NewPCG(seed, 100+i)), c: bigtablepb.NewBigtableClient(conns[i/2])}
		clients.Go(func() {
			for range 20 {
				c.run(t)
			}
		})
	}
	s.data.Drain()
	clients.Wait()
	await(t, func() bool { _, sessions := left(); return sessions == 0 })
}
