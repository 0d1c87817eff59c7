package node

import (
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// TestNumbersOfUploads: an id that clients get, and send again, is never larger than a language without integers can hold.
func TestNumbersOfUploads(t *testing.T) {
	var us uploads
	us.mu.open = map[uint64]*upload{}
	for range 1000 {
		u := &upload{busy: make(chan struct{}, 1)}
		id, err := us.add(u)
		if err != nil || id == 0 || id > wire.SafeIntegerMax {
			t.Fatalf("upload %d, %v", id, err)
		}
		us.end(id)
	}
}
