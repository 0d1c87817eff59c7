package rows

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

func TestColumnPattern(t *testing.T) {
	for pattern, want := range map[string]table.Filter{
		"anchor:.*":       table.Chain{table.FamilyRegex("anchor"), table.QualifierRegex(".*")},
		"contents:":       table.Chain{table.FamilyRegex("contents"), table.QualifierRegex("")},
		"a:x:y":           table.Chain{table.FamilyRegex("a"), table.QualifierRegex("x:y")},
		".*cnn.*":         table.QualifierRegex(".*cnn.*"),
		"(?:a|b):(?i:X)":  table.Chain{table.FamilyRegex("(a|b)"), table.QualifierRegex("(?i:X)")},
		"(?:a|b)":         table.QualifierRegex("(?:a|b)"),
		"(?i:a|b)":        table.QualifierRegex("(?i:a|b)"),
		"(a|b):q":         table.Chain{table.FamilyRegex("(a|b)"), table.QualifierRegex("q")},
		"(?:x)y(?:z):(q)": table.Chain{table.FamilyRegex("(x)y(z)"), table.QualifierRegex("(q)")},
	} {
		got := columnPattern(pattern)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", pattern, diff)
		}
		if _, err := table.Compile(got); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestExactColumns(t *testing.T) {
	bound := table.Closed([]byte("x"))
	one := table.ColumnRange{Family: "a", Qualifiers: table.ByteRange{Start: bound, End: bound}}
	for _, c := range []struct {
		names []string
		want  table.Filter
	}{
		{nil, nil},
		{[]string{"a:x"}, one},
		{[]string{"a:x", "a:x"}, one},
		{[]string{"a:x", "a"}, table.ColumnRange{Family: "a"}}, // no cell is returned twice
		{[]string{"a:x", "b"}, table.Interleave{one, table.ColumnRange{Family: "b"}}},
	} {
		got, err := exactColumns(c.names)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v: %v %s", c.names, err, diff)
		}
	}
	if _, err := exactColumns([]string{"a b"}); cli.FaultOf(err).Code != cli.ExitUsage {
		t.Errorf("an invalid family: %v", err)
	}
}

func TestDeleteMutation(t *testing.T) {
	since, until := time.UnixMicro(5), time.UnixMicro(9)
	m, err := deleteMutation("r", []string{"a:x", "b:"}, since, until)
	if err != nil {
		t.Fatal(err)
	}
	want := client.NewRowMutation("r").DeleteRange("a:x", 5, 9).DeleteRange("b:", 5, 9)
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(client.RowMutation{}, table.TimestampEnd{})); diff != "" {
		t.Error(diff)
	}
	if m, err = deleteMutation("r", []string{"a"}, time.Time{}, time.Time{}); err != nil || m.Len() != 1 {
		t.Error(m, err)
	}
	for _, c := range []struct {
		since, until time.Time
		want         *client.RowMutation
	}{
		{time.Time{}, time.UnixMicro(0), client.NewRowMutation("r").DeleteRange("a:x", 0, 0)}, // which Apply rejects
		{time.Time{}, time.UnixMicro(9), client.NewRowMutation("r").DeleteRange("a:x", 0, 9)},
		{time.UnixMicro(5), time.Time{}, client.NewRowMutation("r").DeleteFrom("a:x", 5)},
	} {
		m, err := deleteMutation("r", []string{"a:x"}, c.since, c.until)
		if diff := cmp.Diff(c.want, m, cmp.AllowUnexported(client.RowMutation{}, table.TimestampEnd{})); err != nil || diff != "" {
			t.Errorf("since %v until %v: %v %s", c.since, c.until, err, diff)
		}
	}
	for _, columns := range [][]string{nil, {"a"}} {
		if _, err := deleteMutation("r", columns, since, time.Time{}); cli.FaultOf(err).Code != cli.ExitUsage {
			t.Errorf("columns %v with --since: %v, want wrong usage", columns, err)
		}
	}
}
