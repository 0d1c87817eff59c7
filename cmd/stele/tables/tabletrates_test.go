package tables

import (
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// TestRates: a tablet has the rates of its range; one that is not listed has none only if the list has all operations and counts its table.
func TestRates(t *testing.T) {
	hot := &client.HotTabletList{StartMS: 1000, EndMS: 61_000, Ops: 6660, TableIDs: []int64{7, 8}, Tablets: []client.HotTablet{
		{TableID: 7, End: []byte("m"), Reads: 6000, Writes: 60}, {TableID: 8, Reads: 600},
	}}
	rates := func(table uint64, start, end string) string {
		tablet := placedTablet{TableID: table, BoundsJSON: cli.BoundsOf([]byte(start), []byte(end))}
		tablet.rate(hot)
		return string(rateText(tablet.Reads) + " " + rateText(tablet.Writes))
	}
	for _, c := range []struct {
		table            uint64
		start, end, want string
	}{{7, "", "m", "100 1.0"}, {7, "m", "", "0 0"}, {8, "", "", "10 0"}, {9, "", "", "- -"}, {7, "a", "m", "0 0"}} {
		if got := rates(c.table, c.start, c.end); got != c.want {
			t.Errorf("table %d from %q to %q: %s, want %s", c.table, c.start, c.end, got, c.want)
		}
	}
	hot.Ops++ // of a tablet that is not listed
	if got := rates(7, "m", ""); got != "- -" {
		t.Errorf("of a list that is not complete: %s", got)
	}
	if hot.Ops--; rates(7, "m", "") != "0 0" {
		t.Error("of a complete list")
	}
	if hot.Silent = []string{"n2"}; rates(7, "m", "") != "- -" || rates(7, "", "m") != "100 1.0" {
		t.Error("without the part of a node")
	}
}
