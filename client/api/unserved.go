package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// UnservedTablets is the result of unserved_tablets: the tablets that no server has served for some
// seconds, as far as the master knows.
type UnservedTablets struct {
	Total   int64
	Tablets []UnservedTablet // the first ones, at most UnservedTabletsMax
}

// UnservedTablet is a tablet that no server serves.
type UnservedTablet struct {
	Table      string // its name; empty if unknown
	Start, End []byte // it holds the rows above Start, up to End; an empty End means no end
	// Node and Server are the assignment in METADATA; empty if the tablet is unassigned.
	Node, Server string
	Since        time.Duration // minimum time without a server; seconds on the wire
	Tries        int64         // consecutive failed attempts to load it
	Error        string        // of the last attempt, or what the tablet waits for
}

// UnservedTabletsMax is the maximum number of tablets in UnservedTablets.
const UnservedTabletsMax = 100

func (u *UnservedTablets) fields() fields {
	return fields{
		{"total", &u.Total},
		{"tablets", &list[UnservedTablet]{all: &u.Tablets, fields: (*UnservedTablet).fields, what: "tablets", max: UnservedTabletsMax}},
	}
}

func (u *UnservedTablet) fields() fields {
	return fields{
		{"table", &u.Table}, {"start", &u.Start}, {"end", &u.End}, {"node", &u.Node}, {"server", &u.Server},
		{"since_s", &u.Since}, {"tries", &u.Tries}, {"error", &u.Error},
	}
}

// Append encodes the result.
func (u *UnservedTablets) Append(e *wire.Encoder) { u.fields().append(e) }

// Decode decodes the result.
func (u *UnservedTablets) Decode(d *wire.Decoder) error {
	*u = UnservedTablets{}
	return u.fields().decode(d)
}
