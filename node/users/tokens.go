package users

import (
	"context"
	"time"

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

// checkTokenLimit returns a *table.LimitError if a user has the maximum number of tokens, and otherwise the expired tokens of all users that are to be
// removed.
func (acc *Service) checkTokenLimit(ctx context.Context, of string) (ended []*token.AccessRecord, err error) {
	all, err := acc.accessTokens(ctx, "")
	if err != nil {
		return nil, err
	}
	kept, since := 0, time.Now().Add(-tokenKept)
	for name, tokens := range all {
		for _, t := range tokens {
			switch {
			case !t.Ends.IsZero() && t.Ends.Before(since):
				ended = append(ended, t)
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

// forgetTokens removes expired tokens. What fails is left for the next time.
func (acc *Service) forgetTokens(ctx context.Context, ended []*token.AccessRecord) {
	if err := acc.deleteTokens(ctx, ended); err != nil {
		acc.Log.Warn("expired access tokens not removed", "err", err)
	}
}
