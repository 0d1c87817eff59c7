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
)

// Grants administers rights. client.Grants implements it; see there for the errors.
type Grants interface {
	List(ctx context.Context, tableName, principal string) ([]client.Grant, error)
	Set(ctx context.Context, tableName, view string, from, to []client.Grant) error
}

var _ Grants = client.Grants{}

// Caller is the caller of a request. *client.Client implements it.
type Caller interface {
	Whoami(ctx context.Context) (*client.Whoami, error)
}

// rights is a set of rights on a resource. Admin implies the others, and read implies monitor.
type rights uint8

const (
	mayRead rights = 1 << iota
	mayWrite
	mayAdmin
	mayMonitor // on the cluster only
	maySee     // tables and views; each right but monitor implies it, and no grant has it
)

var rightNames = []string{"read", "write", "admin", "monitor"}

// parseRights parses the rights of a grant.
func parseRights(text string) (r rights) {
	for word := range strings.SplitSeq(text, ",") {
		if i := slices.Index(rightNames, word); i >= 0 {
			r |= 1 << i
		}
	}
	return r
}

// implied returns the set with the rights that it implies.
func (r rights) implied() rights {
	if r&mayAdmin != 0 {
		r |= mayRead | mayWrite
	}
	if r&mayRead != 0 {
		r |= mayMonitor
	}
	if r&(mayRead|mayWrite) != 0 {
		r |= maySee
	}
	return r
}

// least returns the set without the rights that others imply.
func (r rights) least() rights {
	switch {
	case r&mayAdmin != 0:
		return mayAdmin
	case r&mayRead != 0:
		return r &^ mayMonitor
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

// roles are the rights of each role.
var roles = map[string]rights{
	"roles/bigtable.reader": mayRead,
	"roles/bigtable.user":   mayRead | mayWrite,
	"roles/bigtable.admin":  mayAdmin,
	"roles/bigtable.viewer": mayMonitor,
	"roles/stele.writer":    mayWrite, // Google has no role for it
}

// The members of a policy are users of the cluster, and all of them.
const (
	userPrefix = "user:"
	everyone   = "allAuthenticatedUsers"
)

// grantsOf returns the grants on a resource, and what its policy is as an etag. Those of a backup are the grants on the cluster by which backups can
// be used.
func grantsOf(ctx context.Context, g Grants, of resource) (held map[string]rights, etag []byte, err error) {
	all, err := g.List(ctx, of.table, "")
	if err != nil && !errors.Is(err, client.ErrOpenCluster) {
		return nil, nil, errcode.Convert(err, errcode.Repeatable)
	}
	held = map[string]rights{}
	for _, grant := range all {
		if grant.Table == of.table && grant.Family == "" && grant.View == of.view {
			if r := parseRights(grant.Rights) & of.applicable(); r != 0 {
				held[grant.Principal] |= r
			}
		}
	}
	return held, etagOf(held), nil
}

// etagOf returns the etag of a policy.
func etagOf(held map[string]rights) []byte {
	hash := sha256.New()
	for _, principal := range slices.Sorted(maps.Keys(held)) {
		fmt.Fprintf(hash, "%q %v\n", principal, held[principal].least())
	}
	return hash.Sum(nil)[:8]
}

// policyOfGrants returns a policy.
func policyOfGrants(held map[string]rights, etag []byte) *iampb.Policy {
	p := &iampb.Policy{Version: 1, Etag: etag}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		b := &iampb.Binding{Role: role}
		for _, principal := range slices.Sorted(maps.Keys(held)) {
			part := held[principal].least() &^ mayMonitor
			if roles[role] == mayMonitor {
				part = held[principal].least() & mayMonitor
			}
			if part == roles[role] {
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
			want[principal] |= r
		}
	}
	return want, nil
}

// getPolicy implements GetIamPolicy for a resource. Grants on narrower and on wider resources are not part of its policy.
func getPolicy(ctx context.Context, grants Grants, of resource) (*iampb.Policy, error) {
	held, etag, err := grantsOf(ctx, grants, of)
	if err != nil {
		return nil, err
	}
	return policyOfGrants(held, etag), nil
}

// setAttempts is how often a policy without an etag is set anew if the grants change meanwhile.
const setAttempts = 5

// setPolicy implements SetIamPolicy for a resource, by one change of its grants from those that were read.
func setPolicy(ctx context.Context, grants Grants, of resource, p *iampb.Policy) (*iampb.Policy, error) {
	want, err := of.requested(p)
	if err != nil {
		return nil, err
	}
	given := p.GetEtag()
	for attempt := 1; ; attempt++ {
		held, etag, err := grantsOf(ctx, grants, of)
		if err != nil {
			return nil, err
		}
		if len(given) > 0 && string(given) != string(etag) {
			return nil, errPolicyChanged
		}
		next := replaced(held, want)
		if maps.Equal(next, held) {
			return policyOfGrants(held, etag), nil
		}
		err = grants.Set(ctx, of.table, of.view, listed(held), listed(next))
		switch {
		case err == nil:
			return policyOfGrants(next, etagOf(next)), nil // the caller may have lost the right to read it
		case !errors.Is(err, api.ErrGrantsChanged):
			return nil, errcode.Convert(err, repeatWithout(given))
		case len(given) > 0 || attempt == setAttempts:
			return nil, errPolicyChanged
		}
	}
}

var errPolicyChanged = status.Error(codes.Aborted, "The policy has changed since it was read: read it again.")

// repeatWithout reports whether a change may be made twice: with an etag, the second one would fail, and the client could not find out whether the first one
// was made.
func repeatWithout(etag []byte) errcode.Repeat {
	if len(etag) > 0 {
		return errcode.Once
	}
	return errcode.Repeatable
}

// replaced returns the rights of each principal when those of a policy replace others. What is the same is left as it is.
func replaced(held, want map[string]rights) map[string]rights {
	next := map[string]rights{}
	for principal, r := range want {
		if next[principal] = r.least(); held[principal].least() == r.least() {
			next[principal] = held[principal]
		}
	}
	return next
}

// listed returns grants as a list, by principal.
func listed(held map[string]rights) (all []client.Grant) {
	for _, principal := range slices.Sorted(maps.Keys(held)) {
		all = append(all, client.Grant{Principal: principal, Rights: held[principal].String()})
	}
	return all
}

// heldPermissions implements TestIamPermissions for a resource. It returns the permissions that the caller has on all of it.
func heldPermissions(ctx context.Context, caller Caller, of resource, requested []string) (*iampb.TestIamPermissionsResponse, error) {
	me, err := caller.Whoami(ctx)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	held := mayAdmin.implied() // on an open cluster, and of a node
	if me.Kind == api.KindPrincipal {
		held = of.rightsBy(me.Grants)
	}
	answer := &iampb.TestIamPermissionsResponse{}
	for _, p := range requested {
		if needs, known := of.needs(p); known && held&needs == needs {
			answer.Permissions = append(answer.Permissions, p)
		}
	}
	return answer, nil
}

// checkPermissions rejects patterns of permissions. The error is a status.
func checkPermissions(requested []string) error {
	for _, p := range requested {
		if strings.Contains(p, "*") {
			return errcode.Invalid("Permission %.100q has a wildcard", p)
		}
	}
	return nil
}
