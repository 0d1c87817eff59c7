package node_test

import (
	"errors"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// TestRightsBeforeFilters: a filter is not compiled for a caller that may not read the table. The error for an invalid filter shows which
// check came first.
func TestRightsBeforeFilters(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	users := map[string]*pki.Credential{}
	for _, name := range []string{"reader", "writer", "nobody", "disabled", "revoked"} {
		users[name] = f.user(admin, name)
	}
	for name, rights := range map[string]string{"reader": "read", "writer": "write", "disabled": "read", "revoked": "read"} {
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Table: "t", Rights: rights}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(admin.Users().Disable(ctx, "disabled"), admin.Users().Revoke(ctx, "revoked")); err != nil {
		t.Fatal(err)
	}
	bad := wire.Encoder{}
	wiretest.Any(&bad, []any{"value", "("})
	calls := func(name string) map[string]func(*wire.Encoder) {
		filter := bad.Bytes()
		return map[string]func(*wire.Encoder){
			api.MethodRead:           (&api.ReadRequest{Table: name, Row: []byte("r0"), Filter: filter}).Append,
			api.MethodReadRows:       (&api.ReadRowsRequest{Table: name, Rows: [][]byte{[]byte("r0")}, Filter: filter}).Append,
			api.MethodScanOpen:       (&api.ScanOpenRequest{Table: name, Filter: filter}).Append,
			api.MethodCheckAndMutate: (&api.CheckAndMutateRequest{Table: name, Row: []byte("r0"), Predicate: filter}).Append,
		}
	}
	for name, want := range map[string]rpc.Code{
		"reader": api.CodeBadFilter, "writer": rpc.CodePermissionDenied, "nobody": api.CodeTableNotFound,
		"disabled": rpc.CodeUnauthenticated, "revoked": rpc.CodeUnauthenticated,
	} {
		conn := f.dialAs(0, users[name])
		for method, params := range calls("t") {
			if e := answerOf(t, conn, method, params); e == nil || e.Code != want {
				t.Errorf("%s of %s: %v, want %v", method, name, e, want)
			}
		}
	}
	// What hides a table still does: it is not there, word for word.
	conn := f.dialAs(0, users["nobody"])
	for method, params := range calls("T") {
		missing, hidden := answerOf(t, conn, method, params), answerOf(t, conn, method, calls("t")[method])
		if missing == nil || hidden == nil || missing.Message != `table "T": no such table` || hidden.Message != `table "t": no such table` {
			t.Errorf("%s: %v of a table that is hidden, %v of one that does not exist", method, hidden, missing)
		}
	}
}
