package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TokenJoin is the kind of tokens that let hosts become nodes.
const TokenJoin = "join"

// CreateTokenRequest is the parameters of create_token:
//
//	[kind, options?]    options: ttl_ms, and of TokenJoin: uses, node
type CreateTokenRequest struct {
	Options
	Kind string
	// TTL is how long the token can be used; 0 is the server's default.
	TTL time.Duration
	// Uses is how many hosts may join with it; 0 is one.
	Uses int64
	// Node, unless empty, is the id of the node that the token is for: one whose certificate has
	// ended. Others are for hosts that are new.
	Node string
}

// Append writes the parameters.
func (r *CreateTokenRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, given := range []bool{r.TTL != 0, r.Uses != 0, r.Node != ""} {
		if given {
			n++
		}
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Kind)
	r.Options.append(e, n)
	appendCount(e, "ttl_ms", wholeMillis(r.TTL))
	appendCount(e, "uses", r.Uses)
	if r.Node != "" {
		e.Str("node")
		e.Str(r.Node)
	}
}

func (r *CreateTokenRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "ttl_ms":
		r.TTL = millisOption(d, "ttl_ms", tokenTTLMax)
	case "uses":
		r.Uses = countOption(d, "uses")
	case "node":
		r.Node = textOption(d, "node")
	default:
		return false
	}
	return true
}

// tokenTTLMax bounds what is read: what a server takes is less.
const tokenTTLMax = 100 * 365 * 24 * time.Hour

// Decode reads the n parameters in d.
func (r *CreateTokenRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateToken, n, 1, 2); err != nil {
		return err
	}
	*r = CreateTokenRequest{Kind: d.Str()}
	return r.Options.decode(d, n > 1, r)
}

// CreatedToken is the result of create_token.
type CreatedToken struct {
	Text string // the token itself: a secret, which is kept nowhere
	Info TokenInfo
}

func (t *CreatedToken) fields() fields {
	return append(fields{{"token", &t.Text}}, t.Info.fields()...)
}

// Append writes the result.
func (t *CreatedToken) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode reads the result.
func (t *CreatedToken) Decode(d *wire.Decoder) error {
	*t = CreatedToken{}
	return t.fields().decode(d)
}

// TokenInfo is what the cluster knows of a token.
type TokenInfo struct {
	ID, Kind string
	// CreatedMS and EndsMS are in milliseconds since 1970; EndsMS 0 is never.
	CreatedMS, EndsMS int64
	// Uses is how often a join token may still be used, UsedBy the nodes that have.
	Uses   int64
	UsedBy []string
	Node   string // the only node that may use it; empty for new ones
}

func (t *TokenInfo) fields() fields {
	return fields{
		{"id", &t.ID}, {"kind", &t.Kind}, {"created_ms", &t.CreatedMS}, {"ends_ms", &t.EndsMS}, {"uses", &t.Uses},
		{"used_by", &texts{&t.UsedBy, "nodes", tokenUsesMax}}, {"node", &t.Node},
	}
}

const (
	// tokenUsesMax and TokensMax bound what a client reads, and so what a server keeps.
	tokenUsesMax = 1000
	TokensMax    = 1000
)

// Tokens is the result of list_tokens, in order of their ids.
type Tokens struct{ Tokens []TokenInfo }

func (t *Tokens) fields() fields {
	return fields{{"tokens", &list[TokenInfo]{all: &t.Tokens, fields: (*TokenInfo).fields, what: "tokens", max: TokensMax}}}
}

// Append writes the result.
func (t *Tokens) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode reads the result.
func (t *Tokens) Decode(d *wire.Decoder) error {
	*t = Tokens{}
	return t.fields().decode(d)
}
