package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/node/namespace"

	"github.com/steledb/stele/internal/timing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// tokensDir holds a file for each access token: package security/token.
const tokensDir = "/acl/tokens"

func tokenPath(id token.ID) string { return tokensDir + "/" + id.String() }

// rights is this node's view of users' rights: package acl. While the node's session with the lock service is in doubt, it
// admits no principal (I12).
type rights struct {
	cache       *acl.Cache
	files       rightsFiles
	checkLeader func() error // returns an error while the lock service has no leader
}

func newRights(meta *namespace.Access, checkLeader func() error) *rights {
	files := rightsFiles{meta}
	return &rights{cache: acl.NewCache(files), files: files, checkLeader: checkLeader}
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

// rightsTimeout bounds the lookup of rights.
const rightsTimeout = 5 * time.Second

// holds reports whether rights are unchanged since the ticket. It uses only what is in memory.
func (r *rights) holds(caller *subject, t acl.Ticket) bool {
	if !r.cache.Holds(t) {
		return false
	}
	s := caller.credentialToken.Load()
	return s == nil || s.record.Ends.IsZero() || s.record.Valid(time.Now()) == nil
}

// ask runs ask for a principal and verifies its credential at the same ticket. Errors: *api.IdentityError,
// *api.PermissionError, acl.ErrHidden, api.ErrUnavailable.
func (r *rights) ask(ctx context.Context, caller *subject, ask func(ctx context.Context, name string, generation uint64) (acl.Ticket, error)) (acl.Ticket, error) {
	if why := r.checkLeader(); why != nil { // waiting would not help
		return acl.Ticket{}, why
	}
	ctx, cancel := timing.Within(ctx, rightsTimeout)
	defer cancel()
	name, generation, s := caller.principal()
	// While rights are being changed they are uncertain, for as long as it takes to wait for a dead server's lease.
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		t, err := ask(ctx, name, generation)
		if errors.Is(err, acl.ErrUncertain) {
			if timing.Sleep(ctx, wait); ctx.Err() == nil {
				continue
			}
		}
		if err == nil && s == nil && caller.peer.Serial != "" {
			revoked, known := r.cache.CertificateRevoked(t, name, caller.peer.Serial)
			if !known {
				err = acl.ErrUncertain
				if timing.Sleep(ctx, wait); ctx.Err() == nil {
					continue
				}
			}
			if revoked {
				err = acl.ErrRevoked
			}
		}
		if err != nil || s == nil {
			return t, r.recode(err)
		}
		known := s.seen.Load()
		if known != nil && *known == t && r.cache.Holds(t) {
			return t, r.recode(s.record.Valid(time.Now()))
		}
		if err := r.checkToken(ctx, s); err != nil {
			return t, r.recode(err)
		}
		if r.cache.Holds(t) { // the record was read while t was valid
			s.seen.Store(&t)
			return t, nil
		}
		if ctx.Err() != nil {
			return t, r.recode(acl.ErrUncertain)
		}
	}
}

// checkToken rereads the record of an access token, which may have been revoked.
func (r *rights) checkToken(ctx context.Context, s *credentialToken) error {
	b, err := r.files.Get(ctx, tokenPath(s.record.ID))
	if err != nil {
		return err
	}
	if b == nil {
		return acl.ErrRevoked
	}
	return s.record.Valid(time.Now())
}

// check returns nil if the principal has a right on the cluster.
func (r *rights) check(ctx context.Context, caller *subject, right acl.Rights) (acl.Ticket, error) {
	return r.ask(ctx, caller, func(ctx context.Context, name string, generation uint64) (acl.Ticket, error) {
		return r.cache.CheckCluster(ctx, name, generation, right)
	})
}

// known returns nil if the principal exists and is enabled.
func (r *rights) known(ctx context.Context, caller *subject) (acl.Ticket, error) {
	return r.ask(ctx, caller, r.cache.Check)
}

// sees reports whether the principal has any right on a table.
func (r *rights) sees(ctx context.Context, caller *subject, tableID uint64) (sees bool, t acl.Ticket, err error) {
	if tableID == metadata.TableID {
		t, err = r.known(ctx, caller)
		return err == nil, t, err
	}
	t, err = r.ask(ctx, caller, func(ctx context.Context, name string, generation uint64) (t acl.Ticket, err error) {
		sees, t, err = r.cache.Sees(ctx, name, generation, tableID)
		return t, err
	})
	return sees, t, err
}

// view returns a table as the principal may see it.
func (r *rights) view(ctx context.Context, caller *subject, s *table.Schema) (v *acl.View, t acl.Ticket, err error) {
	if v, t = r.viewNow(caller, s); v != nil {
		return v, t, nil
	}
	t, err = r.ask(ctx, caller, func(ctx context.Context, name string, generation uint64) (t acl.Ticket, err error) {
		v, t, err = r.cache.View(ctx, name, generation, s)
		return t, err
	})
	if err != nil {
		return nil, t, err
	}
	caller.recentView[s.ID%uint64(len(caller.recentView))].Store(&recentView{v, t})
	return v, t, nil
}

// viewNow is view for callers that must not wait. It returns nil if it would have to.
func (r *rights) viewNow(caller *subject, s *table.Schema) (*acl.View, acl.Ticket) {
	l := caller.recentView[s.ID%uint64(len(caller.recentView))].Load()
	if l == nil || l.view.Schema() != s || !r.holds(caller, l.ticket) {
		return nil, acl.Ticket{}
	}
	return l.view, l.ticket
}

// recode converts an error about rights to its API form.
func (r *rights) recode(err error) error {
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
	if why := r.checkLeader(); why != nil {
		return why
	}
	return fmt.Errorf("%w: rights are unknown until the lock service answers: %s", api.ErrUnavailable, err.Error())
}

// permission converts an acl.DeniedError.
func permission(e *acl.DeniedError) *api.PermissionError {
	return &api.PermissionError{Right: e.Right.String(), Table: e.Table, Family: e.Family, Text: e.Error()}
}

// elementPermission is permission for an error that names an element of a request.
func elementPermission(err error) error {
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
