package api

import "github.com/steledb/stele/internal/wire"

// Kinds of who is at a connection.
const (
	KindPrincipal = "principal"
	KindNode      = "node"
	// KindAnybody is who asks a cluster without certificates: all may do everything there.
	KindAnybody = "anybody"
)

// What a caller has shown.
const (
	ShownCertificate = "certificate"
	ShownToken       = "token"
)

// Whoami is the result of whoami: as whom the caller is known, and what that one may do.
type Whoami struct {
	Kind string // KindPrincipal...
	Name string
	// Cluster is the cluster's id.
	Cluster string
	// Shown is what the caller has shown: ShownCertificate... ID is a certificate's number in
	// hexadecimal, or a token's id. It ends at EndsMS, in milliseconds since 1970; 0 is never.
	Shown, ID string
	EndsMS    int64
	// Grants are those to the principal, and to Everyone.
	Grants []GrantInfo
}

func (w *Whoami) fields() fields {
	return fields{
		{"kind", &w.Kind}, {"name", &w.Name}, {"cluster", &w.Cluster}, {"shown", &w.Shown}, {"id", &w.ID}, {"ends_ms", &w.EndsMS},
		{"grants", &list[GrantInfo]{all: &w.Grants, fields: (*GrantInfo).fields, what: "grants", max: grantsMax}},
	}
}

// Append writes the result.
func (w *Whoami) Append(e *wire.Encoder) { w.fields().append(e) }

// Decode reads the result.
func (w *Whoami) Decode(d *wire.Decoder) error {
	*w = Whoami{}
	return w.fields().decode(d)
}
