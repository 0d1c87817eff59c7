package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestRefusedGrantsAreRefusals: a grant or revoke that was refused is counted among the refusals. A user without rights writes
// nothing to the log of administrators' actions, and an administrator of one table nothing to that of the cluster's.
func TestRefusedGrantsAreRefusals(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx := f.client(0), within(t, 60*time.Second)
	good(admin.Tables().Create(ctx, "web", table.FamilySpec{Name: "f"}))
	eve, tom := f.clientAs(0, client.Config{Credential: f.user(admin, "eve")}), f.clientAs(0, client.Config{Credential: f.user(admin, "tom")})
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "tom", Table: "web", Rights: "admin"}); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		g := client.Grant{Principal: "eve", Rights: "admin", Table: []string{"", "web", fmt.Sprintf("no-%d", i)}[i%3]}
		if err := eve.Grants().Add(ctx, g); !errors.Is(err, client.ErrPermission) && !errors.Is(err, client.ErrNoTable) {
			t.Fatalf("grant to oneself: %v", err)
		}
		if err := eve.Grants().Revoke(ctx, g); !errors.Is(err, client.ErrPermission) && !errors.Is(err, client.ErrNoTable) {
			t.Fatalf("revoke: %v", err)
		}
	}
	if err := tom.Grants().Add(ctx, client.Grant{Principal: "eve", Table: "web", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	audit, tables, refusals := f.audited("audit.log"), f.audited("table-admins.log"), f.audited("refusals.log")
	if strings.Contains(audit, `"name":"eve"`) || strings.Contains(audit, `"name":"tom"`) || !strings.Contains(audit, `"on":"admin to tom on table web","outcome":"done"`) {
		t.Errorf("audit.log:\n%s", audit)
	}
	if strings.Contains(tables, `"name":"eve"`) || strings.Contains(tables, `"name":"admin"`) || !strings.Contains(tables, `"on":"read to eve on table web","outcome":"done"`) {
		t.Errorf("table-admins.log:\n%s", tables)
	}
	if !strings.Contains(refusals, `"name":"eve"`) || !strings.Contains(refusals, `"action":"grant"`) || strings.Count(refusals, "\n") > 60 {
		t.Errorf("refusals.log:\n%s", refusals)
	}
}
