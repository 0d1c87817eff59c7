package cluster

import "testing"

// TestWithoutQuotes: what errors quote is left out, with quotes in it.
func TestWithoutQuotes(t *testing.T) {
	const in, want = `principal "ann" lost the right to "a\"b" at 3`, `principal "…" lost the right to "…" at 3`
	if got := withoutQuotes(in); got != want {
		t.Errorf("%s", got)
	}
}

// TestWithoutNames: values of log lines that may name users and rows are left out, and so is what errors quote.
func TestWithoutNames(t *testing.T) {
	const in = `table=web tablet=7 row=secret user=ann at="secret key" err="row \"secret\" of \"ann\": no" lower="a=b" node=n1`
	const want = `table=web tablet=7 row=… user=… at=… err="row \"…\" of \"…\": no" lower=… node=n1`
	if got := withoutNames(in); got != want {
		t.Errorf("%s", got)
	}
}
