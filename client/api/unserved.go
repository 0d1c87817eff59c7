package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// UnservedTablets is the result of unserved_tablets: the tablets that no server has had for some seconds, as the
// master knows.
type UnservedTablets struct {
	Total   int64
	Tablets []UnservedTablet // the first of them, UnservedTold at most
}

// UnservedTablet is one of them.
type UnservedTablet struct {
	Table      string // its name; empty if that is not known
	Start, End []byte // it has the rows above Start, up to End; an empty End is no end
	// Node and Server are whom METADATA names as having it; empty: nobody.
	Node, Server string
	Since        time.Duration // for how long at least; seconds on the wire
	Tries        int64         // to have it loaded that have failed, in a row
	Error        string        // of the last, or what it waits for
}

// UnservedTold bounds the tablets of one UnservedTablets.
const UnservedTold = 100

func (u *UnservedTablets) fields() fields {
	return fields{
		{"total", &u.Total},
		{"tablets", &list[UnservedTablet]{all: &u.Tablets, fields: (*UnservedTablet).fields, what: "tablets", max: UnservedTold}},
	}
}

func (u *UnservedTablet) fields() fields {
	return fields{
		{"table", &u.Table}, {"start", &u.Start}, {"end", &u.End}, {"node", &u.Node}, {"server", &u.Server},
		{"since_s", &u.Since}, {"tries", &u.Tries}, {"error", &u.Error},
	}
}

// Append writes the result.
func (u *UnservedTablets) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode reads the result.
func (u *UnservedTablets) Decode(d *wire.Decoder) error {
	*u = UnservedTablets{}
	return u.fields().decode(d)
}
