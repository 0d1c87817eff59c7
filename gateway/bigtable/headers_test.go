package bigtable

import (
	"context"
	"encoding/base64"
	"net"
	"regexp"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
)

// timingForm is the form of the header with the time of a call, in milliseconds.
var timingForm = regexp.MustCompile(`^gfet4t7; dur=\d+(\.\d+)?$`)

// TestHeaders: every answer, and an error, has the location and the time of the call; peer information is for clients that accept it.
func TestHeaders(t *testing.T) {
	f := &fakeTable{errs: map[string]error{"family": client.ErrNoFamily}}
	s := New(Config{Peer: Peer{Node: "n1", Zone: "z1"}, Open: func(context.Context, string, string) (Table, error) { return f, nil }})
	g := grpc.NewServer(grpc.ForceServerCodecV2(Codec()), grpc.ChainStreamInterceptor(s.Stream))
	s.Register(Streams(g, nil))
	l := bufconn.Listen(1 << 16)
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := bigtablepb.NewBigtableClient(conn)
	check := func(name string, md metadata.MD, peer bool) {
		t.Helper()
		p := &bigtablepb.ResponseParams{}
		if location := md.Get(headerLocation); len(location) != 1 || proto.Unmarshal([]byte(location[0]), p) != nil || p.GetZoneId() != "z1" || p.GetClusterId() != "stele" {
			t.Errorf("%s: location %q: %v", name, location, p)
		}
		if timing := md.Get(headerTiming); len(timing) != 1 || !timingForm.MatchString(timing[0]) {
			t.Errorf("%s: timing %q", name, timing)
		}
		if got := len(md.Get(headerPeer)) == 1; got != peer {
			t.Errorf("%s: peer information: %t, want %t", name, got, peer)
		}
	}
	for _, row := range []string{"r", "family"} {
		var md metadata.MD
		_, _ = c.MutateRow(t.Context(), &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte(row), Mutations: []*bigtablepb.Mutation{set(1)}}, grpc.Header(&md))
		check(row, md, false)
	}
	features := &bigtablepb.FeatureFlags{PeerInfo: true}
	ctx := metadata.AppendToOutgoingContext(t.Context(), headerFeatures, base64.RawURLEncoding.EncodeToString(encode(features)))
	for name, table := range map[string]string{"answers": tableName, "an error": "t"} {
		stream, err := c.MutateRows(ctx, &bigtablepb.MutateRowsRequest{TableName: table, Entries: []*bigtablepb.MutateRowsRequest_Entry{{RowKey: []byte("r"), Mutations: []*bigtablepb.Mutation{set(1)}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = stream.Recv()
		md, err := stream.Header()
		if err != nil {
			t.Fatal(err)
		}
		check(name, md, true)
	}
}
