package bigtable

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/table/hll"
)

const table = "t"

// createTable creates the table with split points and three families.
func createTable(t *testing.T, admin *bigtable.AdminClient) {
	t.Helper()
	if err := admin.CreateTableFromConf(t.Context(), &bigtable.TableConf{
		TableID: table, SplitKeys: []string{"m"},
		Families: map[string]bigtable.GCPolicy{"f": bigtable.NoGcPolicy(), "g": bigtable.MaxVersionsPolicy(2),
			"h": bigtable.UnionPolicy(bigtable.MaxVersionsPolicy(9), bigtable.MaxAgePolicy(time.Hour))},
	}); err != nil {
		t.Fatal(err)
	}
}

// rowsOf returns the rows of a read as text: "row=family:qualifier@timestamp/value,…".
func rowsOf(t *testing.T, tbl *bigtable.Table, set bigtable.RowSet, opts ...bigtable.ReadOption) string {
	t.Helper()
	var rows []string
	err := tbl.ReadRows(t.Context(), set, func(r bigtable.Row) bool {
		var cells []string
		for _, family := range slices.Sorted(func(yield func(string) bool) {
			for f := range r {
				if !yield(f) {
					return
				}
			}
		}) {
			for _, c := range r[family] {
				text := fmt.Sprintf("%s@%d/%.20s", c.Column, c.Timestamp, c.Value)
				if len(c.Labels) > 0 {
					text += "!" + strings.Join(c.Labels, "!")
				}
				cells = append(cells, text)
			}
		}
		rows = append(rows, r.Key()+"="+strings.Join(cells, ","))
		return true
	}, opts...)
	if err != nil {
		t.Fatalf("read %v: %v", set, err)
	}
	return strings.Join(rows, " ")
}

// write writes rows a to f, and n to z: two on each side of the split.
func write(t *testing.T, tbl *bigtable.Table) {
	t.Helper()
	var keys []string
	var muts []*bigtable.Mutation
	for _, row := range []string{"a", "b", "n", "z"} {
		m := bigtable.NewMutation()
		m.Set("f", "q", 1000, []byte(row+"1"))
		m.Set("f", "q", 2000, []byte(row+"2"))
		m.Set("g", "r", 1000, []byte(row+"3"))
		keys, muts = append(keys, row), append(muts, m)
	}
	if errs, err := tbl.ApplyBulk(t.Context(), keys, muts); err != nil || errs != nil {
		t.Fatal(errs, err)
	}
}

// TestGoReads: Google's Go client reads rows, ranges and filters.
func TestGoReads(t *testing.T) {
	c, admin := goClient(t, startNode(t))
	createTable(t, admin)
	tbl := c.Open(table)
	write(t, tbl)
	newest := bigtable.RowFilter(bigtable.ChainFilters(bigtable.FamilyFilter("f"), bigtable.LatestNFilter(1)))
	for _, r := range []struct {
		name string
		set  bigtable.RowSet
		opts []bigtable.ReadOption
		want string
	}{
		{"all", bigtable.InfiniteRange(""), []bigtable.ReadOption{newest}, "a=f:q@2000/a2 b=f:q@2000/b2 n=f:q@2000/n2 z=f:q@2000/z2"},
		{"a limit", bigtable.InfiniteRange(""), []bigtable.ReadOption{newest, bigtable.LimitRows(3)}, "a=f:q@2000/a2 b=f:q@2000/b2 n=f:q@2000/n2"},
		{"a range", bigtable.NewRange("b", "z"), []bigtable.ReadOption{newest}, "b=f:q@2000/b2 n=f:q@2000/n2"},
		{"open and closed", bigtable.NewOpenClosedRange("a", "n"), []bigtable.ReadOption{newest}, "b=f:q@2000/b2 n=f:q@2000/n2"},
		{"a prefix", bigtable.PrefixRange("n"), []bigtable.ReadOption{newest}, "n=f:q@2000/n2"},
		{"a list", bigtable.RowList{"z", "a", "x", "a"}, []bigtable.ReadOption{newest}, "a=f:q@2000/a2 z=f:q@2000/z2"},
		{"a list with a limit", bigtable.RowList{"z", "a", "n"}, []bigtable.ReadOption{newest, bigtable.LimitRows(2)}, "a=f:q@2000/a2 n=f:q@2000/n2"},
		{"ranges", bigtable.RowRangeList{bigtable.NewRange("n", "o"), bigtable.NewRange("a", "b"), bigtable.NewRange("a", "c")}, []bigtable.ReadOption{newest}, "a=f:q@2000/a2 b=f:q@2000/b2 n=f:q@2000/n2"},
		{"reversed", bigtable.InfiniteRange(""), []bigtable.ReadOption{newest, bigtable.ReverseScan(), bigtable.LimitRows(3)}, "z=f:q@2000/z2 n=f:q@2000/n2 b=f:q@2000/b2"},
		{"a reversed list", bigtable.RowList{"z", "a", "n"}, []bigtable.ReadOption{newest, bigtable.ReverseScan()}, "z=f:q@2000/z2 n=f:q@2000/n2 a=f:q@2000/a2"},
		{"reversed ranges", bigtable.RowRangeList{bigtable.NewRange("a", "b"), bigtable.NewRange("m", "o")}, []bigtable.ReadOption{newest, bigtable.ReverseScan()}, "n=f:q@2000/n2 a=f:q@2000/a2"},
		{"versions and families", bigtable.SingleRow("a"), nil, "a=f:q@2000/a2,f:q@1000/a1,g:r@1000/a3"},
		{"a column", bigtable.SingleRow("a"), []bigtable.ReadOption{bigtable.RowFilter(bigtable.ColumnRangeFilter("g", "r", ""))}, "a=g:r@1000/a3"},
		{"a time range", bigtable.SingleRow("a"), []bigtable.ReadOption{bigtable.RowFilter(bigtable.TimestampRangeFilterMicros(2000, 0))}, "a=f:q@2000/a2"},
		{"values", bigtable.InfiniteRange(""), []bigtable.ReadOption{bigtable.RowFilter(bigtable.ValueFilter("[an]3"))}, "a=g:r@1000/a3 n=g:r@1000/n3"},
		{"row keys", bigtable.InfiniteRange(""), []bigtable.ReadOption{bigtable.RowFilter(bigtable.ChainFilters(bigtable.RowKeyFilter("[bz]"), bigtable.CellsPerRowLimitFilter(1)))}, "b=f:q@2000/b2 z=f:q@2000/z2"},
		{"stripped", bigtable.SingleRow("a"), []bigtable.ReadOption{bigtable.RowFilter(bigtable.ChainFilters(bigtable.CellsPerRowOffsetFilter(2), bigtable.StripValueFilter()))}, "a=g:r@1000/"},
		{"labels", bigtable.SingleRow("a"), []bigtable.ReadOption{bigtable.RowFilter(bigtable.ChainFilters(bigtable.FamilyFilter("g"), bigtable.LabelFilter("x")))}, "a=g:r@1000/a3!x"},
		{"interleaved", bigtable.SingleRow("a"), []bigtable.ReadOption{bigtable.RowFilter(bigtable.InterleaveFilters(bigtable.FamilyFilter("g"), bigtable.FamilyFilter("g")))}, "a=g:r@1000/a3,g:r@1000/a3"},
		{"a condition", bigtable.InfiniteRange(""), []bigtable.ReadOption{bigtable.RowFilter(bigtable.ConditionFilter(bigtable.RowKeyFilter("a"), bigtable.FamilyFilter("g"), bigtable.BlockAllFilter()))}, "a=g:r@1000/a3"},
		{"nothing", bigtable.SingleRow("a"), []bigtable.ReadOption{bigtable.RowFilter(bigtable.BlockAllFilter())}, ""},
	} {
		if got := rowsOf(t, tbl, r.set, r.opts...); got != r.want {
			t.Errorf("%s: %s, want %s", r.name, got, r.want)
		}
	}
	var stats *bigtable.FullReadStats
	rowsOf(t, tbl, bigtable.InfiniteRange(""), bigtable.WithFullReadStats(func(s *bigtable.FullReadStats) { stats = s }))
	if stats == nil || stats.ReadIterationStats.RowsReturnedCount != 4 || stats.ReadIterationStats.CellsReturnedCount != 12 {
		t.Errorf("%+v, want 4 rows and 12 cells", stats)
	}
	if keys, err := tbl.SampleRowKeys(t.Context()); err != nil || !slices.Contains(keys, "m") {
		t.Errorf("%q, %v, want a sample at the split", keys, err)
	}
	_, err := c.Open("absent").ReadRow(t.Context(), "a")
	if status.Code(err) != codes.NotFound {
		t.Errorf("%v, want NOT_FOUND", err)
	}
}

// TestGoWrites: Google's Go client writes, deletes, checks and increments.
func TestGoWrites(t *testing.T) {
	c, admin := goClient(t, startNode(t))
	createTable(t, admin)
	tbl, ctx := c.Open(table), t.Context()
	write(t, tbl)
	m := bigtable.NewMutation()
	m.DeleteTimestampRange("f", "q", 1000, 2000)
	m.DeleteCellsInFamily("g")
	m.Set("f", "new", bigtable.ServerTime, []byte("x"))
	if err := tbl.Apply(ctx, "a", m); err != nil {
		t.Fatal(err)
	}
	row, err := tbl.ReadRow(ctx, "a")
	if err != nil || len(row["f"]) != 2 || row["f"][1].Timestamp != 2000 || len(row["g"]) != 0 || time.Since(row["f"][0].Timestamp.Time()).Abs() > time.Hour {
		t.Errorf("%v, %v", row, err)
	}
	remove := bigtable.NewMutation()
	remove.DeleteRow()
	var matched bool
	check := bigtable.NewCondMutation(bigtable.ValueFilter("b3"), remove, nil)
	if err := tbl.Apply(ctx, "b", check, bigtable.GetCondMutationResult(&matched)); err != nil || !matched {
		t.Errorf("matched: %t, %v", matched, err)
	}
	if got := rowsOf(t, tbl, bigtable.NewRange("b", "c")); got != "" {
		t.Errorf("%s, want no row", got)
	}
	modify := bigtable.NewReadModifyWrite()
	modify.Increment("f", "n", 5)
	modify.AppendValue("f", "q", []byte("+"))
	for range 2 {
		if row, err = tbl.ApplyReadModifyWrite(ctx, "n", modify); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, cell := range row["f"] {
		got = append(got, fmt.Sprintf("%s=%q", cell.Column, cell.Value))
	}
	if strings.Join(got, " ") != `f:n="\x00\x00\x00\x00\x00\x00\x00\n" f:q="n2++"` {
		t.Errorf("%v", got)
	}
	large := bigtable.NewReadModifyWrite() // of more memory than a call has without reserving some
	large.AppendValue("f", "large", make([]byte, 1<<20))
	for n := range 2 {
		row, err := tbl.ApplyReadModifyWrite(ctx, "n", large)
		if err != nil || len(row["f"][0].Value) != (n+1)<<20 {
			t.Errorf("append %d to a large cell: %v", n, err)
		}
	}
	// Errors have the codes that programs check.
	bad := bigtable.NewMutation()
	bad.Set("absent", "q", 1000, nil)
	errs, err := tbl.ApplyBulk(ctx, []string{"x", "y"}, []*bigtable.Mutation{bad, m})
	if err != nil || len(errs) != 2 || status.Code(errs[0]) != codes.NotFound || errs[1] != nil {
		t.Errorf("%v, %v, want NOT_FOUND for the first", errs, err)
	}
	if err := tbl.Apply(ctx, "", m); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "Row keys must be non-empty") {
		t.Errorf("empty key: %v", err)
	}
}

// TestGoAggregates: Google's Go client creates families of sums, minima, maxima and unique counts, and adds to and merges into their cells.
func TestGoAggregates(t *testing.T) {
	c, admin := goClient(t, startNode(t))
	integers := func(a bigtable.Aggregator) bigtable.Family {
		return bigtable.Family{ValueType: bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: a}}
	}
	families := map[string]bigtable.Family{"sum": integers(bigtable.SumAggregator{}), "min": integers(bigtable.MinAggregator{}), "max": integers(bigtable.MaxAggregator{}),
		"unique": integers(bigtable.HllppUniqueCountAggregator{}), "f": {}}
	if err := admin.CreateTableFromConf(t.Context(), &bigtable.TableConf{TableID: table, ColumnFamilies: families}); err != nil {
		t.Fatal(err)
	}
	info, err := admin.TableInfo(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range info.FamilyInfos {
		got, is := f.ValueType.(bigtable.AggregateType)
		want, wanted := families[f.Name].ValueType.(bigtable.AggregateType)
		if is != wanted || got.Aggregator != want.Aggregator {
			t.Errorf("family %s has the type %+v", f.Name, f.ValueType)
		}
	}
	tbl := c.Open(table)
	for _, n := range []int64{5, -7, 3} {
		m := bigtable.NewMutation()
		for _, family := range []string{"sum", "min", "max"} {
			m.AddIntToCell(family, "a", 1000, n)
			m.MergeBytesToCell(family, "m", 2000, binary.BigEndian.AppendUint64(nil, uint64(n)))
		}
		m.AddIntToCell("unique", "a", 1000, n)
		m.MergeBytesToCell("unique", "m", 2000, hll.AppendOne(nil, n))
		if err := tbl.Apply(t.Context(), "r", m); err != nil {
			t.Fatal(err)
		}
	}
	row, err := tbl.ReadRow(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for family, want := range map[string]int64{"sum": 1, "min": -7, "max": 5} {
		for i, at := range []bigtable.Timestamp{1000, 2000} {
			if c := row[family][i]; c.Timestamp != at || int64(binary.BigEndian.Uint64(c.Value)) != want {
				t.Errorf("%s: %+v, want %d", family, c, want)
			}
		}
	}
	// The sketch of 5, -7 and 3 that Google's library zetasketch 0.1.0 makes.
	const sketch = "08701003180220088207121003180f2014320aeaaf01fac7069daac801"
	for i, at := range []bigtable.Timestamp{1000, 2000} {
		if c := row["unique"][i]; c.Timestamp != at || hex.EncodeToString(c.Value) != sketch {
			t.Errorf("unique: %d %x, want %s", c.Timestamp, c.Value, sketch)
		}
	}
	set, add := bigtable.NewMutation(), bigtable.NewMutation()
	set.Set("sum", "a", 1000, binary.BigEndian.AppendUint64(nil, 1))
	add.AddIntToCell("f", "a", 1000, 1)
	for name, m := range map[string]*bigtable.Mutation{"set": set, "add": add} {
		if err := tbl.Apply(t.Context(), "r", m); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := bigtable.NewMutation()
	bad.MergeBytesToCell("unique", "a", 1000, []byte("x"))
	if err := tbl.Apply(t.Context(), "r", bad); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "ZetaSketch") {
		t.Errorf("merge of no sketch: %v", err)
	}
	increment := bigtable.NewReadModifyWrite()
	increment.Increment("sum", "a", 1)
	if _, err := tbl.ApplyReadModifyWrite(t.Context(), "r", increment); status.Code(err) != codes.InvalidArgument {
		t.Errorf("increment: %v", err)
	}
}

// TestGoLargeRows: rows larger than a message of other clients arrive whole. The client accepts 4 MiB from an emulator.
func TestGoLargeRows(t *testing.T) {
	c, admin := goClient(t, startNode(t))
	createTable(t, admin)
	tbl := c.Open(table)
	for i := range 4 {
		m := bigtable.NewMutation()
		for q := range 3 {
			m.Set("f", fmt.Sprint(q), 1000, bytes.Repeat([]byte{byte('a' + q)}, 1<<20+i))
		}
		if err := tbl.Apply(t.Context(), fmt.Sprint("row", i), m); err != nil {
			t.Fatal(err)
		}
	}
	rows := 0
	if err := tbl.ReadRows(t.Context(), bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
		for q, cell := range r["f"] {
			if want := bytes.Repeat([]byte{byte('a' + q)}, 1<<20+rows); !bytes.Equal(cell.Value, want) {
				t.Errorf("row %d, cell %d: %d bytes, want %d", rows, q, len(cell.Value), len(want))
			}
		}
		rows++
		return true
	}); err != nil || rows != 4 {
		t.Errorf("%d rows, %v, want 4", rows, err)
	}
}

// TestGoAdmin: Google's Go client administers tables and families.
func TestGoAdmin(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	ctx := t.Context()
	if err := admin.CreateTable(ctx, table); status.Code(err) != codes.AlreadyExists {
		t.Errorf("%v, want ALREADY_EXISTS", err)
	}
	if tables, err := admin.Tables(ctx); err != nil || !slices.Equal(tables, []string{table}) {
		t.Errorf("%v, %v", tables, err)
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return admin.CreateColumnFamily(ctx, table, "n") },
		func(ctx context.Context) error {
			return admin.SetGCPolicy(ctx, table, "n", bigtable.MaxVersionsPolicy(3))
		},
		func(ctx context.Context) error { return admin.DeleteColumnFamily(ctx, table, "f") },
		func(ctx context.Context) error { return admin.WaitForReplication(ctx, table) },
	} {
		if err := step(ctx); err != nil {
			t.Error(err)
		}
	}
	info, err := admin.TableInfo(ctx, table)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range info.FamilyInfos {
		got = append(got, f.Name+":"+f.GCPolicy)
	}
	slices.Sort(got)
	if want := "g:versions() > 2 h:(versions() > 9 || age() > 1h) n:versions() > 3"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	if err := admin.CreateColumnFamily(ctx, table, "n"); status.Code(err) != codes.AlreadyExists {
		t.Errorf("%v, want ALREADY_EXISTS", err)
	}
	if err := admin.CreateBackup(ctx, table, "c", "b", time.Now().Add(24*time.Hour)); status.Code(err) != codes.Unimplemented || !strings.HasSuffix(status.Convert(err).Message(), ".") {
		t.Errorf("%v, want UNIMPLEMENTED with a sentence", err)
	}
	if err := admin.DeleteTable(ctx, table); err != nil {
		t.Error(err)
	}
	if _, err := admin.TableInfo(ctx, table); status.Code(err) != codes.NotFound {
		t.Errorf("%v, want NOT_FOUND", err)
	}
	op, err := adminpb.NewBigtableTableAdminClient(dial(t, n)).UndeleteTable(ctx, &adminpb.UndeleteTableRequest{Name: tableName})
	if err != nil || !op.Done {
		t.Errorf("undelete: %v, %v", op, err)
	}
	if _, err := admin.TableInfo(ctx, table); err != nil {
		t.Errorf("after the table was restored: %v", err)
	}
}

// TestGoDropRows: Google's Go client deletes the rows of a prefix, and all rows.
func TestGoDropRows(t *testing.T) {
	c, admin := goClient(t, startNode(t))
	createTable(t, admin)
	tbl, ctx := c.Open(table), t.Context()
	write(t, tbl)
	keys := func() (keys string) {
		if err := tbl.ReadRows(ctx, bigtable.InfiniteRange(""), func(r bigtable.Row) bool {
			keys += r.Key()
			return true
		}); err != nil {
			t.Fatal(err)
		}
		return keys
	}
	before := keys()
	if err := admin.DropRowRange(ctx, table, "a"); err != nil {
		t.Fatal(err)
	}
	if got := keys(); "a"+got != before {
		t.Errorf("%s, of %s, without the prefix a", got, before)
	}
	if err := admin.DropAllRows(ctx, table); err != nil {
		t.Fatal(err)
	}
	if got := keys(); got != "" {
		t.Errorf("%s after all rows were deleted", got)
	}
	write(t, tbl)
	if got := keys(); got != before {
		t.Errorf("%s, want %s after the rows were written again", got, before)
	}
	if err := admin.DropRowRange(ctx, table, ""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, want INVALID_ARGUMENT without a prefix", err)
	}
	if err := admin.DropAllRows(ctx, "absent"); status.Code(err) != codes.NotFound {
		t.Errorf("%v, want NOT_FOUND", err)
	}
}

// TestProgress: while a filter drops all rows, clients that accept it get the keys of rows that were looked at, in the order of the read.
func TestProgress(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	data := bigtablepb.NewBigtableClient(dial(t, n))
	for batch := range 20 {
		req := &bigtablepb.MutateRowsRequest{TableName: tableName}
		for i := range 1000 {
			set := &bigtablepb.Mutation_SetCell{FamilyName: "f", TimestampMicros: 1000, Value: make([]byte, 1000)}
			req.Entries = append(req.Entries, &bigtablepb.MutateRowsRequest_Entry{RowKey: fmt.Appendf(nil, "r%06d", batch*1000+i),
				Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: set}}}})
		}
		stream, err := data.MutateRows(t.Context(), req)
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	none := &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_ValueRegexFilter{ValueRegexFilter: []byte("absent")}}
	const features = "IAE=" // last_scanned_row_responses
	for _, reversed := range []bool{false, true} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "bigtable-features", features)
		stream, err := data.ReadRows(ctx, &bigtablepb.ReadRowsRequest{TableName: tableName, Filter: none, Reversed: reversed})
		var keys []string
		for err == nil {
			var m *bigtablepb.ReadRowsResponse
			if m, err = stream.Recv(); err == nil {
				keys = append(keys, string(m.LastScannedRowKey))
			}
		}
		ordered := slices.IsSorted(keys)
		if reversed {
			ordered = slices.IsSortedFunc(keys, func(a, b string) int { return strings.Compare(b, a) })
		}
		if !errors.Is(err, io.EOF) || len(keys) == 0 || !ordered || slices.Contains(keys, "") {
			t.Errorf("reversed: %t: keys %q, %v", reversed, keys, err)
		}
	}
}
