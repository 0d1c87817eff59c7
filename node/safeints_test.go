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
		id, err := cs.put(&scan{}, 0)
		if err != nil || id == 0 || id > wire.SafeIntegerMax {
			t.Fatalf("cursor %d, %v", id, err)
		}
		u := &upload{busy: make(chan struct{}, 1)}
		if id, err = us.add(u); err != nil || id == 0 || id > wire.SafeIntegerMax {
			t.Fatalf("upload %d, %v", id, err)
		}
		us.end(id)
	}
}
