package reply

import (
	"testing"

	"github.com/steledb/stele/client/api"
)

// TestRefusesWrites: only what meets every row ends the rest of mutate_rows.
func TestRefusesWrites(t *testing.T) {
	if !RefusesWrites(&api.OverloadedError{}) || !RefusesWrites(api.ErrDiskFull) || RefusesWrites(api.ErrNoTable) {
		t.Error("refusals are mistaken")
	}
}
