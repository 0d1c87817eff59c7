package console

import (
	"fmt"
	"strings"
	"testing"
)

// marked writes parts as text, with [+added] and [-removed].
func marked(parts []part) string {
	var s strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&s, []string{"%s", "[+%s]", "[-%s]"}[p.Kind], p.Text)
	}
	return s.String()
}

func TestChanges(t *testing.T) {
	for _, test := range []struct{ older, newer, want string }{
		{"", "", ""},
		{"a", "a", "a"},
		{"", "new", "[+new]"},
		{"old", "", "[-old]"},
		{`{"status": 200, "links": 3}`, `{"status": 404, "links": 3}`, `{"status": [-200][+404], "links": 3}`},
		{"a b c d", "a c x d", "a [-b ]c[+ x] d"},
		{"a a", "a a a", "a a[+ a]"},
		{"é\xff", "é\xfe", "é[-\xff][+\xfe]"},
	} {
		if got := marked(changes(test.older, test.newer)); got != test.want {
			t.Errorf("%q to %q: %s, want %s", test.older, test.newer, got, test.want)
		}
	}
	long := strings.Repeat("x ", tokensMax)
	if got := marked(changes("<1"+long+"2>", "<3"+long+"4>")); got != "<[-1"+long+"2][+3"+long+"4]>" {
		t.Errorf("long texts are compared in part: %d bytes", len(got))
	}
}
