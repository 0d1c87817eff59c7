package acl

import (
	"errors"
	"testing"

	"github.com/steledb/stele/table"
)

// TestMonitor: the right monitor shows no table. Read on the cluster implies it, and so does admin.
func TestMonitor(t *testing.T) {
	s := table.NewSchema("t", 16)
	s, err := s.AddFamily(table.Family{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for rights, want := range map[Rights]bool{Monitor: true, Read: true, Admin: true, Write: false} {
		cluster, err := (&Policy{}).Grant(Grant{Principal: "ann", Rights: rights})
		if err != nil {
			t.Fatal(err)
		}
		if got := cluster.Check("ann", Monitor) == nil; got != want {
			t.Errorf("%s: monitor is %v", rights, got)
		}
		v := NewView("ann", cluster, nil, s)
		if hidden := errors.Is(v.CheckSeen(), ErrHidden); hidden != (rights == Monitor) || rights == Monitor && (v.CanRead("f") || v.CheckTable(Read) == nil || len(v.Visible().Families) > 0) {
			t.Errorf("%s: the table is hidden: %v", rights, hidden)
		}
	}
	if _, err := (&Policy{Table: 16}).Grant(Grant{Principal: "ann", Rights: Monitor}); !errors.Is(err, ErrClusterRight) {
		t.Errorf("monitor on a table: %v", err)
	}
}

// TestFamilyIDsAreHidden: a view that hides families does not count them.
func TestFamilyIDsAreHidden(t *testing.T) {
	s := table.NewSchema("t", 16)
	var err error
	for _, name := range []string{"a", "b", "c", "d"} {
		if s, err = s.AddFamily(table.Family{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	grants, err := (&Policy{Table: 16}).Grant(Grant{Principal: "ann", Family: s.Family("b").ID, Rights: Read})
	if err != nil {
		t.Fatal(err)
	}
	seen := NewView("ann", nil, grants, s).Visible()
	if len(seen.Families) != 1 || seen.NextFamilyID != s.Family("b").ID+1 || s.NextFamilyID != 5 {
		t.Errorf("the schema seen is %+v, of %+v", seen, s)
	}
}
