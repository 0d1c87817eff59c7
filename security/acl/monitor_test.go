package acl

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// TestMonitor: monitor makes no table visible. Read and Admin on the cluster imply it.
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

// TestFamilyIDsAreHidden: NextFamilyID of a visible schema does not reveal the number of hidden
// families.
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

// TestMonitorSeesNoTablets: METADATA shows the location of tablets to principals that see their
// table; monitor does not suffice. An individually revoked certificate is known by its serial
// number.
func TestMonitorSeesNoTablets(t *testing.T) {
	service, ctx := newLockService(), t.Context()
	ann := &Principal{Name: "ann"}
	if err := ann.Lose("ab12", time.Now()); err != nil {
		t.Fatal(err)
	}
	service.put(PrincipalFile("ann"), ann.Encode())
	service.put(ClusterFile, encoded(&Policy{}, Grant{"ann", 0, Monitor}))
	c := NewCache(service.open())
	if sees, _, err := c.Sees(ctx, "ann", 0, 16); err != nil || sees {
		t.Errorf("with monitor a table is visible: %v, %v", sees, err)
	}
	ticket, err := c.CheckCluster(ctx, "ann", 0, Monitor)
	if err != nil {
		t.Fatal(err)
	}
	for serial, want := range map[string]bool{"ab12": true, "ab13": false} {
		if revoked, known := c.CertificateRevoked(ticket, "ann", serial); revoked != want || !known {
			t.Errorf("certificate %s: revoked %v, known %v", serial, revoked, known)
		}
	}
	service.change(ClusterFile, encoded(&Policy{}, Grant{"ann", 0, Read}))
	if _, known := c.CertificateRevokedNow("ann", "ab13"); known {
		t.Error("after a change of rights it is known without a read")
	}
	if sees, _, err := c.Sees(ctx, "ann", 0, 16); err != nil || !sees {
		t.Errorf("with read no table is visible: %v, %v", sees, err)
	}
	if _, known := c.CertificateRevoked(ticket, "ann", "ab13"); known {
		t.Error("an outdated ticket still gives an answer")
	}
}
