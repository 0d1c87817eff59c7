package authz

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// TokensDir holds a file for each access token: package security/token.
const TokensDir = "/acl/tokens"

// TokenPath returns the path of an access token.
func TokenPath(id token.ID) string { return TokensDir + "/" + id.String() }

// Rights is this node's view of users' rights: package acl. While the node's session with the lock service is in doubt, it
// admits no principal (I12).
type Rights struct {
	Cache       *acl.Cache
	Files       rightsFiles
	CheckLeader func() error // returns an error while the lock service has no leader
}

// NewRights returns the rights that meta reads. checkLeader returns an error while the lock service has no leader.
func NewRights(meta *namespace.Access, checkLeader func() error) *Rights {
	files := rightsFiles{meta}
	return &Rights{Cache: acl.NewCache(files), Files: files, CheckLeader: checkLeader}
}

// rightsFiles reads the files below /acl through the node's session. It implements acl.Files.
type rightsFiles struct{ meta *namespace.Access }

// Epoch implements acl.Files.
func (f rightsFiles) Epoch(ctx context.Context) (uint64, error) {
	s := f.meta.Current()
	if s == nil {
		return 0, acl.ErrUncertain
	}
	file, err := s.Get(ctx, acl.EpochFile)
	return file.Generation, err
}

// Holds implements acl.Files.
func (f rightsFiles) Holds(epoch uint64) bool {
	s := f.meta.Current()
	if s == nil {
		return false
	}
	generation, ok := s.Cached(acl.EpochFile)
	return ok && generation == epoch
}

// Get implements acl.Files.
func (f rightsFiles) Get(ctx context.Context, path string) ([]byte, error) {
	s := f.meta.Current()
	if s == nil {
		return nil, acl.ErrUncertain
	}
	file, err := s.Get(ctx, path)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, nil
	}
	return file.Data, err
}

// RightsTimeout bounds the lookup of rights.
const RightsTimeout = 5 * time.Second

// Holds reports whether rights are unchanged since the ticket. It uses only what is in memory.
func (r *Rights) Holds(caller *Subject, t acl.Ticket) bool {
	if !r.Cache.Holds(t) && !planted.On(planted.RightsForEver) {
		return false
	}
	s := caller.CredentialToken.Load()
	return s == nil || s.Record.Ends.IsZero() || s.Record.Valid(time.Now()) == nil
}

// ask runs ask for a principal and verifies its credential at the same ticket. Errors: *api.IdentityError,
// *api.PermissionError, acl.ErrHidden, api.ErrUnavailable.
func (r *Rights) ask(ctx context.Context, caller *Subject, ask func(ctx context.Context, name string, generation uint64) (acl.Ticket, error)) (acl.Ticket, error) {
	if why := r.CheckLeader(); why != nil { // waiting would not help
		return acl.Ticket{}, why
	}
	ctx, cancel := timing.Within(ctx, RightsTimeout)
	defer cancel()
	name, generation, s := caller.Principal()
	// While rights are being changed they are uncertain, for as long as it takes to wait for a dead server's lease.
	pauses := timing.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	for {
		t, err := ask(ctx, name, generation)
		if errors.Is(err, acl.ErrUncertain) {
			if pauses.Sleep(ctx); ctx.Err() == nil {
				continue
			}
		}
		if err == nil && s == nil && caller.Peer.Serial != "" {
			revoked, known := r.Cache.CertificateRevoked(t, name, caller.Peer.Serial)
			if !known {
				err = acl.ErrUncertain
				if pauses.Sleep(ctx); ctx.Err() == nil {
					continue
				}
			}
			if revoked {
				err = acl.ErrRevoked
			}
		}
		if err != nil || s == nil {
			return t, r.Recode(err)
		}
		known := s.Seen.Load()
		if known != nil && (*known == t && r.Cache.Holds(t) || planted.On(planted.TokenForEver)) {
			return t, r.Recode(s.Record.Valid(time.Now()))
		}
		if err := r.checkToken(ctx, s); err != nil {
			return t, r.Recode(err)
		}
		if r.Cache.Holds(t) { // the record was read while t was valid
			s.Seen.Store(&t)
			return t, nil
		}
		if ctx.Err() != nil {
			return t, r.Recode(acl.ErrUncertain)
		}
	}
}

// checkToken rereads the record of an access token, which may have been revoked.
func (r *Rights) checkToken(ctx context.Context, s *CredentialToken) error {
	b, err := r.Files.Get(ctx, TokenPath(s.Record.ID))
	if err != nil {
		return err
	}
	if b == nil {
		return acl.ErrRevoked
	}
	return s.Record.Valid(time.Now())
}

// RestoreToken sets the token of a subject that another node has authenticated, by the token's id. Errors: *api.IdentityError,
// api.ErrUnavailable.
func (r *Rights) RestoreToken(ctx context.Context, caller *Subject, text string) error {
	id, err := token.ParseID(text)
	if err != nil {
		return err
	}
	gone := &api.IdentityError{Reason: api.IdentityRevoked, Text: "token was revoked: have a new one made"}
	b, err := r.Files.Get(ctx, TokenPath(id))
	switch {
	case err != nil:
		return r.Recode(err)
	case b == nil:
		return gone
	}
	record, err := token.DecodeAccess(b)
	if err != nil {
		return err
	}
	if record.Principal != caller.Peer.Name || record.Generation != caller.Peer.Generation {
		return gone
	}
	caller.CredentialToken.Store(&CredentialToken{Record: record})
	return nil
}

// Check returns nil if the principal has a right on the cluster.
func (r *Rights) Check(ctx context.Context, caller *Subject, right acl.Rights) (acl.Ticket, error) {
	return r.ask(ctx, caller, func(ctx context.Context, name string, generation uint64) (acl.Ticket, error) {
		return r.Cache.CheckCluster(ctx, name, generation, right)
	})
}

// Known returns nil if the principal exists and is enabled.
func (r *Rights) Known(ctx context.Context, caller *Subject) (acl.Ticket, error) {
	return r.ask(ctx, caller, r.Cache.Check)
}

// sees reports whether the principal has any right on a table.
func (r *Rights) sees(ctx context.Context, caller *Subject, tableID uint64) (sees bool, t acl.Ticket, err error) {
	if tableID == metadata.TableID {
		t, err = r.Known(ctx, caller)
		return err == nil, t, err
	}
	t, err = r.ask(ctx, caller, func(ctx context.Context, name string, generation uint64) (t acl.Ticket, err error) {
		sees, t, err = r.Cache.Sees(ctx, name, generation, tableID)
		return t, err
	})
	return sees, t, err
}

// View returns a table as the principal may see it.
func (r *Rights) View(ctx context.Context, caller *Subject, s *table.Schema) (v *acl.View, t acl.Ticket, err error) {
	if v, t = r.ViewNow(caller, s); v != nil {
		return v, t, nil
	}
	t, err = r.ask(ctx, caller, func(ctx context.Context, name string, generation uint64) (t acl.Ticket, err error) {
		v, t, err = r.Cache.View(ctx, name, generation, s)
		return t, err
	})
	if err != nil {
		return nil, t, err
	}
	caller.recentView[s.ID%uint64(len(caller.recentView))].Store(&recentView{v, t})
	return v, t, nil
}

// ViewNow is view for callers that must not wait. It returns nil if it would have to.
func (r *Rights) ViewNow(caller *Subject, s *table.Schema) (*acl.View, acl.Ticket) {
	l := caller.recentView[s.ID%uint64(len(caller.recentView))].Load()
	if l == nil || l.view.Schema() != s || !r.Holds(caller, l.ticket) {
		return nil, acl.Ticket{}
	}
	return l.view, l.ticket
}

// Recode converts an error about rights to its API form.
func (r *Rights) Recode(err error) error {
	var denied *acl.DeniedError
	var ended *token.RefusedError
	switch {
	case err == nil || errors.Is(err, acl.ErrHidden):
		return err
	case errors.As(err, &denied):
		return permission(denied)
	case errors.Is(err, acl.ErrUnknownPrincipal):
		return &api.IdentityError{Reason: api.IdentityUnknown, Text: "the cluster has no user of that name"}
	case errors.Is(err, acl.ErrDisabled):
		return &api.IdentityError{Reason: api.IdentityDisabled, Text: "user is disabled: ask an administrator"}
	case errors.Is(err, acl.ErrRevoked):
		return &api.IdentityError{Reason: api.IdentityRevoked, Text: "credential was revoked: request a new one"}
	case errors.As(err, &ended):
		return &api.IdentityError{Reason: api.IdentityExpired, Text: "token has expired: request a new one"}
	}
	if why := r.CheckLeader(); why != nil {
		return why
	}
	return fmt.Errorf("%w: rights are unknown until the lock service answers: %s", api.ErrUnavailable, err.Error())
}

// permission converts an acl.DeniedError.
func permission(e *acl.DeniedError) *api.PermissionError {
	return &api.PermissionError{Right: e.Right.String(), Table: e.Table, Family: e.Family, Text: e.Error()}
}

// ElementPermission is permission for an error that names an element of a request.
func ElementPermission(err error) error {
	var denied *acl.DeniedError
	if !errors.As(err, &denied) {
		return err
	}
	var at *table.ElementError
	if errors.As(err, &at) {
		return &table.ElementError{What: at.What, Index: at.Index, Err: permission(denied)}
	}
	return permission(denied)
}
