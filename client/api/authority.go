package api

import (
	"errors"

	"github.com/steledb/stele/internal/wire"
)

// ErrRollover means that the authority's replacement is not at a stage at which it can do what is asked.
var ErrRollover = errors.New("the authority is not being replaced, or not yet so far")

// RotateAuthorityRequest is the parameters of rotate_authority:
//
//	[options?]    options: finish, restart, gossip_key
type RotateAuthorityRequest struct {
	Options
	// Finish ends the stage in which users get new certificates. Restart begins again with another authority, as long as
	// nothing was signed by the new one. Without either the replacement begins, or goes on.
	Finish, Restart bool
	// GossipKey replaces the gossip key instead, and leaves the authority as it is.
	GossipKey bool
}

// Append writes the parameters.
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

// Decode reads the n parameters in d.
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

// waitingMax bounds the nodes that a client reads.
const waitingMax = 100_000

// AuthorityStatus is the result of rotate_authority and authority_status.
type AuthorityStatus struct {
	// Stage is none, trust, sign, renew or forget.
	Stage string
	// Old and New are the fingerprints of the authorities, in hexadecimal: New is empty if the old one is not being replaced.
	Old, New string
	// Waiting are the ids of the nodes that have yet to do what the stage asks.
	Waiting []string
	// StartedMS is when the replacement began, in milliseconds since 1970; 0 if it has not.
	StartedMS int64
}

func (s *AuthorityStatus) fields() fields {
	return fields{{"stage", &s.Stage}, {"old", &s.Old}, {"new", &s.New}, {"waiting", &texts{&s.Waiting, "nodes", waitingMax}}, {"started_ms", &s.StartedMS}}
}

// Append writes the result.
func (s *AuthorityStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode reads the result.
func (s *AuthorityStatus) Decode(d *wire.Decoder) error {
	*s = AuthorityStatus{}
	return s.fields().decode(d)
}
