package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TokenJoin is the kind of tokens with which hosts join the cluster as nodes.
const TokenJoin = "join"

// CreateTokenRequest holds the parameters of create_token:
//
//	[kind, options?]    options: ttl_ms, and of TokenJoin: uses, node
type CreateTokenRequest struct {
	Options
	Kind string
	// TTL is the time for which the token is valid; 0 means the server's default.
	TTL time.Duration
	// Uses is the number of hosts that may join with the token; 0 means one.
	Uses int64
	// Node is the id of the only node that may use the token, for a node whose certificate has
	// expired. If it is empty, the token is for new hosts.
	Node string
}

// Append encodes the parameters.
func (r *CreateTokenRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, set := range []bool{r.TTL != 0, r.Uses != 0, r.Node != ""} {
		if set {
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

// tokenTTLMax is the largest decoded TTL; larger values are reduced to it. Servers accept less.
const tokenTTLMax = 100 * 365 * 24 * time.Hour

// Decode decodes the n parameters in d.
func (r *CreateTokenRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodCreateToken, n, 1, 2); err != nil {
		return err
	}
	*r = CreateTokenRequest{Kind: d.Str()}
	return r.Options.decode(d, n > 1, r)
}

// CreatedToken is the result of create_token.
type CreatedToken struct {
	Text string // the token itself: a secret that the cluster does not store
	Info TokenInfo
}

func (t *CreatedToken) fields() fields {
	return append(fields{{"token", &t.Text}}, t.Info.fields()...)
}

// Append encodes the result.
func (t *CreatedToken) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode decodes the result.
func (t *CreatedToken) Decode(d *wire.Decoder) error {
	*t = CreatedToken{}
	return t.fields().decode(d)
}

// TokenInfo is the stored information about a token.
type TokenInfo struct {
	ID, Kind string
	// CreatedMS and EndsMS are in milliseconds since 1970. An EndsMS of 0 means never.
	CreatedMS, EndsMS int64
	// Uses is the number of remaining uses of a join token, UsedBy the nodes that have used it.
	Uses   int64
	UsedBy []string
	Node   string // the only node that may use it; empty for new hosts
}

func (t *TokenInfo) fields() fields {
	return fields{
		{"id", &t.ID}, {"kind", &t.Kind}, {"created_ms", &t.CreatedMS}, {"ends_ms", &t.EndsMS}, {"uses", &t.Uses},
		{"used_by", &texts{&t.UsedBy, "nodes", tokenUsesMax}}, {"node", &t.Node},
	}
}

const (
	// tokenUsesMax and TokensMax bound what a client decodes, and therefore what a server stores.
	tokenUsesMax = 1000
	TokensMax    = 1000
)

// Tokens is the result of list_tokens, sorted by id.
type Tokens struct{ Tokens []TokenInfo }

func (t *Tokens) fields() fields {
	return fields{{"tokens", &list[TokenInfo]{all: &t.Tokens, fields: (*TokenInfo).fields, what: "tokens", max: TokensMax}}}
}

// Append encodes the result.
func (t *Tokens) Append(e *wire.Encoder) { t.fields().append(e) }

// Decode decodes the result.
func (t *Tokens) Decode(d *wire.Decoder) error {
	*t = Tokens{}
	return t.fields().decode(d)
}
