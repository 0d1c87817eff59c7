package bigtable

import (
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/steledb/stele/table"
)

func parseFilter(t *testing.T, text string) *bigtablepb.RowFilter {
	t.Helper()
	f := &bigtablepb.RowFilter{}
	if err := prototext.Unmarshal([]byte(text), f); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// filters has a filter of each kind by the name of its field.
var filters = map[string]struct {
	text string
	want table.Filter // nil: not supported
}{
	"chain":                         {`chain {filters {sink: true} filters {block_all_filter: true}}`, table.Chain{table.Sink{}, table.BlockAll{}}},
	"interleave":                    {`interleave {filters {sink: true} filters {}}`, table.Interleave{table.Sink{}, table.PassAll{}}},
	"condition":                     {`condition {predicate_filter {block_all_filter: true} false_filter {pass_all_filter: true}}`, table.Condition{Predicate: table.BlockAll{}, False: table.PassAll{}}},
	"sink":                          {`sink: true`, table.Sink{}},
	"pass_all_filter":               {`pass_all_filter: true`, table.PassAll{}},
	"block_all_filter":              {`block_all_filter: true`, table.BlockAll{}},
	"row_key_regex_filter":          {`row_key_regex_filter: "r.*"`, table.RowRegex("r.*")},
	"row_sample_filter":             {`row_sample_filter: 0.5`, table.RowSample(0.5)},
	"family_name_regex_filter":      {`family_name_regex_filter: "f.*"`, table.FamilyRegex("f.*")},
	"column_qualifier_regex_filter": {`column_qualifier_regex_filter: "\\xff"`, table.QualifierRegex(`\xff`)},
	"column_range_filter": {`column_range_filter {family_name: "f" start_qualifier_open: "a" end_qualifier_closed: "b"}`,
		table.ColumnRange{Family: "f", Qualifiers: table.ByteRange{Start: table.Open([]byte("a")), End: table.Closed([]byte("b"))}}},
	"timestamp_range_filter":        {`timestamp_range_filter {start_timestamp_micros: 1 end_timestamp_micros: 5}`, table.TimestampRange{Start: 1, End: table.Before(5)}},
	"value_regex_filter":            {`value_regex_filter: "v"`, table.ValueRegex("v")},
	"value_range_filter":            {`value_range_filter {start_value_closed: "a" end_value_open: "b"}`, table.ValueRange{Start: table.Closed([]byte("a")), End: table.Open([]byte("b"))}},
	"cells_per_row_offset_filter":   {`cells_per_row_offset_filter: 1`, table.CellsPerRowOffset(1)},
	"cells_per_row_limit_filter":    {`cells_per_row_limit_filter: 2`, table.CellsPerRowLimit(2)},
	"cells_per_column_limit_filter": {`cells_per_column_limit_filter: 3`, table.CellsPerColumnLimit(3)},
	"strip_value_transformer":       {`strip_value_transformer: true`, table.StripValue{}},
	"apply_label_transformer":       {`apply_label_transformer: "x"`, table.ApplyLabel("x")},
	"value_bitmask_filter":          {`value_bitmask_filter {mask: "x"}`, nil},
}

// TestFilters: every filter of the API is converted, or rejected as not supported.
func TestFilters(t *testing.T) {
	fields := (&bigtablepb.RowFilter{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		c, ok := filters[name]
		if !ok {
			t.Errorf("filter %s is not tested", name)
			continue
		}
		got, err := convertFilter(parseFilter(t, c.text))
		if c.want == nil {
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("%s: %v, want UNIMPLEMENTED", name, err)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(table.TimestampEnd{})); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
		if _, err := table.Compile(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := convertFilter(nil); got != nil || err != nil {
		t.Errorf("no filter: %v, %v", got, err)
	}
}

func TestOpenEnds(t *testing.T) {
	for text, want := range map[string]table.Filter{
		`column_range_filter {family_name: "f" end_qualifier_open: ""}`: table.ColumnRange{Family: "f"},
		`value_range_filter {end_value_open: ""}`:                       table.ValueRange{},
		`timestamp_range_filter {}`:                                     table.TimestampRange{},
	} {
		got, err := convertFilter(parseFilter(t, text))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(table.TimestampEnd{})); err != nil || diff != "" {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
}

func TestInvalidFilters(t *testing.T) {
	deep := &bigtablepb.RowFilter{}
	for range filterDepthMax {
		deep = &bigtablepb.RowFilter{Filter: &bigtablepb.RowFilter_Condition_{Condition: &bigtablepb.RowFilter_Condition{TrueFilter: deep}}}
	}
	cases := []*bigtablepb.RowFilter{deep}
	for _, text := range []string{
		`chain {}`, `chain {filters {sink: true}}`, `interleave {filters {sink: true}}`, `sink: false`, `pass_all_filter: false`,
		`block_all_filter: false`, `strip_value_transformer: false`, `row_key_regex_filter: ""`,
		`condition {predicate_filter {chain {}}}`, `interleave {filters {sink: true} filters {sink: false}}`,
	} {
		cases = append(cases, parseFilter(t, text))
	}
	for _, f := range cases {
		if got, err := convertFilter(f); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v, %v, want INVALID_ARGUMENT", f, got, err)
		}
	}
}
