package users

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"time"

	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

const (
	// userTokensMax bounds the access tokens of a user: all are read when one is created or revoked.
	userTokensMax = 1000
	// tokenKept is how long an expired token is listed.
	tokenKept = 7 * 24 * time.Hour
	// tokensForgotten bounds the expired tokens that are removed when one is created: other changes wait meanwhile.
	tokensForgotten = 100
)

// tokens is the records of access tokens that the lock service stores, a file each.
type tokens struct {
	log     *slog.Logger
	catalog *namespace.Catalog
	meta    *namespace.Access
	changes *changes.Changes
}

// list returns the access tokens of one user, or of all users, by user. Unreadable records are skipped: they
// authenticate no client, and must not keep other tokens from being revoked.
func (t *tokens) list(ctx context.Context, of string) (map[string][]*token.AccessRecord, error) {
	return t.listBut(ctx, of, func(name string, err error) error {
		t.log.Warn("access token record unreadable", "token", name, "err", err)
		return nil
	})
}

// listAll is list, but fails if a record is unreadable.
func (t *tokens) listAll(ctx context.Context, of string) (map[string][]*token.AccessRecord, error) {
	return t.listBut(ctx, of, func(_ string, err error) error { return err })
}

// listBut returns access tokens by user. It skips unreadable records for which bad returns nil.
func (t *tokens) listBut(ctx context.Context, of string, bad func(name string, err error) error) (map[string][]*token.AccessRecord, error) {
	names, err := t.catalog.List(ctx, authz.TokensDir)
	if err != nil {
		return nil, err
	}
	all := map[string][]*token.AccessRecord{}
	for _, name := range names {
		f, err := t.meta.Get(ctx, path.Join(authz.TokensDir, name))
		if errors.Is(err, metaapi.ErrNotFound) { // revoked meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := token.DecodeAccess(f.Data)
		if err != nil {
			if err := bad(name, err); err != nil {
				return nil, err
			}
			continue
		}
		if of == "" || of == r.Principal {
			all[r.Principal] = append(all[r.Principal], r)
		}
	}
	return all, nil
}

// delete deletes access tokens.
func (t *tokens) delete(ctx context.Context, all []*token.AccessRecord) error {
	for _, r := range all {
		if err := t.changes.DeleteAsMaster(ctx, authz.TokenPath(r.ID)); err != nil {
			return err
		}
	}
	return nil
}

// checkLimit returns a *table.LimitError if a user has the maximum number of tokens, and otherwise the expired tokens of all users that are to be
// removed.
func (t *tokens) checkLimit(ctx context.Context, of string) (ended []*token.AccessRecord, err error) {
	all, err := t.list(ctx, "")
	if err != nil {
		return nil, err
	}
	kept, since := 0, time.Now().Add(-tokenKept)
	for name, tokens := range all {
		for _, r := range tokens {
			switch {
			case !r.Ends.IsZero() && r.Ends.Before(since):
				ended = append(ended, r)
			case name == of:
				kept++
			}
		}
	}
	if kept >= userTokensMax {
		return nil, &table.LimitError{What: "access tokens of a user", Limit: userTokensMax, Got: int64(kept) + 1}
	}
	return ended[:min(len(ended), tokensForgotten)], nil
}

// deleteEnded deletes expired tokens. What fails is left for the next time.
func (t *tokens) deleteEnded(ctx context.Context, ended []*token.AccessRecord) {
	if err := t.delete(ctx, ended); err != nil {
		t.log.Warn("expired access tokens not removed", "err", err)
	}
}
