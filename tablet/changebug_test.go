//go:build plantedbugs

package tablet

import (
	"testing"

	"github.com/steledb/stele/internal/planted"
)

// TestRedoBeforeChangeFileFound: the test of the redo point finds the planted bug.
func TestRedoBeforeChangeFileFound(t *testing.T) {
	if err := planted.Choose(planted.RedoBeforeChangeFile); err != nil {
		t.Fatal(err)
	}
	defer planted.Choose()
	if problem := lostByCut(t); problem == "" {
		t.Error("the planted bug was not found")
	} else {
		t.Log(problem)
	}
}
