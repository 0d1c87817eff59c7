package cluster

import "testing"

// TestWithoutQuotes: what errors quote is left out, with quotes in it.
func TestWithoutQuotes(t *testing.T) {
	const in, want = `principal "ann" lost the right to "a\"b" at 3`, `principal "…" lost the right to "…" at 3`
	if got := withoutQuotes(in); got != want {
		t.Errorf("%s", got)
	}
}
