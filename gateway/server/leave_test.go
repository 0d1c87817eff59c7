package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/bigtable"
)

// stubbornTable applies mutations only when the test ends, whatever becomes of their clients.
type stubbornTable struct {
	bigtable.Table
	entered chan struct{} // gets a value from each handler
	end     chan struct{}
	running *atomic.Int64
}

func (t stubbornTable) Apply(context.Context, *client.RowMutation, ...client.ApplyOption) error {
	t.running.Add(1)
	t.entered <- struct{}{}
	<-t.end
	return nil
}

// stubborn starts a server on a stubbornTable.
func stubborn(t *testing.T) (s *Server, addr string, table stubbornTable) {
	t.Helper()
	table = stubbornTable{entered: make(chan struct{}), end: make(chan struct{}), running: &atomic.Int64{}}
	s = New(Config{MemoryBytes: memoryLimit, Data: bigtable.Config{Sessions: true, Open: func(context.Context, string, string) (bigtable.Table, error) { return table, nil }}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		close(table.end)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
		serving.Wait()
		if s.memory.mu.used != 0 {
			t.Errorf("%d bytes are charged for nothing", s.memory.mu.used)
		}
	})
	return s, l.Addr().String(), table
}

// TestRequestsOfLeavers (I13, GS6): requests whose clients reset their streams, or close their connections, are charged until their handlers end.
func TestRequestsOfLeavers(t *testing.T) {
	for _, k := range []struct {
		name string
		conn bool // a request has a connection of its own, which is closed
	}{{"streams", false}, {"connections", true}} {
		t.Run(k.name, func(t *testing.T) {
			_, addr, table := stubborn(t)
			stop := heapBound(t)
			shared := connect(t, addr)
			for range 100 {
				c := shared
				if k.conn {
					c = connect(t, addr)
				}
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error, 1)
				go func() {
					_, err := bigtablepb.NewBigtableClient(c).MutateRow(ctx, mutation("r", attackRequest))
					failed <- err
				}()
				rejected := false
				select {
				case <-table.entered:
				case <-failed:
					rejected = true
				case <-time.After(overloadWait + time.Second): // the connection is not read
					rejected = true
				}
				cancel()
				if k.conn {
					_ = c.Close()
				}
				if rejected {
					break
				}
			}
			stop()
			if n := table.running.Load(); n == 0 || n > memoryLimit/copies/attackRequest {
				t.Errorf("%d requests of %d MiB are executed at the same time, with memory for %d", n, attackRequest>>20, memoryLimit/copies/attackRequest)
			}
		})
	}
}

// TestSessionChargesNextMessage (I13, GS6): what a session has received of its next message is charged, although a heartbeat and an answer are sent.
func TestSessionChargesNextMessage(t *testing.T) {
	s, addr, table := stubborn(t)
	conn := connect(t, addr)
	session, err := openSession(t, bigtablepb.NewBigtableClient(conn))
	if err != nil {
		t.Fatal(err)
	}
	virtual := func(id int64, size int) *bigtablepb.SessionRequest {
		m := mutation("r", size)
		payload, err := proto.Marshal(&bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_MutateRow{
			MutateRow: &bigtablepb.SessionMutateRowRequest{Key: m.RowKey, Mutations: m.Mutations}}})
		if err != nil {
			t.Fatal(err)
		}
		return &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: id, Payload: payload}}}
	}
	const next = 40 << 10 // less than the window of a stream
	send := func(id int64, size int) {
		if err := session.Send(virtual(id, size)); err != nil {
			t.Fatal(err)
		}
	}
	used := func() int64 {
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		return s.memory.mu.used
	}
	send(1, 1)
	<-table.entered
	send(2, next)
	await(t, func() bool { return used() > connBytes+callBytes+copies*next })
	if m, err := session.Recv(); err != nil || m.GetHeartbeat() == nil {
		t.Fatalf("%v, %v, want a heartbeat", m, err)
	}
	if n := used(); n <= connBytes+callBytes+copies*next {
		t.Errorf("%d bytes are charged after a heartbeat, want more than %d", n, connBytes+callBytes+copies*next)
	}
	table.end <- struct{}{}
	if m, err := session.Recv(); err != nil || m.GetVirtualRpc().GetRpcId() != 1 {
		t.Fatalf("%v, %v, want an answer", m, err)
	}
	<-table.entered // the second is executed
	if n := used(); n <= connBytes+callBytes+copies*next {
		t.Errorf("%d bytes are charged after an answer, want more than %d", n, connBytes+callBytes+copies*next)
	}
	table.end <- struct{}{}
	if m, err := session.Recv(); err != nil || m.GetVirtualRpc().GetRpcId() != 2 {
		t.Fatalf("%v, %v, want an answer", m, err)
	}
	await(t, func() bool { return used() == connBytes+callBytes })
	if err := session.CloseSend(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return used() == connBytes })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return used() == 0 })
}

// TestKeepHoldsDecoded (I13, GB8): the memory of a decoded request is held while its handler runs, although it has got a client by then.
func TestKeepHoldsDecoded(t *testing.T) {
	held, clients := 1, 0
	k := &call{decoded: func() { held-- }}
	k.ctx = context.WithValue(t.Context(), callKey{}, k)
	for key := range 3 {
		if _, err := Keep(k.ctx, key, func() (int, func(), error) { clients++; return key, func() { clients-- }, nil }); err != nil {
			t.Fatal(err)
		}
		if held != 1 || clients != 1 {
			t.Errorf("the call holds %d requests and %d clients, want 1 and 1", held, clients)
		}
	}
	if k.end(); held != 0 || clients != 0 {
		t.Errorf("a call that has ended holds %d requests and %d clients", held, clients)
	}
}
