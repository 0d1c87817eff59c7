package authz

import (
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// TestAuditSubjects: the subject of a change in the audit log is what its parameters name.
func TestAuditSubjects(t *testing.T) {
	var g *Guard
	var got string
	s := authztest.Serve(t, rpc.ServerConfig{}, map[string]func(*rpc.Call){"change": func(c *rpc.Call) {
		got = g.auditSubject(c)
		c.Reply(nil)
	}})
	names := authztest.Values
	for _, c := range []struct {
		guard  Guard
		params func(*wire.Encoder)
		want   string
	}{
		{Guard{To: Right, Right: acl.Read, About: Named("x")}, names("a"), ""}, // no change
		{Guard{To: Right, Right: acl.Admin, About: Named("x"), SelfAudited: true}, names("a"), ""},
		{Guard{To: Right, Right: acl.Admin}, names("a"), ""},
		{Guard{To: Right, Right: acl.Admin, About: Named("user")}, names("ann"), "user ann"},
		{Guard{To: Right, Right: acl.Admin, About: Named("user")}, names(7), ""},
		{Guard{To: Right, Right: acl.Admin, About: Named("user")}, names(""), ""},
		{Guard{To: Right, Right: acl.Admin, About: Always("all users")}, names(), "all users"},
		{Guard{To: RightOfTable, Right: acl.Admin}, names("t"), "table t"},
		{Guard{To: RightOfTable, Right: acl.Admin, About: FamilyDropped}, names("t", "f"), "family f of table t"},
		{Guard{To: RightOfTable, Right: acl.Admin, About: FamilyDropped}, names("t"), "table t"},
		{Guard{To: RightOfTable, Right: acl.Admin, About: FamilySet}, tableParams(api.MethodSetFamily, "t"), "family h of table t"},
		{Guard{To: RightOfTable, Right: acl.Admin, About: FamilySet}, names("t"), "table t"},
		{Guard{To: Right, Right: acl.Admin, About: Rotated}, (&api.RotateAuthorityRequest{GossipKey: true}).Append, "the gossip key"},
		{Guard{To: Right, Right: acl.Admin, About: Rotated}, (&api.RotateAuthorityRequest{}).Append, "the authority"},
		{Guard{To: Right, Right: acl.Admin, About: Rotated}, names(), "the authority"},
	} {
		g = &c.guard
		if err := s.Call(t, nil, "change", c.params); err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.guard.To, got, c.want)
		}
	}
}
