package backupdir

import (
	"slices"
	"testing"
)

// TestRestrict: of the access of a cluster, a backup of some tables has only what is about them.
func TestRestrict(t *testing.T) {
	x := &Access{
		Users:  []User{{Name: "ann"}, {Name: "bob", Disabled: true}, {Name: "eve"}},
		Grants: []Grant{{Principal: "ann", Table: "t", Rights: "read"}, {Principal: "ann", Table: "u", Rights: "write"}, {Principal: "eve", Rights: "admin"}},
		Owners: map[string]string{"t": "bob", "u": "eve"},
		Quotas: []Quota{{Of: "table", Name: "t", Kind: "bytes", Limit: 1}, {Of: "table", Name: "u", Kind: "bytes", Limit: 2}, {Of: "user", Name: "ann", Kind: "bytes", Limit: 3}},
	}
	x.restrict([]string{"t"})
	if !slices.Equal(x.Users, []User{{Name: "ann"}, {Name: "bob", Disabled: true}}) || !slices.Equal(x.Grants, []Grant{{Principal: "ann", Table: "t", Rights: "read"}}) ||
		len(x.Owners) != 1 || x.Owners["t"] != "bob" || !slices.Equal(x.Quotas, []Quota{{Of: "table", Name: "t", Kind: "bytes", Limit: 1}}) {
		t.Errorf("left: %+v", x)
	}
}
