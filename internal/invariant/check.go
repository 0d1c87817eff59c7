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
	panic(&Broken{"BUG: " + fmt.Sprintf(format, args...)})
}

// Broken is the value with which Check panics. A process must not go on after it: what recovers panics passes it on.
type Broken struct{ Text string }

// Error implements error, so that the text is printed when the process ends.
func (b *Broken) Error() string { return b.Text }
