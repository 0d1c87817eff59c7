package dataapi

import (
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// TestNumbersOfCursors: an id that clients get, and send again, is never larger than a language without integers can hold.
func TestNumbersOfCursors(t *testing.T) {
	var cs cursors
	for range 1000 {
		c, err := cs.begin(&scan{})
		if err != nil || c.id == 0 || c.id > wire.SafeIntegerMax {
			t.Fatalf("cursor %v, %v", c, err)
		}
	}
}
