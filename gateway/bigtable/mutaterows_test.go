package bigtable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
)

// inPieces returns bytes in buffers of several sizes.
func inPieces(t *testing.T, b []byte) (data mem.BufferSlice) {
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	most := 1 + r.IntN(1+len(b))
	for len(b) > 0 {
		n := min(len(b), r.IntN(1+most))
		data = append(data, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return data
}

// mutateRows executes a request as it is received.
func mutateRows(t *testing.T, s *Service, req *bigtablepb.MutateRowsRequest, stream bigtablepb.Bigtable_MutateRowsServer) error {
	b, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return s.mutateRows(inPieces(t, b), stream)
}

// groupTable records how many rows each ApplyAll has. Those whose keys begin with "no" have no family.
type groupTable struct {
	Table
	rows  []string
	calls []int
	gone  int // the number of the call from which on the table does not exist; 0 for none
}

func (g *groupTable) ApplyAll(_ context.Context, ms []*client.RowMutation, _ ...client.ApplyOption) error {
	g.calls = append(g.calls, len(ms))
	failed := &client.BatchError{Errs: make([]error, len(ms))}
	for i, m := range ms {
		g.rows = append(g.rows, m.Row())
		switch {
		case g.gone > 0 && len(g.calls) >= g.gone:
			failed.Errs[i] = client.ErrNoTable
		case strings.HasPrefix(m.Row(), "no"):
			failed.Errs[i] = client.ErrNoFamily
		default:
			continue
		}
		failed.Failed++
	}
	if failed.Failed > 0 {
		return failed
	}
	return nil
}

// groupedService returns a service that decodes some 10 small entries at a time.
func groupedService(g *groupTable) *Service {
	return New(Config{GroupBytes: 10 << 10, Open: func(context.Context, string, string) (Table, error) { return g, nil }})
}

// TestMutateRowsGroups (GB4): the entries of a request are executed in groups, in their order, and each index is answered once, with its own status.
func TestMutateRowsGroups(t *testing.T) {
	g := &groupTable{}
	req := &bigtablepb.MutateRowsRequest{TableName: tableName, AppProfileId: "default"}
	var want []string
	for i := range 100 {
		e := &bigtablepb.MutateRowsRequest_Entry{RowKey: fmt.Appendf(nil, "%03d", i), Mutations: []*bigtablepb.Mutation{set(1)}}
		switch i % 10 {
		case 3:
			e.Mutations = nil
		case 5:
			e.RowKey = append([]byte("no"), e.RowKey...)
			fallthrough
		default:
			want = append(want, string(e.RowKey))
		}
		req.Entries = append(req.Entries, e)
	}
	a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
	if err := mutateRows(t, groupedService(g), req, a); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.rows, want) || len(g.calls) < 5 || slices.Max(g.calls) > 20 {
		t.Errorf("%d groups of %v rows, want some of some 10: %v", len(g.calls), g.calls, g.rows)
	}
	i := 0
	for _, m := range a.sent {
		for _, e := range m.Entries {
			code := map[int]codes.Code{3: codes.InvalidArgument, 5: codes.NotFound}[i%10]
			if e.Index != int64(i) || codes.Code(e.Status.GetCode()) != code {
				t.Errorf("index %d: %v, want %v", i, e, code)
			}
			i++
		}
	}
	if i != len(req.Entries) || len(a.sent) != len(g.calls) {
		t.Errorf("%d answers in %d messages for %d groups, want %d", i, len(a.sent), len(g.calls), len(req.Entries))
	}
}

// TestMutateRowsTableDropped: if the table is dropped while a request is executed, its first rows have been changed, and each index has its status.
func TestMutateRowsTableDropped(t *testing.T) {
	g := &groupTable{gone: 2}
	req := &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: many(30, func(i int) *bigtablepb.MutateRowsRequest_Entry {
		return &bigtablepb.MutateRowsRequest_Entry{RowKey: []byte{'r', byte(i)}, Mutations: []*bigtablepb.Mutation{set(1)}}
	})}
	a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
	if err := mutateRows(t, groupedService(g), req, a); err != nil || len(a.sent) < 2 {
		t.Fatalf("%v, %d messages", err, len(a.sent))
	}
	for i, m := range a.sent {
		for _, e := range m.Entries {
			if want := map[bool]codes.Code{true: codes.OK, false: codes.NotFound}[i == 0]; codes.Code(e.Status.Code) != want {
				t.Errorf("message %d: %v, want %v", i, e, want)
			}
		}
	}
}

// TestMutateRowsMalformed: a request whose fields cannot be found is rejected before any entry is executed, and an entry that cannot be decoded has
// a status of its own.
func TestMutateRowsMalformed(t *testing.T) {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	entry, err := proto.Marshal(&bigtablepb.MutateRowsRequest_Entry{RowKey: []byte("r"), Mutations: []*bigtablepb.Mutation{set(1)}})
	if err != nil {
		t.Fatal(err)
	}
	name := field(1, []byte(tableName))
	good := append(slices.Clone(name), field(requestEntries, entry)...)
	g := &groupTable{}
	for what, b := range map[string][]byte{
		"a truncated tag":        append(slices.Clone(good), 0x80),
		"a truncated length":     append(slices.Clone(good), 0x12, 0x80),
		"a truncated entry":      append(slices.Clone(good), 0x12, 5, 1),
		"a truncated number":     append(slices.Clone(good), 0x30, 0x80),
		"a truncated fixed32":    append(slices.Clone(good), 0x35, 1),
		"a group":                append(slices.Clone(good), 0x13, 0x14),
		"the number 0":           append(slices.Clone(good), 0x02, 0),
		"a name that is no text": append(slices.Clone(good), field(3, []byte{0xff})...),
		"a long head":            append(slices.Clone(good), field(99, make([]byte, headBytesMax))...),
		"no entries":             name,
	} {
		a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
		if err := groupedService(g).mutateRows(inPieces(t, b), a); status.Code(err) != codes.InvalidArgument || len(a.sent)+len(g.calls) > 0 {
			t.Errorf("%s: %v, %d messages, %d groups", what, err, len(a.sent), len(g.calls))
		}
	}
	// The name may follow the entries, among other fields.
	b := slices.Concat(field(requestEntries, entry), []byte{0x30, 1}, field(requestEntries, []byte{0x0a, 5}), field(99, []byte("new")), []byte{0x35, 1, 2, 3, 4}, name, field(requestEntries, entry))
	a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
	if err := groupedService(g).mutateRows(inPieces(t, b), a); err != nil || len(a.sent) != 1 || len(a.sent[0].Entries) != 3 {
		t.Fatalf("%v, %v", err, a.sent)
	}
	for i, want := range []codes.Code{codes.OK, codes.InvalidArgument, codes.OK} {
		if got := codes.Code(a.sent[0].Entries[i].Status.Code); got != want {
			t.Errorf("entry %d: %v, want %v", i, got, want)
		}
	}
}

// TestMutateRowsMemory (GB8): memory for the largest group is reserved before an entry is executed, and released; a request for which there can be
// none is rejected for good.
func TestMutateRowsMemory(t *testing.T) {
	g := &groupTable{}
	s := groupedService(g)
	var reserved, most int64
	s.cfg.DecodedBytesMax = 64 << 10
	s.cfg.Reserve = func(_ context.Context, n int64) (func(), error) {
		if reserved += n; reserved > 12<<10 {
			reserved -= n
			return nil, &api.OverloadedError{Reason: "memory"}
		}
		most = max(most, reserved)
		return func() { reserved -= n }, nil
	}
	request := func(entries, mutations int) *bigtablepb.MutateRowsRequest {
		return &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: many(entries, func(i int) *bigtablepb.MutateRowsRequest_Entry {
			return &bigtablepb.MutateRowsRequest_Entry{RowKey: fmt.Appendf(nil, "row%05d", i), Mutations: many(mutations, func(int) *bigtablepb.Mutation { return set(1) })}
		})}
	}
	for _, c := range []struct {
		entries, mutations int
		want               codes.Code
		reserves           bool
	}{
		{1, 1, codes.OK, false},
		{1000, 1, codes.OK, false},
		{2, 60, codes.OK, true},
		{2, 90, codes.Unavailable, true},
		{2, 200, codes.InvalidArgument, false},
	} {
		most, g.calls = 0, nil
		a := &answers[bigtablepb.MutateRowsResponse]{ctx: t.Context()}
		err := mutateRows(t, s, request(c.entries, c.mutations), a)
		if status.Code(err) != c.want || most > 0 != c.reserves && c.want == codes.OK || reserved != 0 {
			t.Errorf("%d entries of %d mutations: %v, reserved %d bytes at most and %d at last, want %v", c.entries, c.mutations, err, most, reserved, c.want)
		}
		if c.want != codes.OK && len(g.calls) > 0 {
			t.Errorf("%d entries of %d mutations: some are executed", c.entries, c.mutations)
		}
	}
}
