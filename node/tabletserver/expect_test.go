package tabletserver

import (
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
)

// TestWhoGetsMetadata: the first node that is alive and stays expects METADATA's tablets when a node that had some is
// not heard of.
func TestWhoGetsMetadata(t *testing.T) {
	const self = "5"
	before, after := "0", "z"
	had := map[string]time.Time{after: time.Now()}
	me := blobfs.Member{ID: self, Alive: true}
	for i, x := range []struct {
		members []blobfs.Member
		want    bool
	}{
		{[]blobfs.Member{me, {ID: after, Alive: true}}, false},
		{[]blobfs.Member{me, {ID: after}}, true},
		{[]blobfs.Member{{ID: before, Alive: true}, me, {ID: after}}, false},
		{[]blobfs.Member{{ID: before, Alive: true, Draining: true}, me, {ID: after}}, true},
		{[]blobfs.Member{{ID: before}, me, {ID: after}}, true},
		{[]blobfs.Member{{ID: before}, me, {ID: after, Alive: true}}, false}, // the lost one had none
		{[]blobfs.Member{{ID: self, Alive: true, Draining: true}, {ID: after}}, false},
	} {
		if got := getsMetadata(self, x.members, had); got != x.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
}
