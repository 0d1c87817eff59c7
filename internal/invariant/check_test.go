package invariant

import "testing"

// TestCheck: only a broken invariant panics, and the message has the values.
func TestCheck(t *testing.T) {
	Check(true, "never")
	defer func() {
		const want = "BUG: redo point 7 is past entry 5"
		if got, ok := recover().(*Broken); !ok || got.Error() != want {
			t.Errorf("panic %v, want %q", got, want)
		}
	}()
	Check(false, "redo point %d is past entry %d", 7, 5)
}

// BenchmarkCheck measures a check with two values in a loop that otherwise only counts.
func BenchmarkCheck(b *testing.B) {
	b.ReportAllocs()
	var last int64
	for b.Loop() {
		next := last + 1
		Check(next > last, "number %d after %d", next, last)
		last = next
	}
}
