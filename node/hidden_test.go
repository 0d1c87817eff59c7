package node_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// seedOf returns a random source with the seed of the test.
func seedOf(t *testing.T) *rand.Rand {
	return rand.New(rand.NewPCG(testseed.New(t), 0))
}

// randomFilter returns a filter of a few levels; sinks are not for parts of conditions.
func randomFilter(rng *rand.Rand, depth int, sink bool) table.Filter {
	n := 14
	if depth == 0 {
		n = 11
	}
	word := func(all ...string) string { return all[rng.IntN(len(all))] }
	some := func() (fs []table.Filter) {
		for range 1 + rng.IntN(3) {
			fs = append(fs, randomFilter(rng, depth-1, sink))
		}
		return fs
	}
	switch rng.IntN(n) {
	case 0:
		return table.PassAll{}
	case 1:
		return table.RowRegex(word("r0.*", ".*[02468]", "r.*"))
	case 2:
		return table.FamilyRegex(word("a", "r", "s", "a|s", ".*", "z"))
	case 3:
		return table.QualifierRegex(word("q0", "q[12]", ".*"))
	case 4:
		return table.ValueRegex(word("v1.*", ".*[0-4]"))
	case 5:
		return table.ColumnRange{Family: word("a", "r", "s"), Qualifiers: table.ByteRange{Start: table.Closed([]byte("q1"))}}
	case 6:
		return table.CellsPerRowLimit(1 + rng.IntN(4))
	case 7:
		return table.CellsPerRowOffset(rng.IntN(4))
	case 8:
		return table.CellsPerColumnLimit(1 + rng.IntN(2))
	case 9:
		return table.StripValue{}
	case 10:
		if sink {
			return table.Sink{}
		}
		return table.TimestampRange{Start: int64(rng.IntN(5)), End: table.Before(4 + int64(rng.IntN(5)))}
	case 11:
		return table.Chain(some())
	case 12:
		return table.Interleave(some())
	}
	c := table.Condition{Predicate: randomFilter(rng, depth-1, false), True: randomFilter(rng, depth-1, false)}
	if rng.IntN(2) == 0 {
		c.False = randomFilter(rng, depth-1, false)
	}
	return c
}

// TestHiddenFamiliesTellNothing: for a caller that may not see some families of a table, every read returns what it would if the table had
// never had them.
func TestHiddenFamiliesTellNothing(t *testing.T) {
	t.Parallel()
	rng := seedOf(t)
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	admin := f.client(0)
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")})
	group := func(name, g string) table.FamilySpec { return table.FamilySpec{Name: name, Group: g} }
	if _, err := admin.Tables().Create(ctx, "full", group("a", ""), group("r", "x"), group("s", "x"), group("b", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Tables().Create(ctx, "part", group("a", ""), group("r", "x")); err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"a", "r"} {
		if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "full", Family: family, Rights: "read"}); err != nil {
			t.Fatal(err)
		}
	}
	fill := func() {
		for i := range 40 {
			row := fmt.Sprintf("r%02d", i)
			full, part := client.NewRowMutation(row), client.NewRowMutation(row)
			for range 1 + rng.IntN(8) {
				family := []string{"a", "r", "s", "b", "s", "b"}[rng.IntN(6)]
				if i%5 == 0 { // a row of which nothing is seen
					family = "s"
				}
				column, ts, value := fmt.Sprintf("%s:q%d", family, rng.IntN(3)), 1+int64(rng.IntN(8)), fmt.Appendf(nil, "v%d", rng.IntN(10))
				full.SetAt(column, ts, value)
				if family == "a" || family == "r" {
					part.SetAt(column, ts, value)
				}
			}
			if err := admin.Table("full").Apply(ctx, full); err != nil {
				t.Fatal(err)
			}
			if part.Len() > 0 {
				if err := admin.Table("part").Apply(ctx, part); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	fill()
	if err := errors.Join(admin.Tables().Compact(ctx, "full", true), admin.Tables().Compact(ctx, "part", true)); err != nil {
		t.Fatal(err)
	}
	fill()
	seen := 0
	for i := range 300 {
		filter := randomFilter(rng, 3, true)
		if i == 0 {
			filter = nil
		}
		opts := []client.ScanOption{client.BatchRows(1 + rng.IntN(10))}
		if filter != nil {
			opts = append(opts, client.Filter(filter))
		}
		if rng.IntN(2) == 0 {
			opts = append(opts, client.Limit(int64(1+rng.IntN(12))))
		}
		if rng.IntN(2) == 0 {
			opts = append(opts, client.Start(fmt.Sprintf("r%02d", rng.IntN(40))))
		}
		got, gotErr := scanned(ann.Table("full").Scan(ctx, opts...))
		want, wantErr := scanned(admin.Table("part").Scan(ctx, opts...))
		if !reflect.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("filter %#v, options %d:\ngot  %v, %v\nwant %v, %v", filter, len(opts), got, gotErr, want, wantErr)
		}
		seen += len(got)
		row := fmt.Sprintf("r%02d", rng.IntN(40))
		var reads []client.ReadOption
		if filter != nil {
			reads = append(reads, client.Filter(filter))
		}
		one, oneErr := ann.Table("full").Get(ctx, row, reads...)
		other, otherErr := admin.Table("part").Get(ctx, row, reads...)
		if !reflect.DeepEqual(one, other) || fmt.Sprint(oneErr) != fmt.Sprint(otherErr) {
			t.Fatalf("row %s, filter %#v:\ngot  %v, %v\nwant %v, %v", row, filter, one, oneErr, other, otherErr)
		}
		if filter == nil || hasSink(filter) {
			continue
		}
		matched, err := ann.Table("full").CheckAndMutate(ctx, row, filter, nil, nil)
		wanted, wantErr := admin.Table("part").CheckAndMutate(ctx, row, filter, nil, nil)
		if matched != wanted || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("row %s, predicate %#v: %v, %v, want %v, %v", row, filter, matched, err, wanted, wantErr)
		}
	}
	if seen == 0 {
		t.Error("no filter gave anything")
	}
	info, err := ann.Tables().Describe(ctx, "full")
	if err != nil || len(info.Schema.Families) != 2 || len(info.Tablets) != 1 || !info.SizesHidden || len(info.Tablets[0].Groups) != 0 || info.Tablets[0].MemtableBytes != 0 {
		t.Errorf("described: %+v, %v", info, err)
	}
	if samples, err := ann.Table("full").SampleRowKeys(ctx); err != nil || len(samples) != 1 || samples[0].Offset != 0 {
		t.Errorf("samples: %+v, %v", samples, err)
	}
	if tables, err := ann.Tables().List(ctx); err != nil || len(tables) != 1 || tables[0].Name != "full" || len(tables[0].Families) != 2 {
		t.Errorf("tables: %v, %v", tables, err)
	}
}

func hasSink(f table.Filter) bool { return strings.Contains(fmt.Sprintf("%#v", f), "Sink") }

func scanned(s *client.Scanner) (all []table.Row, err error) {
	defer s.Close()
	for s.Next() {
		all = append(all, *s.Row())
	}
	return all, s.Err()
}

// TestWritesByFamily: what a principal may change, and the exact errors for what it may not.
func TestWritesByFamily(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")}).Table("t")
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "both"}, table.FamilySpec{Name: "none"}, table.FamilySpec{Name: "read"}, table.FamilySpec{Name: "write"}); err != nil {
		t.Fatal(err)
	}
	for family, rights := range map[string]string{"both": "read,write", "read": "read", "write": "write"} {
		if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: family, Rights: rights}); err != nil {
			t.Fatal(err)
		}
	}
	m := func() *client.RowMutation { return client.NewRowMutation("r") }
	if err := admin.Table("t").Apply(ctx, m().SetAt("both:q", 1, []byte("1")).SetAt("none:q", 1, []byte("2")).SetAt("read:q", 1, []byte("3")).SetAt("write:q", 1, []byte("4"))); err != nil {
		t.Fatal(err)
	}
	no := func(right string) string { return `principal "ann" has no ` + right + " right on family " }
	on := ` of table "t": ask its administrator`
	absent := func(family string) string {
		err := admin.Table("t").Apply(ctx, m().Set(family+":q", nil))
		return strings.ReplaceAll(err.Error(), family, "FAMILY")
	}("gone")
	increment := func(family string) error {
		_, err := ann.Increment(ctx, "c", family+":n", 1)
		return err
	}
	checked := func(then *client.RowMutation) error {
		_, err := ann.CheckAndMutate(ctx, "r", nil, then, nil)
		return err
	}
	for _, x := range []struct {
		what string
		err  error
		want string
	}{
		{"set both", ann.Apply(ctx, m().SetAt("both:q", 2, []byte("5"))), ""},
		{"set write", ann.Apply(ctx, m().SetAt("write:q", 2, []byte("6"))), ""},
		{"set read", ann.Apply(ctx, m().Set("read:q", nil)), "mutation 0: " + no("write") + `"read"` + on},
		{"set none", ann.Apply(ctx, m().Set("none:q", nil)), strings.ReplaceAll(absent, "FAMILY", "none")},
		{"two, of which one may not be", ann.Apply(ctx, m().Set("both:x", nil).Set("read:q", nil)), "mutation 1: " + no("write") + `"read"` + on},
		{"delete family", ann.Apply(ctx, m().DeleteFamily("read")), "mutation 0: " + no("write") + `"read"` + on},
		{"delete row", ann.Apply(ctx, m().DeleteRow()), "mutation 0: " + no("write") + `"read"` + on},
		{"increment both", increment("both"), ""},
		{"increment write", increment("write"), "rule 0: " + no("read") + `"write"` + on},
		{"increment read", increment("read"), "rule 0: " + no("write") + `"read"` + on},
		{"increment none", increment("none"), strings.ReplaceAll(strings.Replace(absent, "mutation", "rule", 1), "FAMILY", "none")},
		{"check and set both", checked(m().SetAt("both:q", 3, []byte("7"))), ""},
		{"check and set read", checked(m().Set("read:q", nil)), "with a match: mutation 0: " + no("write") + `"read"` + on},
	} {
		got := ""
		if x.err != nil {
			got = x.err.Error()
		}
		if got != x.want {
			t.Errorf("%s:\ngot  %q\nwant %q", x.what, got, x.want)
		}
		if denied := (*client.PermissionError)(nil); strings.Contains(x.want, "principal") && (!errors.As(x.err, &denied) || denied.Table != "t" || denied.Family == "" || denied.Executed) {
			t.Errorf("%s: %#v", x.what, denied)
		}
	}
	// Deletion of the row, when all that is seen may be changed, leaves what is hidden.
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Family: "read", Rights: "write"}); err != nil {
		t.Fatal(err)
	}
	if err := ann.Apply(ctx, m().Set("both:before", nil).DeleteRow().SetAt("both:q", 9, []byte("9"))); err != nil {
		t.Fatal(err)
	}
	row, err := admin.Table("t").Get(ctx, "r")
	if err != nil || len(row.Cells) != 2 || row.Cells[0].Timestamp != 9 || row.Cells[1].Family != "none" || string(row.Cells[1].Value) != "2" {
		t.Errorf("the row after its deletion: %+v, %v", row, err)
	}
	if _, err := ann.Get(ctx, "no such row"); err != nil {
		t.Error(err)
	}
}
