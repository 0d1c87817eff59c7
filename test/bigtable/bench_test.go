package bigtable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	tables "github.com/steledb/stele/table"
)

const (
	benchRows  = 20_000
	benchValue = 1000 // bytes
)

// benchNode returns clients of a node whose table has benchRows rows: of the API without a client library, and of the node's own protocol.
func benchNode(b *testing.B) (bigtablepb.BigtableClient, *client.Table) {
	b.Helper()
	conn, t := benchConn(b)
	return bigtablepb.NewBigtableClient(conn), t
}

// benchConn is benchNode, with a connection for the API.
func benchConn(b *testing.B) (*grpc.ClientConn, *client.Table) {
	b.Helper()
	n := startNode(b)
	conn := connect(b, n.BigtableAddr())
	c, err := client.Open(b.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	if _, err := c.Tables().Create(b.Context(), table, tables.FamilySpec{Name: "f"}); err != nil {
		b.Fatal(err)
	}
	t := c.Table(table)
	var rows []*client.RowMutation
	for i := range benchRows {
		rows = append(rows, client.NewRowMutation(benchKey(i)).SetAt("f:q", 1000, make([]byte, benchValue)))
	}
	if err := t.ApplyAll(b.Context(), rows); err != nil {
		b.Fatal(err)
	}
	return conn, t
}

func connect(b *testing.B, addr string) *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

func benchKey(i int) string { return fmt.Sprintf("row%08d", i%benchRows) }

// read reads rows by the API and returns their number.
func read(ctx context.Context, c bigtablepb.BigtableClient, set *bigtablepb.RowSet) (rows int, err error) {
	stream, err := c.ReadRows(ctx, &bigtablepb.ReadRowsRequest{TableName: tableName, Rows: set})
	for err == nil {
		var m *bigtablepb.ReadRowsResponse
		m, err = stream.Recv()
		for _, chunk := range m.GetChunks() {
			if chunk.GetCommitRow() {
				rows++
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return rows, err
}

// BenchmarkPoints compares point reads and writes by the API with those by the node's own protocol, from 64 callers on one connection.
func BenchmarkPoints(b *testing.B) {
	c, t := benchNode(b)
	for name, call := range map[string]func(ctx context.Context, i int) error{
		"ReadRows": func(ctx context.Context, i int) error {
			_, err := read(ctx, c, &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(benchKey(i))}})
			return err
		},
		"Get": func(ctx context.Context, i int) error {
			_, err := t.Get(ctx, benchKey(i))
			return err
		},
		"MutateRow": func(ctx context.Context, i int) error {
			_, err := c.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte(benchKey(i)), Mutations: benchMutation()})
			return err
		},
		"Apply": func(ctx context.Context, i int) error {
			return t.Apply(ctx, client.NewRowMutation(benchKey(i)).SetAt("f:q", 1000, make([]byte, benchValue)))
		},
	} {
		b.Run(name, func(b *testing.B) { benchPoints(b, call) })
	}
}

// benchPoints measures calls from 64 callers.
func benchPoints(b *testing.B, call func(ctx context.Context, i int) error) {
	b.ReportAllocs()
	b.SetParallelism(32)
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for i := int(callers.Add(1)) * 101; pb.Next(); i += 7919 { // each caller has other rows

			if err := call(b.Context(), i); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkScans compares scans of all rows by the API with those by the node's own protocol.
func BenchmarkScans(b *testing.B) {
	c, t := benchNode(b)
	for name, scan := range map[string]func(ctx context.Context) (int, error){
		"ReadRows": func(ctx context.Context) (int, error) { return read(ctx, c, nil) },
		"Scan": func(ctx context.Context) (rows int, err error) {
			s := t.Scan(ctx)
			for s.Next() {
				rows++
			}
			return rows, s.Close()
		},
	} {
		b.Run(name, func(b *testing.B) { benchScans(b, scan) })
	}
}

// benchScans measures scans of all rows, one after another.
func benchScans(b *testing.B, scan func(ctx context.Context) (int, error)) {
	b.ReportAllocs()
	for b.Loop() {
		if rows, err := scan(b.Context()); err != nil || rows != benchRows {
			b.Fatalf("%d rows, %v, want %d", rows, err, benchRows)
		}
	}
	b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// rawSession is a session of a client without a library.
type rawSession struct {
	stream bigtablepb.Bigtable_OpenTableClient
	id     int64
}

func openRawSession(ctx context.Context, c bigtablepb.BigtableClient) (*rawSession, error) {
	payload, err := proto.Marshal(&bigtablepb.OpenTableRequest{TableName: tableName})
	if err != nil {
		return nil, err
	}
	stream, err := c.OpenTable(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_OpenSession{OpenSession: &bigtablepb.OpenSessionRequest{Payload: payload}}}); err != nil {
		return nil, err
	}
	for range 2 { // the session, and its parameters
		if _, err := stream.Recv(); err != nil {
			return nil, err
		}
	}
	return &rawSession{stream: stream}, nil
}

// call makes a virtual RPC, and decodes its answer.
func (s *rawSession) call(req *bigtablepb.TableRequest) error {
	payload, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	s.id++
	if err := s.stream.Send(&bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: s.id, Payload: payload}}}); err != nil {
		return err
	}
	m, err := s.stream.Recv()
	if err != nil {
		return err
	}
	answer := &bigtablepb.TableResponse{}
	if err := proto.Unmarshal(m.GetVirtualRpc().GetPayload(), answer); err != nil || answer.Payload == nil {
		return fmt.Errorf("%v, %w", m, err)
	}
	return nil
}

// BenchmarkSessions measures point reads and writes in 64 sessions on one connection, beside those of BenchmarkPoints.
func BenchmarkSessions(b *testing.B) {
	c, _ := benchNode(b)
	for name, request := range map[string]func(i int) *bigtablepb.TableRequest{
		"read_row": func(i int) *bigtablepb.TableRequest {
			return &bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_ReadRow{ReadRow: &bigtablepb.SessionReadRowRequest{Key: []byte(benchKey(i))}}}
		},
		"mutate_row": func(i int) *bigtablepb.TableRequest {
			return &bigtablepb.TableRequest{Payload: &bigtablepb.TableRequest_MutateRow{MutateRow: &bigtablepb.SessionMutateRowRequest{Key: []byte(benchKey(i)),
				Mutations: benchMutation()}}}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				s, err := openRawSession(b.Context(), c)
				for i := 0; err == nil && pb.Next(); i += 7919 {
					err = s.call(request(i))
				}
				if err != nil {
					b.Error(err)
				}
			})
		})
	}
}
