package node

import (
	"context"
	"time"

	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

const (
	// userTokensMax bounds the access tokens of a user: all are read when one is made or revoked.
	userTokensMax = 1000
	// tokenKept is how long a token is listed that has ended.
	tokenKept = 7 * 24 * time.Hour
	// tokensForgotten bounds those that go when one is made: other changes wait meanwhile.
	tokensForgotten = 100
)

// roomForToken returns a *table.LimitError if a user has as many tokens as one may have, and else those of
// anybody that ended so long ago that they are to go.
func (n *Node) roomForToken(ctx context.Context, of string) (ended []*token.AccessRecord, err error) {
	all, err := n.accessTokens(ctx, "")
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

// forgetTokens takes away tokens that have ended. What it leaves is for the next time.
func (n *Node) forgetTokens(ctx context.Context, ended []*token.AccessRecord) {
	if err := n.deleteTokens(ctx, ended); err != nil {
		n.log.Warn("access tokens that have ended are left over", "error", err)
	}
}
