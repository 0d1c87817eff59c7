package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// TestRemovalBrokenOff (I12): a removal that fails after the user was locked out reports it, and leaves nothing to the next user of the name:
// neither if it is repeated, nor if a user is added at once.
func TestRemovalBrokenOff(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	own, err := admin.Tables().Create(ctx, "u", table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the master has looked for leftovers", f.nodes[0].SweptTables)
	stray := acl.TableFile(own.ID + 1000) // of a table that was never made
	left := func(name string) (all []string) {
		t.Helper()
		for _, g := range good(admin.Grants().List(ctx, "", name)) {
			all = append(all, g.Table+": "+g.Rights)
		}
		if b, err := f.nodes[0].File(ctx, stray); err == nil && len(good(acl.DecodePolicy(b)).Grants) > 0 {
			all = append(all, "stray")
		}
		return all
	}
	for what, breaks := range map[string]string{
		"a token cannot be read":           "/acl/tokens/0000000000000000",
		"grants on a table cannot be read": acl.TableFile(good(admin.Tables().Describe(ctx, "t")).Schema.ID),
	} {
		for _, again := range []string{"made again", "added"} {
			f.user(admin, "ann")
			if _, _, err := admin.Users().AddToken(ctx, "ann", 0, ""); err != nil {
				t.Fatal(err)
			}
			if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "u", Rights: "admin"}); err != nil {
				t.Fatal(err)
			}
			p := good((&acl.Policy{Table: own.ID + 1000}).Grant(acl.Grant{Principal: "ann", Rights: acl.Admin}))
			if err := errors.Join(f.nodes[0].PutFile(ctx, stray, p.Encode()), f.nodes[0].PutFile(ctx, breaks, []byte("x"))); err != nil {
				t.Fatal(err)
			}
			if err := admin.Users().Remove(ctx, "ann"); !errors.Is(err, client.ErrAmbiguous) || !strings.Contains(err.Error(), "repeat it") {
				t.Errorf("%s: %v, want that it is not sure", what, err)
			}
			if _, err := f.nodes[0].File(ctx, acl.PrincipalFile("ann")); !errors.Is(err, metaapi.ErrNotFound) {
				t.Errorf("%s: the principal is there: %v", what, err)
			}
			if _, _, err := admin.Users().AddToken(ctx, "ann", 0, ""); err == nil {
				t.Errorf("%s: a user is added of whom it is not known what there is", what)
			}
			if err := f.nodes[0].PutFile(ctx, breaks, nil); err != nil {
				t.Fatal(err)
			}
			if got := left("ann"); len(got) != 2 {
				t.Errorf("%s: left is %v, want that there is something to be forgotten", what, got)
			}
			if again == "made again" {
				if err := admin.Users().Remove(ctx, "ann"); err != nil {
					t.Errorf("%s, made again: %v", what, err)
				}
			} else {
				f.user(admin, "ann")
				tokens := 0
				for _, u := range good(admin.Users().List(ctx)) {
					tokens += len(u.Tokens)
				}
				if tokens != 0 {
					t.Errorf("%s: the next user of the name has %d tokens", what, tokens)
				}
			}
			if got := left("ann"); len(got) != 0 {
				t.Errorf("%s, %s: the next user of the name has %v", what, again, got)
			}
			if again == "added" {
				if err := admin.Users().Remove(ctx, "ann"); err != nil {
					t.Error(err)
				}
			}
			if err := admin.Users().Remove(ctx, "ann"); !errors.Is(err, client.ErrNoUser) {
				t.Errorf("nothing is left to be removed: %v", err)
			}
		}
	}
}

// TestKilledRemoval (I12): when the master dies right after it has removed the record of a user, before other nodes know
// of that, the next one of the name has nothing.
func TestKilledRemoval(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	f.user(admin, "ann")
	grants := []client.Grant{{Principal: "ann", Rights: "admin"}, {Principal: "ann", Table: "t", Rights: "read"}}
	if err := errors.Join(admin.Grants().Add(ctx, grants[0]), admin.Grants().Add(ctx, grants[1]), f.nodes[0].PutFile(ctx, acl.PrincipalFile("ann"), nil)); err != nil {
		t.Fatal(err)
	}
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")})
	if got := good(admin.Grants().List(within(t, 10*time.Second), "", "ann")); len(got) != 0 {
		t.Errorf("she is given %v", got)
	}
	if _, err := ann.Table("t").Get(ctx, "r0"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("she reads: %v", err)
	}
	if err := ann.Tables().Drop(ctx, "t"); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("she drops: %v", err)
	}
}
