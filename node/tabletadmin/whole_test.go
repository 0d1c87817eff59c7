package tabletadmin

import (
	"testing"

	"github.com/steledb/stele/client/api"
)

// A table is served once its tablets cover all rows, without those of an earlier table of that name.
func TestWhole(t *testing.T) {
	first := api.TabletInfo{ID: 8, End: []byte("m")}
	last := api.TabletInfo{ID: 9, Start: []byte("m")}
	for what, tablets := range map[string][]api.TabletInfo{
		"none": nil, "the first": {first}, "the last": {last}, "one and all": {{ID: 8}, last}, "an earlier table's": {{ID: 7, End: first.End}, last},
	} {
		if Whole(tablets, 7) {
			t.Errorf("%s is taken for all", what)
		}
	}
	if !Whole([]api.TabletInfo{first, last}, 7) {
		t.Error("two tablets with all rows are not taken for all")
	}
}
