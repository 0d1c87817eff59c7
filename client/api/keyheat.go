package api

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// KeyHeatRequest holds the parameters of key_heat:
//
//	[table, options?]    options: since_ms, until_ms, prefix, start, end, rows
type KeyHeatRequest struct {
	Options
	Table string
	// Since is the length of the period; 0 means an hour. At most KeyHeatSinceMax.
	Since time.Duration
	// UntilMS is the end of the period, in ms since 1970; 0 means now.
	UntilMS int64
	// Prefix selects the rows that begin with it; empty means all.
	Prefix []byte
	// Start and End bound the rows: start < row <= end; empty is no bound.
	Start, End []byte
	// Rows is the number of ranges of rows; 0 means KeyHeatRows. At most KeyHeatRowsMax.
	Rows int
}

// Bounds of key_heat.
const (
	KeyHeatSinceMax = 14 * 24 * time.Hour
	KeyHeatRows     = 96
	KeyHeatRowsMax  = 256
	// KeyHeatColumnsMax is the number of intervals of a result, KeyHeatNamesMax that of hot rows and of large rows, KeyHeatUsersMax that of the
	// users of a hot row, and KeyHeatEventsMax that of events.
	KeyHeatColumnsMax = 400
	KeyHeatNamesMax   = 32
	KeyHeatUsersMax   = 4
	KeyHeatEventsMax  = 1000
)

// Append encodes the parameters.
func (r *KeyHeatRequest) Append(e *wire.Encoder) {
	n := r.Options.count() + present(r.Prefix) + present(r.Start) + present(r.End)
	for _, v := range []int64{r.Since.Milliseconds(), r.UntilMS, int64(r.Rows)} {
		if v != 0 {
			n++
		}
	}
	e.Array(1 + min(n, 1))
	e.Str(r.Table)
	r.Options.append(e, n)
	appendCount(e, "since_ms", r.Since.Milliseconds())
	appendCount(e, "until_ms", r.UntilMS)
	appendBytes(e, "prefix", r.Prefix)
	appendBytes(e, "start", r.Start)
	appendBytes(e, "end", r.End)
	appendCount(e, "rows", int64(r.Rows))
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *KeyHeatRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodKeyHeat, n, 1, 2); err != nil {
		return err
	}
	*r = KeyHeatRequest{Table: d.Str()}
	if err := r.Options.decode(d, n > 1, r); err != nil {
		return err
	}
	if err := within("rows of key_heat", r.Rows, KeyHeatRowsMax); err != nil {
		return err
	}
	return within("row key bytes", max(len(r.Prefix), len(r.Start), len(r.End)), limitsOf(lim).RowKeyBytes)
}

func (r *KeyHeatRequest) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "since_ms":
		r.Since = millisOption(d, "since_ms", KeyHeatSinceMax)
	case "until_ms":
		r.UntilMS = countOption(d, "until_ms")
	case "prefix":
		r.Prefix = optionalBytes(d)
	case "start":
		r.Start = optionalBytes(d)
	case "end":
		r.End = optionalBytes(d)
	case "rows":
		r.Rows = int(min(countOption(d, "rows"), KeyHeatRowsMax+1))
	default:
		return false
	}
	return true
}

// KeyHeat is the result of key_heat: operations on the rows of a table, by ranges of rows and intervals of time.
type KeyHeat struct {
	Table      string `json:"table"`
	StartMS    int64  `json:"start_ms"` // of the first interval, in ms since 1970
	IntervalMS int64  `json:"interval_ms"`
	Columns    int    `json:"columns"` // intervals
	// Starts and Ends bound the ranges, in order: start < row <= end; an empty bound is none. They have at most 128 bytes of a row, and two more.
	Starts [][]byte `json:"-"`
	Ends   [][]byte `json:"-"`
	// Reads, Writes and their bytes have a value for each range and interval: that of range r in interval c is at r*Columns+c. Within a
	// range they are exact as far as the sample is; their sum is exact.
	Reads      []int64 `json:"reads"`
	Writes     []int64 `json:"writes"`
	ReadBytes  []int64 `json:"read_bytes"`
	WriteBytes []int64 `json:"write_bytes"`
	// ReadMicros and WriteMicros are the time that the reads and writes took, in µs. Nodes of an earlier version, and minutes before an
	// upgrade, have none.
	ReadMicros  []int64 `json:"read_us"`
	WriteMicros []int64 `json:"write_us"`
	// Hot are rows with much of the operations of a tablet in some minute, the hottest first. Large are those of a MiB or more.
	Hot    []HotRow      `json:"hot"`
	Large  []LargeRow    `json:"large"`
	Events []TabletEvent `json:"events"`
	// Silent lists the ids of nodes that did not answer, whose part is missing.
	Silent []string `json:"silent"`
}

// HotRow is a row with much of the operations; the numbers are estimates of what it had while it was hot.
type HotRow struct {
	Row    []byte `json:"-"`
	Reads  int64  `json:"reads"`
	Writes int64  `json:"writes"`
	// Users are those with the most of these operations, the one with the most first. It is empty for callers that may not see the requests of
	// other users, without users, and for what nodes of an earlier version counted.
	Users []HotUser `json:"users,omitempty"`
}

// HotUser is a user of a hot row; the number of operations is an estimate.
type HotUser struct {
	Name string `json:"name"`
	Ops  int64  `json:"ops"`
}

// LargeRow is a row of which much was read or written at once.
type LargeRow struct {
	Row   []byte `json:"-"`
	Bytes int64  `json:"bytes"`
}

// TabletEvent is a change of a tablet: split, merge, load (a node began to serve it), or start (of the node).
type TabletEvent struct {
	AtMS int64  `json:"at_ms"`
	Kind string `json:"kind"`
	Node string `json:"node"` // its name
	Row  []byte `json:"-"`    // where a tablet ends or ended; empty if it has no end
}

// keys is an array of row keys.
type keys struct {
	all  *[][]byte
	what string
	max  int64
}

func (k *keys) clear() { *k.all = [][]byte{} }

func (k *keys) append(e *wire.Encoder) {
	e.Array(len(*k.all))
	for _, b := range *k.all {
		e.Bin(b)
	}
}

func (k *keys) decode(d *wire.Decoder) error {
	return decodeList(d, k.what, k.max, func() error {
		*k.all = append(*k.all, bytes.Clone(d.Bytes()))
		return d.Err()
	})
}

func (k *KeyHeat) fields() fields {
	const cells = KeyHeatRowsMax * KeyHeatColumnsMax
	return fields{
		{"table", &k.Table}, {"start_ms", &k.StartMS}, {"interval_ms", &k.IntervalMS}, {"columns", &k.Columns},
		{"starts", &keys{&k.Starts, "starts", KeyHeatRowsMax}}, {"ends", &keys{&k.Ends, "ends", KeyHeatRowsMax}},
		{"reads", &ints{&k.Reads, "reads", cells}}, {"writes", &ints{&k.Writes, "writes", cells}},
		{"read_bytes", &ints{&k.ReadBytes, "read_bytes", cells}}, {"write_bytes", &ints{&k.WriteBytes, "write_bytes", cells}},
		{"read_us", &ints{&k.ReadMicros, "read_us", cells}}, {"write_us", &ints{&k.WriteMicros, "write_us", cells}},
		{"hot", &list[HotRow]{all: &k.Hot, fields: (*HotRow).fields, what: "hot", max: KeyHeatNamesMax}},
		{"large", &list[LargeRow]{all: &k.Large, fields: (*LargeRow).fields, what: "large", max: KeyHeatNamesMax}},
		{"events", &list[TabletEvent]{all: &k.Events, fields: (*TabletEvent).fields, what: "events", max: KeyHeatEventsMax}},
		{"silent", &texts{&k.Silent, "silent", nodesMax}},
	}
}

func (h *HotRow) fields() fields {
	fs := fields{{"row", &h.Row}, {"reads", &h.Reads}, {"writes", &h.Writes}}
	return append(fs, field{"users", &list[HotUser]{all: &h.Users, fields: (*HotUser).fields, what: "users", max: KeyHeatUsersMax}})
}
func (u *HotUser) fields() fields  { return fields{{"name", &u.Name}, {"ops", &u.Ops}} }
func (l *LargeRow) fields() fields { return fields{{"row", &l.Row}, {"bytes", &l.Bytes}} }
func (t *TabletEvent) fields() fields {
	return fields{{"at_ms", &t.AtMS}, {"kind", &t.Kind}, {"node", &t.Node}, {"row", &t.Row}}
}

// Append encodes the result.
func (k *KeyHeat) Append(e *wire.Encoder) { k.fields().append(e) }

// Decode decodes the result.
func (k *KeyHeat) Decode(d *wire.Decoder) error {
	*k = KeyHeat{}
	if err := k.fields().decode(d); err != nil {
		return err
	}
	if k.Columns < 0 || k.Columns > KeyHeatColumnsMax || len(k.Starts) != len(k.Ends) {
		return malformed("%d columns, %d starts and %d ends", k.Columns, len(k.Starts), len(k.Ends))
	}
	if cells := k.Columns * len(k.Ends); len(k.ReadMicros)+len(k.WriteMicros) == 0 { // from a node of an earlier version
		k.ReadMicros, k.WriteMicros = make([]int64, cells), make([]int64, cells)
	}
	for _, s := range [][]int64{k.Reads, k.Writes, k.ReadBytes, k.WriteBytes, k.ReadMicros, k.WriteMicros} {
		if len(s) != k.Columns*len(k.Ends) {
			return malformed("%d values of %d ranges and %d columns", len(s), len(k.Ends), k.Columns)
		}
	}
	return nil
}

// RangeHeat is the sum of a range of rows over all intervals.
type RangeHeat struct {
	Start, End                           []byte
	Reads, Writes, ReadBytes, WriteBytes int64
	ReadMicros, WriteMicros              int64
}

// Sum returns the sum of range r over the intervals from one up to another, which is not part of it.
func (k *KeyHeat) Sum(r, from, to int) RangeHeat {
	sum := func(s []int64) (n int64) {
		for _, v := range s[r*k.Columns+from : r*k.Columns+to] {
			n += v
		}
		return n
	}
	return RangeHeat{k.Starts[r], k.Ends[r], sum(k.Reads), sum(k.Writes), sum(k.ReadBytes), sum(k.WriteBytes), sum(k.ReadMicros), sum(k.WriteMicros)}
}

// Ranges returns the sums of the ranges without idle ones, those for which first is greater first.
func (k *KeyHeat) Ranges(most int, first func(*RangeHeat) int64) []RangeHeat {
	var all []RangeHeat
	for r := range k.Ends {
		h := k.Sum(r, 0, k.Columns)
		if h.Reads+h.Writes > 0 {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b RangeHeat) int { return cmp.Compare(first(&b), first(&a)) })
	return all[:min(len(all), most)]
}

// Hottest returns the ranges with the most operations, the hottest first, without idle ones.
func (k *KeyHeat) Hottest(most int) []RangeHeat {
	return k.Ranges(most, func(h *RangeHeat) int64 { return h.Reads + h.Writes })
}

// MeanMicros returns the mean of some operations that took a time in all; 0 if there are none.
func MeanMicros(micros, ops int64) int64 {
	if ops <= 0 {
		return 0
	}
	return micros / ops
}
