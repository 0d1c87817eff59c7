package console

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// Rates are exact if no tablet is missing; otherwise those of a table are at least what is known of it.
func TestRates(t *testing.T) {
	l := &client.HotTabletList{StartMS: 1000, EndMS: 61_000, Ops: 6689, TableIDs: []int64{1, 2, 3}, Tablets: []client.HotTablet{
		{Table: "a", TableID: 1, End: []byte("m"), Node: "n1", Reads: 6000, Writes: 60}, {Table: "a", TableID: 1, Node: "n2", Reads: 600},
		{Table: "b", TableID: 2, Node: "n1", Writes: 29},
	}}
	x := newRates(l)
	for name, test := range map[string]struct{ got, want rateTexts }{
		"a table":                            {x.ofTable("a", 1), rateTexts{"110", "1"}},
		"a table without":                    {x.ofTable("c", 3), rateTexts{"0", "0"}},
		"a tablet":                           {x.ofTablet("a", 1, []byte("m")), rateTexts{"100", "1"}},
		"the last tablet":                    {x.ofTablet("a", 1, nil), rateTexts{"10", "0"}},
		"a table that the user may not read": {x.ofTable("d", 4), rateTexts{"–", "–"}},
		"less than half":                     {x.ofTable("b", 2), rateTexts{"0", "0"}},
		"no answer":                          {(*rates)(nil).ofTable("a", 1), rateTexts{"?", "?"}},
		"a tablet, no answer":                {(*rates)(nil).ofTablet("a", 1, nil), rateTexts{"?", "?"}},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v, want %v", name, test.got, test.want)
		}
	}
	if rows := x.onNode("n1"); len(rows) != 2 || rows[0].Rates != (rateTexts{"100", "1"}) || rows[0].Table != "a" {
		t.Errorf("tablets of a node: %v", rows)
	}
	l.Ops += 60 * api.HotTabletsMax
	for i := len(l.Tablets); i < api.HotTabletsMax; i++ {
		l.Tablets = append(l.Tablets, client.HotTablet{Table: "d", End: fmt.Append(nil, i), Reads: 60})
	}
	x = newRates(l)
	if got := x.ofTable("a", 1); got != (rateTexts{"≥ 110", "≥ 1"}) {
		t.Errorf("of a table of which tablets may be missing: %v", got)
	}
	if got := x.ofTablet("c", 3, nil); got != (rateTexts{"–", "–"}) {
		t.Errorf("of a tablet that is missing: %v", got)
	}
}
