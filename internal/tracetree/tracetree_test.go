package tracetree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/steledb/stele/client"
)

// TestTree: spans are below those that caused them, in the order of their beginnings, and those of an unknown cause are roots.
func TestTree(t *testing.T) {
	var spans []Span
	for _, s := range []struct {
		span, parent string
		began        int64
	}{{"c", "a", 5}, {"b", "a", 3}, {"x", "client", 9}, {"a", "client", 1}, {"d", "b", 4}, {"self", "self", 2}} {
		spans = append(spans, Span{Trace: client.Trace{Span: s.span, Parent: s.parent, BeganUS: s.began}})
	}
	var got []string
	for _, s := range Tree(spans) {
		got = append(got, fmt.Sprintf("%s%s+%d", strings.Repeat(">", s.Depth), s.Span, s.After.Microseconds()))
	}
	if want := "a+0 >b+2 >>d+3 >c+4 self+1 x+8"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}
