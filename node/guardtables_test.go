package node_test

import (
	"context"
	"errors"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
)

// TestGuardOfTables: a user calls the methods of a table by the rights on it. A table on which a user has no right is answered word
// for word as one that does not exist, whether the method needs a right or not.
func TestGuardOfTables(t *testing.T) {
	t.Parallel()
	f, _, _ := secureFleet(t, 1)
	admin, ctx := secureOne(t, f)
	conns := map[string]*rpc.Conn{}
	for name, rights := range map[string]string{"ann": "admin", "bob": "read", "eve": ""} {
		credential := f.user(admin, name)
		if rights != "" {
			if err := admin.Grant(ctx, client.Grant{Principal: name, Table: "t", Rights: rights}); err != nil {
				t.Fatal(err)
			}
		}
		conns[name] = f.dialAs(0, credential)
	}
	conns["admin"] = f.dialAs(0, f.as)
	codeOf := func(user, method string) rpc.Code {
		t.Helper()
		if e := answerOf(t, conns[user], method, tableCalls("t")[method]); e != nil {
			return e.Code
		}
		return 0
	}
	for user, want := range map[string][2]rpc.Code{
		"admin": {}, "ann": {}, "bob": {0, rpc.CodePermissionDenied}, "eve": {api.CodeTableNotFound, api.CodeTableNotFound},
	} {
		if got := [2]rpc.Code{codeOf(user, api.MethodDescribeTable), codeOf(user, api.MethodSetFamily)}; got != want {
			t.Errorf("%s describes the table and sets a family: %v, want %v", user, got, want)
		}
	}
	for _, method := range []string{api.MethodDescribeTable, api.MethodSetFamily, api.MethodDropTable} {
		hidden, absent := answerOf(t, conns["eve"], method, tableCalls("t")[method]), answerOf(t, conns["eve"], method, tableCalls("T")[method])
		if hidden == nil || absent == nil || text(hidden, `\"t\"`) != text(absent, `\"T\"`) {
			t.Errorf("%s of a table that is hidden: %v; of one that does not exist: %v", method, hidden, absent)
		}
		if e := answerOf(t, conns["ann"], method, tableCalls("T")[method]); e == nil || e.Code != api.CodeTableNotFound {
			t.Errorf("%s of a table that does not exist: %v", method, e)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	n := f.nodes[0]
	if err := n.SchemaFor(ctx, "t"); err != nil {
		t.Errorf("the schema of a table: %v", err)
	}
	if err := n.SchemaFor(ctx, "T"); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("the schema of a table that does not exist: %v", err)
	}
	if err := n.SchemaFor(ended, "other"); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a schema that cannot be read: %v, want unavailable", err)
	}
}
