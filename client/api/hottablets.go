package api

import (
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// HotTabletsRequest holds the parameters of hot_tablets:
//
//	[options?]    options: since_ms, until_ms, most
type HotTabletsRequest struct {
	Options
	// Since is the length of the period; 0 means an hour. At most KeyHeatSinceMax.
	Since time.Duration
	// UntilMS is the end of the period, in ms since 1970; 0 means now.
	UntilMS int64
	// Most is the number of tablets to return; 0 means HotTablets. At most HotTabletsMax.
	Most int
}

// Bounds of hot_tablets.
const (
	HotTablets    = 20
	HotTabletsMax = 100
)

// Append encodes the parameters.
func (r *HotTabletsRequest) Append(e *wire.Encoder) {
	n := r.Options.count()
	for _, v := range []int64{r.Since.Milliseconds(), r.UntilMS, int64(r.Most)} {
		if v != 0 {
			n++
		}
	}
	e.Array(min(n, 1))
	r.Options.append(e, n)
	appendCount(e, "since_ms", r.Since.Milliseconds())
	appendCount(e, "until_ms", r.UntilMS)
	appendCount(e, "most", int64(r.Most))
}

// Decode decodes the n parameters in d.
func (r *HotTabletsRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodHotTablets, n, 0, 1); err != nil {
		return err
	}
	*r = HotTabletsRequest{}
	if err := r.Options.decode(d, n > 0, r); err != nil {
		return err
	}
	return within("tablets of hot_tablets", r.Most, HotTabletsMax)
}

func (r *HotTabletsRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "since_ms":
		r.Since = millisOption(d, "since_ms", KeyHeatSinceMax)
	case "until_ms":
		r.UntilMS = countOption(d, "until_ms")
	case "most":
		r.Most = int(min(countOption(d, "most"), HotTabletsMax+1))
	default:
		return false
	}
	return true
}

// HotTabletList is the result of hot_tablets: the tablets with the most operations on rows, the hottest first.
type HotTabletList struct {
	StartMS int64 `json:"start_ms"` // of the period, in ms since 1970
	EndMS   int64 `json:"end_ms"`
	// Ops is the number of operations on all tables that the caller may read.
	Ops     int64       `json:"ops"`
	Tablets []HotTablet `json:"tablets"`
	// TableIDs are the tables that are counted, in ascending order. Nodes of an earlier version return none.
	TableIDs []int64 `json:"table_ids"`
	// Silent lists the ids of nodes that did not answer, whose part is missing.
	Silent []string `json:"silent"`
}

// HotTablet is a tablet as it is now, and the operations on its rows. They are exact as far as the samples of rows are.
type HotTablet struct {
	Table   string `json:"table"`
	TableID uint64 `json:"table_id"`
	Node    string `json:"node"` // the name of the node that serves it, or its id; empty if there is none
	// Start and End bound its rows: start < row <= end; an empty bound is none.
	Start      []byte `json:"-"`
	End        []byte `json:"-"`
	Reads      int64  `json:"reads"`
	Writes     int64  `json:"writes"`
	ReadBytes  int64  `json:"read_bytes"`
	WriteBytes int64  `json:"write_bytes"`
	// ReadMicros and WriteMicros are the time that the reads and writes took, in µs; 0 from nodes of an earlier version.
	ReadMicros  int64 `json:"read_us"`
	WriteMicros int64 `json:"write_us"`
}

// Share returns the tablet's share of all operations, from 0 to 1.
func (l *HotTabletList) Share(t *HotTablet) float64 {
	if l.Ops == 0 {
		return 0
	}
	return float64(t.Reads+t.Writes) / float64(l.Ops)
}

// HasAll reports whether a tablet of a table had no operations if it is not in the list: the list has all operations, and the table is counted.
func (l *HotTabletList) HasAll(tableID uint64) bool {
	left := l.Ops
	for i := range l.Tablets {
		left -= l.Tablets[i].Reads + l.Tablets[i].Writes
	}
	_, counted := slices.BinarySearch(l.TableIDs, int64(tableID))
	return counted && left == 0 && len(l.Silent) == 0
}

// Seconds returns the length of the period.
func (l *HotTabletList) Seconds() float64 { return float64(l.EndMS-l.StartMS) / 1000 }

// hotTablesMax is the number of tables that a client accepts.
const hotTablesMax = 1_000_000

func (l *HotTabletList) fields() fields {
	return fields{
		{"start_ms", &l.StartMS}, {"end_ms", &l.EndMS}, {"ops", &l.Ops},
		{"tablets", &list[HotTablet]{all: &l.Tablets, fields: (*HotTablet).fields, what: "tablets", max: HotTabletsMax}},
		{"table_ids", &ints{&l.TableIDs, "table ids", hotTablesMax}}, {"silent", &texts{&l.Silent, "silent", nodesMax}},
	}
}

func (t *HotTablet) fields() fields {
	return fields{
		{"table", &t.Table}, {"table_id", &t.TableID}, {"node", &t.Node}, {"start", &t.Start}, {"end", &t.End}, {"reads", &t.Reads}, {"writes", &t.Writes},
		{"read_bytes", &t.ReadBytes}, {"write_bytes", &t.WriteBytes}, {"read_us", &t.ReadMicros}, {"write_us", &t.WriteMicros},
	}
}

// Append encodes the result.
func (l *HotTabletList) Append(e *wire.Encoder) { l.fields().append(e) }

// Decode decodes the result.
func (l *HotTabletList) Decode(d *wire.Decoder) error {
	*l = HotTabletList{}
	return l.fields().decode(d)
}
