package bigtable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// rawCodec is a codec of messages that are bytes already.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(m any) ([]byte, error) { return *m.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, m any) error {
	*m.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// bareServer is what grpc-go can do at best: it stores nothing, and answers calls for single rows and batches from memory.
type bareServer struct {
	bigtablepb.UnimplementedBigtableServer
	value []byte
}

func (s *bareServer) ReadRows(r *bigtablepb.ReadRowsRequest, stream bigtablepb.Bigtable_ReadRowsServer) error {
	return stream.Send(&bigtablepb.ReadRowsResponse{Chunks: []*bigtablepb.ReadRowsResponse_CellChunk{{
		RowKey: r.Rows.RowKeys[0], FamilyName: wrapperspb.String("f"), Qualifier: wrapperspb.Bytes([]byte("q")), TimestampMicros: 1000, Value: s.value,
		RowStatus: &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true},
	}}})
}

func (s *bareServer) MutateRow(context.Context, *bigtablepb.MutateRowRequest) (*bigtablepb.MutateRowResponse, error) {
	return &bigtablepb.MutateRowResponse{}, nil
}

func (s *bareServer) MutateRows(r *bigtablepb.MutateRowsRequest, stream bigtablepb.Bigtable_MutateRowsServer) error {
	answer := &bigtablepb.MutateRowsResponse{}
	for i := range r.Entries {
		answer.Entries = append(answer.Entries, &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: &status.Status{}})
	}
	return stream.Send(answer)
}

// serveBare serves s, and the answers of a scan as they are.
func serveBare(b *testing.B, s *bareServer, scan [][]byte) (points, scans bigtablepb.BigtableClient) {
	server := grpc.NewServer()
	bigtablepb.RegisterBigtableServer(server, s)
	raw := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var request []byte
		err := stream.RecvMsg(&request)
		for i := 0; err == nil && i < len(scan); i++ {
			err = stream.SendMsg(&scan[i])
		}
		return err
	}))
	return serveOn(b, server), serveOn(b, raw)
}

// serveOn serves a server on loopback, and returns a client of it.
func serveOn(b *testing.B, server *grpc.Server) bigtablepb.BigtableClient {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	return bigtablepb.NewBigtableClient(connect(b, listener.Addr().String()))
}

// scanMessages returns the encoded answers to a scan of the whole table.
func scanMessages(b *testing.B, conn *grpc.ClientConn) (all [][]byte) {
	request, err := proto.Marshal(&bigtablepb.ReadRowsRequest{TableName: tableName})
	if err != nil {
		b.Fatal(err)
	}
	stream, err := conn.NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true}, bigtablepb.Bigtable_ReadRows_FullMethodName, grpc.ForceCodec(rawCodec{}))
	if err == nil {
		err = errors.Join(stream.SendMsg(&request), stream.CloseSend())
	}
	for err == nil {
		var answer []byte
		if err = stream.RecvMsg(&answer); err == nil {
			all = append(all, answer)
		}
	}
	if !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	return all
}

// emulatorClient returns a client of Google's emulator with the rows of benchNode.
func emulatorClient(b *testing.B) bigtablepb.BigtableClient {
	emulator := startEmulator(b)
	families := map[string]*adminpb.ColumnFamily{"f": {}}
	if _, err := emulator.admin.CreateTable(b.Context(), &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: table, Table: &adminpb.Table{ColumnFamilies: families}}); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < benchRows; i += 100 {
		if err := mutateHundred(b.Context(), emulator.data, i); err != nil {
			b.Fatal(err)
		}
	}
	return emulator.data
}

// mutateHundred writes 100 rows.
func mutateHundred(ctx context.Context, c bigtablepb.BigtableClient, from int) error {
	r := &bigtablepb.MutateRowsRequest{TableName: tableName}
	for i := range 100 {
		r.Entries = append(r.Entries, &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte(benchKey(from + i)), Mutations: benchMutation()})
	}
	stream, err := c.MutateRows(ctx, r)
	done := 0
	for err == nil {
		var m *bigtablepb.MutateRowsResponse
		if m, err = stream.Recv(); err == nil {
			for _, e := range m.Entries {
				if e.Status.GetCode() != 0 {
					return fmt.Errorf("row %d: %v", e.Index, e.Status)
				}
				done++
			}
		}
	}
	if errors.Is(err, io.EOF) && done == len(r.Entries) {
		return nil
	}
	return fmt.Errorf("%d rows of %d: %w", done, len(r.Entries), err)
}

func benchMutation() []*bigtablepb.Mutation {
	set := &bigtablepb.Mutation_SetCell{FamilyName: "f", ColumnQualifier: []byte("q"), TimestampMicros: 1000, Value: make([]byte, benchValue)}
	return []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: set}}}
}

// BenchmarkPeers compares a node, whose writes are on disk, with a server of grpc-go that answers the same messages from memory, and with Google's
// emulator, which keeps rows in memory. Points and batches are those of 64 callers on one connection. The client uses the same processors, and does the
// same in each.
func BenchmarkPeers(b *testing.B) {
	conn, _ := benchConn(b)
	node := bigtablepb.NewBigtableClient(conn)
	bare, bareScan := serveBare(b, &bareServer{value: make([]byte, benchValue)}, scanMessages(b, conn))
	emulator := emulatorClient(b)
	for _, peer := range []struct {
		name          string
		points, scans bigtablepb.BigtableClient
	}{{"node", node, node}, {"bare", bare, bareScan}, {"emulator", emulator, emulator}} {
		c := peer.points
		for name, call := range map[string]func(ctx context.Context, i int) error{
			"read": func(ctx context.Context, i int) error {
				n, err := read(ctx, c, &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(benchKey(i))}})
				if err == nil && n != 1 {
					err = fmt.Errorf("%d rows", n)
				}
				return err
			},
			"mutate": func(ctx context.Context, i int) error {
				_, err := c.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte(benchKey(i)), Mutations: benchMutation()})
				return err
			},
			"mutate100": func(ctx context.Context, i int) error { return mutateHundred(ctx, c, i) },
		} {
			b.Run(name+"/"+peer.name, func(b *testing.B) { benchPoints(b, call) })
		}
		b.Run("scan/"+peer.name, func(b *testing.B) {
			benchScans(b, func(ctx context.Context) (int, error) { return read(ctx, peer.scans, nil) })
		})
	}
}
