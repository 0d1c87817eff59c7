package invariant

import "fmt"

// Check panics if ok is false. format describes what is broken, with a verb for each of the values.
// Inlined, it allocates nothing unless it panics.
func Check(ok bool, format string, values ...int64) {
	if !ok {
		fail(format, values)
	}
}

// fail is not inlined, so that Check is.
//
//go:noinline
func fail(format string, values []int64) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	panic("BUG: " + fmt.Sprintf(format, args...))
}
