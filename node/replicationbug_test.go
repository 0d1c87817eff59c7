//go:build plantedbugs

package node_test

import (
	"testing"

	"github.com/steledb/stele/internal/planted"
)

// TestPositionBeforeDataFound: the test of the saved position finds the planted bug.
func TestPositionBeforeDataFound(t *testing.T) {
	if err := planted.Choose(planted.PositionBeforeData); err != nil {
		t.Fatal(err)
	}
	defer planted.Choose()
	if problem := lostByReplicationCut(t); problem == "" {
		t.Error("the planted bug was not found")
	} else {
		t.Log(problem)
	}
}
