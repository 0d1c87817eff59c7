package api

import "github.com/steledb/stele/internal/wire"

// Kinds of callers.
const (
	KindPrincipal = "principal"
	KindNode      = "node"
	// KindAnonymous is a caller of a cluster without certificates, where every client has all rights.
	KindAnonymous = "anybody"
)

// Kinds of credentials.
const (
	ShownCertificate = "certificate"
	ShownToken       = "token"
)

// Whoami is the result of whoami: the caller's identity and rights.
type Whoami struct {
	Kind string // KindPrincipal...
	Name string
	// Cluster is the cluster's id.
	Cluster string
	// Shown is the kind of the caller's credential, such as ShownCertificate. ID is a certificate's
	// serial number in hexadecimal, or a token's id. EndsMS is when the credential expires, in
	// milliseconds since 1970; 0 means never.
	Shown, ID string
	EndsMS    int64
	// Grants are those to the principal and to Everyone.
	Grants []GrantInfo
}

func (w *Whoami) fields() fields {
	return fields{
		{"kind", &w.Kind}, {"name", &w.Name}, {"cluster", &w.Cluster}, {"shown", &w.Shown}, {"id", &w.ID}, {"ends_ms", &w.EndsMS},
		{"grants", &list[GrantInfo]{all: &w.Grants, fields: (*GrantInfo).fields, what: "grants", max: grantsMax}},
	}
}

// Append encodes the result.
func (w *Whoami) Append(e *wire.Encoder) { w.fields().append(e) }

// Decode decodes the result.
func (w *Whoami) Decode(d *wire.Decoder) error {
	*w = Whoami{}
	return w.fields().decode(d)
}
