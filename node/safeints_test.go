package node

import (
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// TestNumbersOfCursorsAndUploads: what clients get and give back is never larger than a
// language without integers can hold.
func TestNumbersOfCursorsAndUploads(t *testing.T) {
	var cs cursors
	var us uploads
	us.mu.open = map[uint64]*upload{}
	for range 1000 {
		c, err := cs.begin(&scan{})
		if err != nil || c.id == 0 || c.id > wire.SafeIntegerMax {
			t.Fatalf("cursor %v, %v", c, err)
		}
		u := &upload{busy: make(chan struct{}, 1)}
		id, err := us.add(u)
		if err != nil || id == 0 || id > wire.SafeIntegerMax {
			t.Fatalf("upload %d, %v", id, err)
		}
		us.end(id)
	}
}
