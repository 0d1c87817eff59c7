package tables

import (
	"testing"

	"github.com/steledb/stele/client"
)

// The creator of a table gets a message if some of it is not served, or if that is unknown because the
// master lists only the first unserved tablets.
func TestNewTableUnserved(t *testing.T) {
	other, own := client.UnservedTablet{Table: "other"}, client.UnservedTablet{Table: "t"}
	for _, test := range []struct {
		u    client.UnservedTablets
		want string
	}{
		{client.UnservedTablets{}, ""},
		{client.UnservedTablets{Total: 1, Tablets: []client.UnservedTablet{other}}, ""},
		{client.UnservedTablets{Total: 2, Tablets: []client.UnservedTablet{other, own}}, "not all of it is served yet (2 tablets of the cluster not served)"},
		{client.UnservedTablets{Total: 300, Tablets: []client.UnservedTablet{own}}, "not all of it is served yet (300 tablets of the cluster not served)"},
		{client.UnservedTablets{Total: 300, Tablets: []client.UnservedTablet{other}}, "whether all of it is served is unknown (300 tablets of the cluster not served)"},
	} {
		if got := unservedMessage(&test.u, "t"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
