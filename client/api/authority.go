package api

import (
	"errors"

	"github.com/steledb/stele/internal/wire"
)

// ErrRollover means that the request does not fit the present stage of the authority's replacement.
var ErrRollover = errors.New("request does not fit the stage of the authority's replacement")

// RotateAuthorityRequest holds the parameters of rotate_authority:
//
//	[options?]    options: finish, restart, gossip_key
type RotateAuthorityRequest struct {
	Options
	// Finish ends the stage in which users get new certificates. Restart starts over with another
	// authority, unless the new one has signed something. Without either, the replacement starts or
	// continues.
	Finish, Restart bool
	// GossipKey replaces the gossip key instead of the authority.
	GossipKey bool
}

// Append encodes the parameters.
func (r *RotateAuthorityRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, b := range []bool{r.Finish, r.Restart, r.GossipKey} {
		if b {
			n++
		}
	}
	e.Array(min(n, 1))
	r.Options.append(e, n)
	for _, o := range []struct {
		key string
		set bool
	}{{"finish", r.Finish}, {"restart", r.Restart}, {"gossip_key", r.GossipKey}} {
		if o.set {
			e.Str(o.key)
			e.Bool(true)
		}
	}
}

// Decode decodes the n parameters in d.
func (r *RotateAuthorityRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodRotateAuthority, n, 0, 1); err != nil {
		return err
	}
	*r = RotateAuthorityRequest{}
	return r.Options.decode(d, n > 0, r)
}

func (r *RotateAuthorityRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "finish":
		r.Finish = d.Bool()
	case "restart":
		r.Restart = d.Bool()
	case "gossip_key":
		r.GossipKey = d.Bool()
	default:
		return false
	}
	return true
}

// waitingMax is the maximum number of nodes that a client decodes.
const waitingMax = 100_000

// AuthorityStatus is the result of rotate_authority and authority_status.
type AuthorityStatus struct {
	// Stage is none, trust, sign, renew or forget.
	Stage string `json:"stage"`
	// Old and New are the fingerprints of the authorities, in hexadecimal. New is empty if no
	// replacement is in progress.
	Old string `json:"old"`
	New string `json:"new,omitempty"`
	// Waiting lists the ids of the nodes that have not completed the stage.
	Waiting []string `json:"waiting"`
	// StartedMS is when the replacement started, in milliseconds since 1970; 0 if there is none.
	StartedMS int64 `json:"started_ms,omitempty"`
}

func (s *AuthorityStatus) fields() fields {
	return fields{{"stage", &s.Stage}, {"old", &s.Old}, {"new", &s.New}, {"waiting", &texts{&s.Waiting, "nodes", waitingMax}}, {"started_ms", &s.StartedMS}}
}

// Append encodes the result.
func (s *AuthorityStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *AuthorityStatus) Decode(d *wire.Decoder) error {
	*s = AuthorityStatus{}
	return s.fields().decode(d)
}
