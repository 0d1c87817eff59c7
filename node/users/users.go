package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

const principalsDir = "/acl/principals"

// principalLife is the default lifetime of a principal's certificate.
const principalLife = 365 * 24 * time.Hour

// tokenLife is the default lifetime of an access token.
const tokenLife = 90 * 24 * time.Hour

// Service manages users, their credentials and their grants. Changes are made by the master's node.
type Service struct {
	Config
	policies policies
	tokens   tokens
}

// Config has what the service needs of the node.
type Config struct {
	Log     *slog.Logger
	Catalog *namespace.Catalog
	Meta    *namespace.Access
	Authz   *authz.Authorizer
	Changes *changes.Changes
	// ForgetQuota removes the quota of a removed user, and reports whether there was one.
	ForgetQuota func(ctx context.Context, name string) (found bool, err error)
	// Transport has the certificates of the node; nil on an open node.
	Transport func() *certs.Transport
	// Signer returns the authority that signs users' certificates.
	Signer func(ctx context.Context) (*pki.Authority, error)
	// Cluster returns the cluster's id.
	Cluster func() string
}

// New returns the service.
func New(cfg Config) *Service {
	return &Service{
		Config:   cfg,
		policies: policies{cfg.Catalog, cfg.Meta, cfg.Changes},
		tokens:   tokens{cfg.Log, cfg.Catalog, cfg.Meta, cfg.Changes},
	}
}

// Register registers the methods of accounts.
func (acc *Service) Register(r method.Registrar) {
	acc.handleUsers(r)
	acc.handleGrants(r)
	acc.handleWhoami(r)
}

// handleUsers registers the methods that manage users and their credentials.
func (acc *Service) handleUsers(r method.Registrar) {
	change := authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("user")}
	r.Handle(api.MethodAddUser, rpc.Spawned, change, acc.serveAddUser)
	r.Handle(api.MethodRevokeUser, rpc.Spawned, change, acc.serveRevokeUser)
	r.HandleNames(api.MethodListUsers, 0, authz.Guard{To: authz.Right, Right: acl.Admin, About: authz.Always("all users")}, acc.listUsers)
	r.HandleNames(api.MethodRemoveUser, 1, change, func(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
		err := acc.changeUsers(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return acc.removeUser(ctx, r.Names[0]) })
		if err == nil {
			acc.Log.Info("user removed", "user", r.Names[0])
		}
		return nil, err
	})
	for method, disabled := range map[string]bool{api.MethodDisableUser: true, api.MethodEnableUser: false} {
		r.HandleNames(method, 1, change, func(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
			err := acc.changeUsers(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return acc.disableUser(ctx, r.Names[0], disabled) })
			if err == nil {
				acc.Log.Info(userStateEvent(disabled), "user", r.Names[0])
			}
			return nil, err
		})
	}
}

func (acc *Service) serveAddUser(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.AddUserRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	var made *api.AddedUser
	err := acc.changeUsers(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodAddUser, Name: r.Name}, func(ctx context.Context) (err error) {
		made, err = acc.addUser(ctx, &r)
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	acc.Log.Info("credential issued", "user", r.Name, "new_user", made.New, "token", made.TokenID)
	c.Reply(made.Append)
}

func (acc *Service) serveRevokeUser(c *rpc.Call) {
	c.Retain()
	var r api.RevokeUserRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	caller := authz.SubjectOf(c)
	err := checkRevocation(caller, &r)
	if err == nil {
		err = acc.changeUsers(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodRevokeUser, Name: r.Name}, func(ctx context.Context) error { return acc.revokeUser(ctx, &r) })
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	acc.Log.Info("credentials revoked", "user", r.Name, "token", r.Token, "certificate", r.Certificate)
	c.Reply(nil)
}

func (acc *Service) changeUsers(ctx context.Context, a authz.ChangeRequest, do func(context.Context) error) error {
	if acc.Authz.Open {
		return api.ErrOpenCluster
	}
	return acc.changeRights(ctx, a, do)
}

// principal returns the record of a user and its generation, or nil if the user does not exist.
func (acc *Service) principal(ctx context.Context, name string) (*acl.Principal, uint64, error) {
	if err := pki.CheckName("name of a user", name); err != nil {
		return nil, 0, reply.BadRequest(err)
	}
	f, err := acc.Meta.Get(ctx, acl.PrincipalFile(name))
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	p, err := acl.DecodePrincipal(f.Data)
	return p, f.Generation, err
}

// knownPrincipal is principal, but returns api.ErrNoUser if the user does not exist.
func (acc *Service) knownPrincipal(ctx context.Context, name string) (*acl.Principal, uint64, error) {
	p, gen, err := acc.principal(ctx, name)
	if err == nil && p == nil {
		err = fmt.Errorf("user %q: %w", name, api.ErrNoUser)
	}
	return p, gen, err
}

// addUser issues a certificate or an access token. It creates the user if there is none of that name.
func (acc *Service) addUser(ctx context.Context, r *api.AddUserRequest) (*api.AddedUser, error) {
	made := &api.AddedUser{}
	var signer *pki.Authority
	p, gen, err := acc.principal(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if r.NoEnd && (r.TTL != 0 || len(r.Request) > 0) {
		return nil, reply.BadRequest(errors.New("no_end goes with an access token, and without ttl_ms"))
	}
	if len(r.Request) > 0 { // before anything is changed
		if _, err := pki.KeyHash(r.Request); err != nil {
			return nil, reply.BadRequest(err)
		}
		if signer, err = acc.Signer(ctx); err != nil {
			return nil, err
		}
	}
	var ended []*token.AccessRecord
	if len(r.Request) == 0 {
		if ended, err = acc.tokens.checkLimit(ctx, r.Name); err != nil {
			return nil, err
		}
	}
	if p == nil {
		made.New = true
		if p, err = acc.newPrincipal(ctx, r.Name); err != nil {
			return nil, err
		}
	}
	var rec *token.AccessRecord
	if len(r.Request) > 0 {
		err = acc.signUser(signer, r, p, made)
	} else {
		rec, err = acc.accessToken(r, p, made)
	}
	if err != nil {
		return nil, err
	}
	if made.New || rec == nil { // before the certificate is handed out
		if _, err := acc.Changes.SetAsMaster(ctx, acl.PrincipalFile(p.Name), p.Encode(), gen); err != nil {
			return nil, err
		}
	}
	if rec != nil {
		if _, err := acc.Changes.SetAsMaster(ctx, authz.TokenPath(rec.ID), rec.Encode(), 0); err != nil {
			return nil, err
		}
	}
	acc.tokens.deleteEnded(ctx, ended)
	return made, nil
}

// newPrincipal returns a principal to be added.
func (acc *Service) newPrincipal(ctx context.Context, name string) (*acl.Principal, error) {
	p := &acl.Principal{Name: name, Created: time.Now()}
	// Remove what an interrupted removal of an earlier user of that name has left behind.
	if _, err := acc.forgetUser(ctx, p.Name); err != nil {
		return nil, err
	}
	// The new generation is above every credential of that earlier user.
	var err error
	p.Generation, err = acc.nextEpoch(ctx)
	return p, err
}

// accessToken issues an access token. It is valid once its record is written.
func (acc *Service) accessToken(r *api.AddUserRequest, p *acl.Principal, made *api.AddedUser) (*token.AccessRecord, error) {
	now := time.Now()
	life := r.TTL
	if life == 0 && !r.NoEnd {
		life = tokenLife
	}
	t := token.New(token.Access, acc.Transport().Fingerprint(), now, life)
	rec, err := token.NewAccessRecord(t, now, p.Name, p.Generation, r.Comment)
	if err != nil {
		return nil, reply.BadRequest(err)
	}
	made.Token, made.TokenID = t.Reveal(), t.ID().String()
	if !t.Ends().IsZero() {
		made.EndsMS = t.Ends().UnixMilli()
	}
	return rec, nil
}

func (acc *Service) signUser(signer *pki.Authority, r *api.AddUserRequest, p *acl.Principal, made *api.AddedUser) error {
	life := r.TTL
	if life == 0 {
		life = principalLife
	}
	leaf, err := signer.SignPrincipal(r.Request, p.Name, p.Generation, life, time.Now())
	if err != nil {
		return reply.BadRequest(err)
	}
	p.Covers(leaf.NotAfter)
	made.Certificate, made.Authority, made.EndsMS = leaf.Raw, acc.Transport().Credential().Trust().PEM(), leaf.NotAfter.UnixMilli()
	return nil
}

// checkRevocation rejects a revocation request that contradicts itself, or that revokes the caller's own certificate. The
// cluster keeps no list of certificates, so it cannot check that an administrator has another one. The caller has one.
func checkRevocation(caller *authz.Subject, r *api.RevokeUserRequest) error {
	if r.Certificate == "" {
		return nil
	}
	if r.Token != "" {
		return reply.BadRequest(errors.New("a token and a certificate: revoke one at a time"))
	}
	if err := acl.CheckSerial(r.Certificate); err != nil {
		return reply.BadRequest(err)
	}
	if caller != nil && caller.CredentialToken.Load() == nil && caller.Peer.Serial == r.Certificate {
		return reply.BadRequest(errors.New("certificate is the one used for this request: use another administrator's credential"))
	}
	return nil
}

// revokeUser invalidates all credentials of a user, one token, or one certificate.
func (acc *Service) revokeUser(ctx context.Context, r *api.RevokeUserRequest) error {
	p, gen, err := acc.knownPrincipal(ctx, r.Name)
	if err != nil {
		return err
	}
	switch {
	case r.Certificate != "":
		if err := p.Lose(r.Certificate, time.Now()); err != nil {
			return &table.LimitError{What: "certificates of a user that are revoked one by one", Limit: acl.LostMax, Got: acl.LostMax + 1}
		}
		_, err := acc.Changes.SetAsMaster(ctx, acl.PrincipalFile(p.Name), p.Encode(), gen)
		return err
	case r.Token != "":
		return acc.revokeToken(ctx, p.Name, r.Token)
	}
	return acc.revokeAll(ctx, p, gen)
}

// revokeToken revokes the access token of a user with that id.
func (acc *Service) revokeToken(ctx context.Context, user, tokenID string) error {
	tokens, err := acc.tokens.list(ctx, user)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tokens[user], func(t *token.AccessRecord) bool { return t.ID.String() == tokenID })
	if i < 0 {
		return &api.TokenRefusedError{Reason: api.TokenUnknown, Text: fmt.Sprintf("user %q has no token with the id %.40s", user, tokenID)}
	}
	id := tokens[user][i].ID
	if err := acc.checkAdminWithout(ctx, credentials{of: user, token: &id}); err != nil {
		return err
	}
	return acc.Changes.DeleteAsMaster(ctx, authz.TokenPath(id))
}

// revokeAll revokes all credentials of the user p, whose file has the generation gen.
func (acc *Service) revokeAll(ctx context.Context, p *acl.Principal, gen uint64) error {
	if err := acc.checkAdminWithout(ctx, credentials{of: p.Name}); err != nil {
		return err
	}
	epoch, err := acc.nextEpoch(ctx)
	if err != nil {
		return err
	}
	p.Generation, p.Until, p.Lost = max(epoch, p.Generation+1), time.Time{}, nil
	if _, err := acc.Changes.SetAsMaster(ctx, acl.PrincipalFile(p.Name), p.Encode(), gen); err != nil {
		return err
	}
	if _, err := acc.nextEpoch(ctx); err != nil { // credentials are invalid from here on, even if the rest fails
		return err
	}
	tokens, err := acc.tokens.list(ctx, p.Name)
	if err != nil {
		return err
	}
	return acc.tokens.delete(ctx, tokens[p.Name])
}

// removeUser removes a user with its tokens and grants. If the user does not exist, it removes what an interrupted removal
// has left, and returns api.ErrNoUser if there was nothing.
func (acc *Service) removeUser(ctx context.Context, name string) error {
	p, _, err := acc.principal(ctx, name)
	if err != nil {
		return err
	}
	if p != nil {
		if err := acc.checkAdminWithout(ctx, credentials{of: name}); err != nil {
			return err
		}
		if err := acc.Changes.DeleteAsMaster(ctx, acl.PrincipalFile(name)); err != nil { // first: it denies the user access
			return err
		}
		if _, err := acc.nextEpoch(ctx); err != nil {
			return err
		}
	}
	found, err := acc.forgetUser(ctx, name)
	if err == nil && p == nil && !found {
		err = fmt.Errorf("user %q: %w", name, api.ErrNoUser)
	}
	return err
}

// forgetUser removes the tokens, quota and grants of a user that does not exist. It reports whether there were any.
func (acc *Service) forgetUser(ctx context.Context, name string) (found bool, err error) {
	tokens, err := acc.tokens.listAll(ctx, name)
	if err != nil {
		return false, err
	}
	if err := acc.tokens.delete(ctx, tokens[name]); err != nil {
		return false, err
	}
	found, err = acc.ForgetQuota(ctx, name)
	if err != nil {
		return found, err
	}
	granted, err := acc.forgetGrants(ctx, name)
	return err == nil && (found || granted || len(tokens[name]) > 0), err
}

// forgetGrants removes the grants of a user.
func (acc *Service) forgetGrants(ctx context.Context, name string) (found bool, err error) {
	ids, err := acc.policies.tables(ctx)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		old, _, err := acc.policies.get(ctx, id)
		if err != nil {
			return false, err
		}
		if len(old.Forget(name).Grants) == len(old.Grants) {
			continue
		}
		err = acc.policies.edit(ctx, id, func(p *acl.Policy) (*acl.Policy, error) { return p.Forget(name), nil })
		if err != nil {
			return false, err
		}
		found = true
	}
	return found, nil
}

// disableUser disables a user, or enables it again.
func (acc *Service) disableUser(ctx context.Context, name string, disabled bool) error {
	p, gen, err := acc.knownPrincipal(ctx, name)
	if err != nil || p.Disabled == disabled {
		return err
	}
	if disabled {
		if err := acc.checkAdminWithout(ctx, credentials{of: name}); err != nil {
			return err
		}
	}
	p.Disabled = disabled
	_, err = acc.Changes.SetAsMaster(ctx, acl.PrincipalFile(p.Name), p.Encode(), gen)
	return err
}

func (acc *Service) listUsers(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	if acc.Authz.Open {
		return nil, api.ErrOpenCluster
	}
	names, err := acc.Catalog.List(ctx, principalsDir)
	if err != nil {
		return nil, err
	}
	tokens, err := acc.tokens.list(ctx, "")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	all := &api.Users{}
	for _, name := range names {
		p, _, err := acc.principal(ctx, name)
		if err != nil {
			return nil, err
		}
		if p == nil { // removed meanwhile
			continue
		}
		all.Users = append(all.Users, userInfo(p, tokens[name]))
	}
	return all.Append, nil
}

func userInfo(p *acl.Principal, tokens []*token.AccessRecord) api.UserInfo {
	u := api.UserInfo{Name: p.Name, Disabled: p.Disabled, CreatedMS: max(0, p.Created.UnixMilli()), Generation: p.Generation}
	for _, t := range tokens {
		i := api.UserToken{ID: t.ID.String(), CreatedMS: t.Created.UnixMilli(), Comment: t.Comment}
		if !t.Ends.IsZero() {
			i.EndsMS = t.Ends.UnixMilli()
		}
		u.Tokens = append(u.Tokens, i)
	}
	return u
}

func userStateEvent(disabled bool) string {
	if disabled {
		return "user disabled"
	}
	return "user enabled"
}

// Check returns api.ErrNoUser if there is no user of that name.
func (acc *Service) Check(ctx context.Context, name string) error {
	_, _, err := acc.knownPrincipal(ctx, name)
	return err
}
