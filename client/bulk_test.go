package client

import (
	"fmt"
	"slices"
	"testing"
)

// The mutations of a row stay in their order: if one cannot be in a part, none of them is.
func TestBulkOrder(t *testing.T) {
	ms := []*RowMutation{
		NewRowMutation("b").SetAt("f:q", 1, []byte("first")),
		NewRowMutation("mixed").SetAt("f:q", 1, nil),
		NewRowMutation("a").SetAt("f:q", 1, nil),
		NewRowMutation("mixed").DeleteRow(),
		NewRowMutation("b").SetAt("f:a", 1, nil).SetAt("f:q", 1, []byte("last")),
		NewRowMutation("mixed").SetAt("f:q", 2, nil),
		NewRowMutation("now").Set("f:q", nil),
		NewRowMutation("").SetAt("f:q", 1, nil),
	}
	rows, of := BulkOrder(ms)
	if want := []int{1, -1, 0, -1, 1, -1, -1, -1}; !slices.Equal(of, want) {
		t.Errorf("rows of the mutations: %v, want %v", of, want)
	}
	if len(rows) != 2 || rows[0].Row() != "a" || rows[1].Row() != "b" {
		t.Fatalf("rows %v", rows)
	}
	got := ""
	for _, m := range rows[1].rm.Mutations {
		got += fmt.Sprintf("%s=%s ", m.Qualifier, m.Value)
	}
	if got != "a= q=last " {
		t.Errorf("cells of row b: %q", got)
	}
}
