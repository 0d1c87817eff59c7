package bigtableadmin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// Grants administers rights. client.Grants implements it; see there for the errors.
type Grants interface {
	List(ctx context.Context, tableName, principal string) ([]client.Grant, error)
	Add(ctx context.Context, grant client.Grant) error
	Revoke(ctx context.Context, grant client.Grant) error
}

var _ Grants = client.Grants{}

// Caller is the caller of a request. *client.Client implements it.
type Caller interface {
	Whoami(ctx context.Context) (*client.Whoami, error)
}

// rights is a set of rights on a table. Admin implies the others.
type rights uint8

const (
	mayRead rights = 1 << iota
	mayWrite
	mayAdmin
)

var rightNames = []string{"read", "write", "admin"}

// parseRights parses the rights of a grant.
func parseRights(text string) (r rights) {
	for word := range strings.SplitSeq(text, ",") {
		if i := slices.Index(rightNames, word); i >= 0 {
			r |= 1 << i
		}
	}
	return r.least()
}

// least returns the set without the rights that others imply.
func (r rights) least() rights {
	if r&mayAdmin != 0 {
		return mayAdmin
	}
	return r
}

// String returns the rights as a grant has them.
func (r rights) String() string {
	var words []string
	for i, word := range rightNames {
		if r&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// roles are the rights of each role. On an authorized view there is no admin.
var roles = map[string]rights{
	"roles/bigtable.reader": mayRead,
	"roles/bigtable.user":   mayRead | mayWrite,
	"roles/bigtable.admin":  mayAdmin,
	"roles/stele.writer":    mayWrite, // Google has no role for it
}

// The members of a policy are users of the cluster, and all of them.
const (
	userPrefix = "user:"
	everyone   = "allAuthenticatedUsers"
)

// resource is what has a policy: a table as a whole, or a view of one.
type resource struct{ table, view string }

// grant returns a grant on the resource.
func (r resource) grant(principal string, held rights) client.Grant {
	return client.Grant{Principal: principal, Table: r.table, View: r.view, Rights: held.String()}
}

// grantsOf returns the rights of each principal on a table or view, and what they are as an etag.
func grantsOf(ctx context.Context, g Grants, of resource) (map[string]rights, []byte, error) {
	all, err := g.List(ctx, of.table, "")
	if err != nil && !errors.Is(err, client.ErrOpenCluster) {
		return nil, nil, errcode.Convert(err, errcode.Repeatable)
	}
	held := map[string]rights{}
	for _, grant := range all {
		if grant.Table == of.table && grant.Family == "" && grant.View == of.view {
			held[grant.Principal] = (held[grant.Principal] | parseRights(grant.Rights)).least()
		}
	}
	hash := sha256.New()
	for _, principal := range slices.Sorted(maps.Keys(held)) {
		fmt.Fprintf(hash, "%q %v\n", principal, held[principal])
	}
	return held, hash.Sum(nil)[:8], nil
}

// policyOfGrants returns a policy.
func policyOfGrants(held map[string]rights, etag []byte) *iampb.Policy {
	p := &iampb.Policy{Version: 1, Etag: etag}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		b := &iampb.Binding{Role: role}
		for _, principal := range slices.Sorted(maps.Keys(held)) {
			if held[principal] == roles[role] {
				member := userPrefix + principal
				if principal == client.Everyone {
					member = everyone
				}
				b.Members = append(b.Members, member)
			}
		}
		if len(b.Members) > 0 {
			p.Bindings = append(p.Bindings, b)
		}
	}
	return p
}

// roles returns the names of the roles that a policy can have.
func (r resource) roles() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(roles)), func(role string) bool { return r.view != "" && roles[role]&mayAdmin != 0 })
}

// requested returns the rights of each principal in a policy. Errors are statuses.
func (r resource) requested(p *iampb.Policy) (map[string]rights, error) {
	want, known := map[string]rights{}, r.roles()
	for _, b := range p.GetBindings() {
		r := roles[b.GetRole()]
		switch {
		case b.GetCondition() != nil:
			return nil, errcode.Unimplemented("Conditions of role bindings are not supported.")
		case !slices.Contains(known, b.GetRole()):
			return nil, errcode.Invalid("Role %.100s is not supported for this resource: want %s", b.GetRole(), strings.Join(known, ", "))
		}
		for _, member := range b.GetMembers() {
			principal, user := strings.CutPrefix(member, userPrefix)
			if member == everyone {
				principal, user = client.Everyone, true
			} else if principal == client.Everyone {
				user = false
			}
			if !user || principal == "" {
				return nil, errcode.Invalid("Member %.100q is not supported: want user:NAME or %s", member, everyone)
			}
			want[principal] = (want[principal] | r).least()
		}
	}
	return want, nil
}

// iamResource returns what the IAM methods need for a table or view that the caller may see. Errors are statuses.
func (s *Service) iamResource(ctx context.Context, name string) (Caller, Grants, resource, error) {
	n, err := names.ParseTableOrView(name)
	if err != nil {
		return nil, nil, resource{}, errcode.Convert(err, errcode.Repeatable)
	}
	t, err := s.open(ctx)
	if err == nil && n.ID != "" {
		_, err = viewOf(ctx, t, n)
	} else if err == nil {
		_, err = schemaOf(ctx, t, n.Table)
	}
	if err != nil {
		return nil, nil, resource{}, err
	}
	caller, grants, err := s.cfg.OpenRights(ctx)
	return caller, grants, resource{n.Table.ID, n.ID}, errcode.Convert(err, errcode.Repeatable)
}

// GetIamPolicy implements adminpb.BigtableTableAdminServer. Grants on families of the table, and on the cluster, are not part of it.
func (s *Service) GetIamPolicy(ctx context.Context, req *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	_, grants, of, err := s.iamResource(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	held, etag, err := grantsOf(ctx, grants, of)
	if err != nil {
		return nil, err
	}
	return policyOfGrants(held, etag), nil
}

// SetIamPolicy implements adminpb.BigtableTableAdminServer. Rights are added before others are revoked, each at once.
func (s *Service) SetIamPolicy(ctx context.Context, req *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	_, grants, of, err := s.iamResource(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	want, err := of.requested(req.GetPolicy())
	if err != nil {
		return nil, err
	}
	held, etag, err := grantsOf(ctx, grants, of)
	if err != nil {
		return nil, err
	}
	if given := req.GetPolicy().GetEtag(); len(given) > 0 && string(given) != string(etag) {
		return nil, status.Error(codes.Aborted, "The policy has changed since it was read: read it again.")
	}
	if err := changeGrants(ctx, grants, of, held, want); err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable) // a repetition ends with the same rights
	}
	if held, etag, err = grantsOf(ctx, grants, of); err != nil {
		return nil, err
	}
	return policyOfGrants(held, etag), nil
}

// changeGrants makes the rights of the principals on a table or view those of want.
func changeGrants(ctx context.Context, g Grants, of resource, held, want map[string]rights) error {
	for _, principal := range slices.Sorted(maps.Keys(want)) {
		if added := want[principal] &^ held[principal]; added != 0 {
			if err := g.Add(ctx, of.grant(principal, added)); err != nil {
				return err
			}
		}
	}
	for _, principal := range slices.Sorted(maps.Keys(held)) {
		if revoked := held[principal] &^ want[principal]; revoked != 0 {
			if err := g.Revoke(ctx, of.grant(principal, revoked)); err != nil {
				return err
			}
		}
	}
	return nil
}

// viewPermissions begins the permissions of views. On a table, they are those of all its views.
const viewPermissions = "bigtable.authorizedViews."

// permissions are the rights that the permissions of a table or view need; 0 means any.
var permissions = map[string]rights{
	viewPermissions + "readRows":               mayRead,
	viewPermissions + "sampleRowKeys":          mayRead,
	viewPermissions + "mutateRows":             mayWrite,
	viewPermissions + "get":                    0,
	viewPermissions + "list":                   0,
	viewPermissions + "create":                 mayAdmin,
	viewPermissions + "update":                 mayAdmin,
	viewPermissions + "delete":                 mayAdmin,
	viewPermissions + "getIamPolicy":           mayAdmin,
	viewPermissions + "setIamPolicy":           mayAdmin,
	"bigtable.tables.readRows":                 mayRead,
	"bigtable.tables.sampleRowKeys":            mayRead,
	"bigtable.tables.mutateRows":               mayWrite,
	"bigtable.tables.get":                      0,
	"bigtable.tables.list":                     0,
	"bigtable.tables.checkConsistency":         0,
	"bigtable.tables.generateConsistencyToken": 0,
	"bigtable.tables.delete":                   mayAdmin,
	"bigtable.tables.update":                   mayAdmin,
	"bigtable.tables.getIamPolicy":             mayAdmin,
	"bigtable.tables.setIamPolicy":             mayAdmin,
}

// TestIamPermissions implements adminpb.BigtableTableAdminServer. It returns the permissions that the caller has on all families of the table, or on
// the view.
func (s *Service) TestIamPermissions(ctx context.Context, req *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	for _, p := range req.GetPermissions() {
		if strings.Contains(p, "*") {
			return nil, errcode.Invalid("Permission %.100q has a wildcard", p)
		}
	}
	caller, _, of, err := s.iamResource(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	me, err := caller.Whoami(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	held := mayRead | mayWrite | mayAdmin
	if me.Kind == api.KindPrincipal {
		held = of.rightsBy(me.Grants)
	}
	answer := &iampb.TestIamPermissionsResponse{}
	for _, p := range req.GetPermissions() {
		if needs, known := permissions[p]; known && held&needs == needs && (of.view == "" || strings.HasPrefix(p, viewPermissions)) {
			answer.Permissions = append(answer.Permissions, p)
		}
	}
	return answer, nil
}

// rightsBy returns the rights on the resource that grants give, with those that they imply.
func (r resource) rightsBy(grants []client.Grant) (held rights) {
	for _, g := range grants {
		if g.Family == "" && (g.View == "" || g.View == r.view) && (g.Table == "" || g.Table == r.table) {
			held |= parseRights(g.Rights)
		}
	}
	if held&mayAdmin != 0 {
		held |= mayRead | mayWrite
	}
	return held
}
