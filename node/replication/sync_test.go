package replication

import (
	"testing"

	"github.com/steledb/stele/client"
)

// TestCovers (MG1 of package migrate): a reader has all changes before positions only if it has those of each row, however ranges have been split and merged.
func TestCovers(t *testing.T) {
	at := func(start, end string, next uint64) client.ChangePosition {
		return client.ChangePosition{Start: []byte(start), End: []byte(end), Next: next}
	}
	type positions = []client.ChangePosition
	for _, c := range []struct {
		done, want positions
		covers     bool
	}{
		{positions{at("", "", 5)}, positions{at("", "", 5)}, true},
		{positions{at("", "", 4)}, positions{at("", "", 5)}, false},
		{positions{at("", "", 7)}, positions{at("", "m", 5), at("m", "", 7)}, true},
		{positions{at("", "", 6)}, positions{at("", "m", 5), at("m", "", 7)}, false},
		{positions{at("", "m", 5), at("m", "", 7)}, positions{at("", "", 5)}, true},
		{positions{at("", "m", 5), at("m", "", 4)}, positions{at("", "", 5)}, false},
		{positions{at("", "c", 9), at("c", "p", 6), at("p", "", 2)}, positions{at("", "m", 6), at("m", "p", 5), at("p", "", 2)}, true},
		{positions{at("", "c", 9), at("c", "p", 6), at("p", "", 2)}, positions{at("", "m", 6), at("m", "z", 3), at("z", "", 1)}, false},
		{positions{at("", "c", 9), at("c", "p", 4), at("p", "", 9)}, positions{at("", "m", 4), at("m", "", 5)}, false},
		{nil, positions{at("", "", 1)}, false},
	} {
		if got := covers(c.done, c.want); got != c.covers {
			t.Errorf("%+v covers %+v: %v", c.done, c.want, got)
		}
	}
}
