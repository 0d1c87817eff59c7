package testseed

import (
	"fmt"
	"testing"
)

// recorder is a test that keeps what it logs.
type recorder struct {
	testing.TB
	logged string
}

func (r *recorder) Helper()                         {}
func (r *recorder) Name() string                    { return "TestX" }
func (r *recorder) Logf(format string, args ...any) { r.logged = fmt.Sprintf(format, args...) }

// TestReplay: the command that a test logs gives the same seed again.
func TestReplay(t *testing.T) {
	t.Setenv("STELE_SEED", "42")
	r := &recorder{TB: t}
	if seed := New(r); seed != 42 {
		t.Errorf("the seed is %d, want 42", seed)
	}
	if want := "to replay: STELE_SEED=42 go test ./internal/testseed -run '^TestX$'"; r.logged != want {
		t.Errorf("logged %q, want %q", r.logged, want)
	}
	t.Setenv("STELE_SEED", "")
	if New(&recorder{TB: t}) == New(&recorder{TB: t}) {
		t.Error("two tests have the same seed")
	}
}
