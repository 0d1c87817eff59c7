package bigtable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/internal/testseed"
)

const tableName = "projects/p/instances/i/tables/t"

// server is a node or the emulator.
type server struct {
	data  bigtablepb.BigtableClient
	admin adminpb.BigtableTableAdminClient
}

// read returns the rows of a request as text, or the code of its error.
func (s *server) read(ctx context.Context, req *bigtablepb.ReadRowsRequest) string {
	stream, err := s.data.ReadRows(ctx, req)
	if err != nil {
		return status.Code(err).String()
	}
	var b strings.Builder
	var row, family, qualifier string
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			return status.Code(err).String()
		}
		for _, c := range m.Chunks {
			if len(c.RowKey) > 0 {
				row = string(c.RowKey)
			}
			if c.FamilyName != nil {
				family = c.FamilyName.Value
			}
			if c.Qualifier != nil {
				qualifier = string(c.Qualifier.Value)
			}
			fmt.Fprintf(&b, "%s %s:%s@%d=%s%v\n", row, family, qualifier, c.TimestampMicros, c.Value, c.Labels)
		}
	}
}

// random makes random requests about few rows, columns and timestamps.
type random struct{ *rand.Rand }

func (r random) row() []byte       { return fmt.Appendf(nil, "r%d", r.IntN(8)) }
func (r random) family() string    { return string(rune('f' + r.IntN(2))) }
func (r random) qualifier() []byte { return fmt.Appendf(nil, "q%d", r.IntN(3)) }
func (r random) timestamp() int64  { return 1000 * (1 + r.Int64N(5)) }
func (r random) value() []byte     { return fmt.Appendf(nil, "v%d", r.IntN(5)) }

func (r random) mutations() (all []*bigtablepb.Mutation) {
	for range 1 + r.IntN(3) {
		m := &bigtablepb.Mutation{}
		switch r.IntN(8) {
		case 0:
			m.Mutation = &bigtablepb.Mutation_DeleteFromRow_{DeleteFromRow: &bigtablepb.Mutation_DeleteFromRow{}}
		case 1:
			m.Mutation = &bigtablepb.Mutation_DeleteFromFamily_{DeleteFromFamily: &bigtablepb.Mutation_DeleteFromFamily{FamilyName: r.family()}}
		case 2:
			d := &bigtablepb.Mutation_DeleteFromColumn{FamilyName: r.family(), ColumnQualifier: r.qualifier()}
			if r.IntN(2) == 0 {
				start := r.timestamp()
				d.TimeRange = &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: (start + r.timestamp()) * r.Int64N(2)}
			}
			m.Mutation = &bigtablepb.Mutation_DeleteFromColumn_{DeleteFromColumn: d}
		default:
			m.Mutation = &bigtablepb.Mutation_SetCell_{SetCell: &bigtablepb.Mutation_SetCell{FamilyName: r.family(), ColumnQualifier: r.qualifier(), TimestampMicros: r.timestamp(), Value: r.value()}}
		}
		all = append(all, m)
	}
	return all
}

// filter returns a filter. Some are left out: sinks, which the emulator does not have, interleaves, since it orders equal cells otherwise,
// and ranges that end before they start, which a node rejects.
func (r random) filter(depth int) *bigtablepb.RowFilter {
	f := &bigtablepb.RowFilter{}
	n := 17
	if depth == 0 {
		n = 14
	}
	switch r.IntN(n) {
	case 0:
		f.Filter = &bigtablepb.RowFilter_PassAllFilter{PassAllFilter: true}
	case 1:
		f.Filter = &bigtablepb.RowFilter_BlockAllFilter{BlockAllFilter: true}
	case 2:
		f.Filter = &bigtablepb.RowFilter_RowKeyRegexFilter{RowKeyRegexFilter: []byte("r[0-3]")}
	case 3:
		f.Filter = &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: r.family()}
	case 4:
		f.Filter = &bigtablepb.RowFilter_ColumnQualifierRegexFilter{ColumnQualifierRegexFilter: []byte("q[01]")}
	case 5:
		f.Filter = &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte("v[024]")}
	case 6:
		f.Filter = &bigtablepb.RowFilter_ColumnRangeFilter{ColumnRangeFilter: &bigtablepb.ColumnRange{FamilyName: r.family(),
			StartQualifier: &bigtablepb.ColumnRange_StartQualifierOpen{StartQualifierOpen: []byte("q0")}, EndQualifier: &bigtablepb.ColumnRange_EndQualifierClosed{EndQualifierClosed: fmt.Appendf(nil, "q%d", 1+r.IntN(2))}}}
	case 7:
		f.Filter = &bigtablepb.RowFilter_ValueRangeFilter{ValueRangeFilter: &bigtablepb.ValueRange{
			StartValue: &bigtablepb.ValueRange_StartValueClosed{StartValueClosed: fmt.Appendf(nil, "v%d", r.IntN(3))}, EndValue: &bigtablepb.ValueRange_EndValueOpen{EndValueOpen: fmt.Appendf(nil, "v%d", 3+r.IntN(3))}}}
	case 8:
		start := r.timestamp()
		f.Filter = &bigtablepb.RowFilter_TimestampRangeFilter{TimestampRangeFilter: &bigtablepb.TimestampRange{StartTimestampMicros: start, EndTimestampMicros: start + r.timestamp()}}
	case 9:
		return r.ofFamily(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowOffsetFilter{CellsPerRowOffsetFilter: int32(r.IntN(4))}})
	case 10:
		return r.ofFamily(&bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_CellsPerRowLimitFilter{CellsPerRowLimitFilter: int32(1 + r.IntN(4))}})
	case 11:
		f.Filter = &bigtablepb.RowFilter_CellsPerColumnLimitFilter{CellsPerColumnLimitFilter: int32(1 + r.IntN(3))}
	case 12:
		f.Filter = &bigtablepb.RowFilter_StripValueTransformer{StripValueTransformer: true}
	case 13:
		f.Filter = &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: "[fg]"}
	case 14, 15:
		f.Filter = &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{r.filter(depth - 1), r.filter(depth - 1)}}}
	case 16:
		f.Filter = &bigtablepb.RowFilter_Condition_{Condition: &bigtablepb.RowFilter_Condition{PredicateFilter: r.filter(depth - 1), TrueFilter: r.filter(depth - 1), FalseFilter: r.filter(depth - 1)}}
	}
	return f
}

// ofFamily returns a chain of a family and a filter that counts the cells of a row: the emulator counts those of several families in random
// order.
func (r random) ofFamily(f *bigtablepb.RowFilter) *bigtablepb.RowFilter {
	family := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_FamilyNameRegexFilter{FamilyNameRegexFilter: r.family()}}
	return &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Chain_{Chain: &bigtablepb.RowFilter_Chain{Filters: []*bigtablepb.RowFilter{family, f}}}}
}

func (r random) rowSet() *bigtablepb.RowSet {
	set := &bigtablepb.RowSet{}
	for range r.IntN(3) {
		set.RowKeys = append(set.RowKeys, r.row())
	}
	for range r.IntN(3) {
		one := &bigtablepb.RowRange{}
		if r.IntN(4) > 0 {
			one.StartKey = &bigtablepb.RowRange_StartKeyClosed{StartKeyClosed: r.row()}
		}
		switch r.IntN(3) {
		case 0:
			one.EndKey = &bigtablepb.RowRange_EndKeyOpen{EndKeyOpen: r.row()}
		case 1:
			one.EndKey = &bigtablepb.RowRange_EndKeyClosed{EndKeyClosed: r.row()}
		}
		set.RowRanges = append(set.RowRanges, one)
	}
	return set
}

// step makes the same random call to a server, and returns its result as text.
func (r random) step(ctx context.Context, s *server) string {
	row := r.row()
	if r.IntN(40) == 0 {
		req := &adminpb.DropRowRangeRequest{Name: tableName, Target: &adminpb.DropRowRangeRequest_RowKeyPrefix{RowKeyPrefix: row[:1+r.IntN(2)]}}
		if r.IntN(8) == 0 {
			req.Target = &adminpb.DropRowRangeRequest_DeleteAllDataFromTable{DeleteAllDataFromTable: true}
		}
		_, err := s.admin.DropRowRange(ctx, req)
		return fmt.Sprintf("%v\n%v", req, status.Code(err))
	}
	switch r.IntN(6) {
	case 0:
		req := &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: row, Mutations: r.mutations()}
		_, err := s.data.MutateRow(ctx, req)
		return fmt.Sprintf("%v\n%v", req, status.Code(err))
	case 1:
		stream, err := s.data.MutateRows(ctx, &bigtablepb.MutateRowsRequest{TableName: tableName, Entries: []*bigtablepb.MutateRowsRequest_Entry{{RowKey: row, Mutations: r.mutations()}}})
		if err != nil {
			return status.Code(err).String()
		}
		m, err := stream.Recv()
		return fmt.Sprint(status.Code(err), len(m.GetEntries()))
	case 2:
		req := &bigtablepb.CheckAndMutateRowRequest{TableName: tableName, RowKey: row, PredicateFilter: r.filter(1), TrueMutations: r.mutations(), FalseMutations: r.mutations()}
		m, err := s.data.CheckAndMutateRow(ctx, req)
		return fmt.Sprintf("%v\n%v, matched: %t", req, status.Code(err), m.GetPredicateMatched())
	default:
		req := &bigtablepb.ReadRowsRequest{TableName: tableName, Rows: r.rowSet(), Filter: r.filter(2), RowsLimit: r.Int64N(3)}
		return fmt.Sprintf("%v\n%s", req, s.read(ctx, req))
	}
}

func serverOf(c grpc.ClientConnInterface) *server {
	return &server{bigtablepb.NewBigtableClient(c), adminpb.NewBigtableTableAdminClient(c)}
}

// startEmulator starts the public emulator in this process.
func startEmulator(t testing.TB) *server {
	t.Helper()
	emulator, err := bttest.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emulator.Close)
	c, err := grpc.NewClient(emulator.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return serverOf(c)
}

// TestEmulator: thousands of random calls have the same results as with the public emulator.
func TestEmulator(t *testing.T) {
	servers := []*server{startEmulator(t), serverOf(dial(t, startNode(t)))}
	for _, s := range servers {
		if _, err := s.admin.CreateTable(t.Context(), &adminpb.CreateTableRequest{Parent: "projects/p/instances/i", TableId: "t"}); err != nil {
			t.Fatal(err)
		}
		for _, family := range []string{"f", "g"} { // the emulator orders families by their creation
			m := &adminpb.ModifyColumnFamiliesRequest_Modification{Id: family, Mod: &adminpb.ModifyColumnFamiliesRequest_Modification_Create{Create: &adminpb.ColumnFamily{}}}
			if _, err := s.admin.ModifyColumnFamilies(t.Context(), &adminpb.ModifyColumnFamiliesRequest{Name: tableName, Modifications: []*adminpb.ModifyColumnFamiliesRequest_Modification{m}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	seed := testseed.New(t)
	for i := range uint64(3000) {
		want := random{rand.New(rand.NewPCG(seed, i))}.step(t.Context(), servers[0])
		got := random{rand.New(rand.NewPCG(seed, i))}.step(t.Context(), servers[1])
		if got != want {
			t.Fatalf("call %d: the node returns\n%s\nthe emulator\n%s", i, got, want)
		}
	}
}
