package moment_test

import (
	"testing"

	"github.com/steledb/stele/internal/moment"
)

// BenchmarkPass measures a moment in a loop that otherwise only counts.
func BenchmarkPass(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		moment.Pass("a moment", "of a benchmark")
	}
}
