package health

import (
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// HeatMeasure is a quantity that a map of keys shows.
type HeatMeasure struct {
	Name string
	Word string // the name on the command line
	Unit string // of the values: count, bytes or micros
	What string // a value is so many of these
	Of   func(h *api.RangeHeat) int64
}

// HeatMeasures are the quantities of a map; the first one is the default.
var HeatMeasures = []HeatMeasure{
	{"reads and writes", "ops", "count", "reads and writes", func(h *api.RangeHeat) int64 { return h.Reads + h.Writes }},
	{"reads", "reads", "count", "reads", func(h *api.RangeHeat) int64 { return h.Reads }},
	{"writes", "writes", "count", "writes", func(h *api.RangeHeat) int64 { return h.Writes }},
	{"bytes read", "read-bytes", "bytes", "read", func(h *api.RangeHeat) int64 { return h.ReadBytes }},
	{"bytes written", "written-bytes", "bytes", "written", func(h *api.RangeHeat) int64 { return h.WriteBytes }},
	{"time of a read", "read-time", "micros", "a read", func(h *api.RangeHeat) int64 { return api.MeanMicros(h.ReadMicros, h.Reads) }},
	{"time of a write", "write-time", "micros", "a write", func(h *api.RangeHeat) int64 { return api.MeanMicros(h.WriteMicros, h.Writes) }},
}

// HeatWords returns the names of the quantities on the command line, as text.
func HeatWords() string {
	var all []string
	for i := range HeatMeasures {
		all = append(all, HeatMeasures[i].Word)
	}
	return strings.Join(all, ", ")
}

// Cells returns the quantity of each range and interval of a map, in the order of ranges, and the greatest. If the map has more intervals
// than width, neighbours are put together.
func (m *HeatMeasure) Cells(k *client.KeyHeat, width int) (cells []int64, most int64) {
	width = min(k.Columns, width)
	for r := range k.Ends {
		for x := range width {
			h := k.Sum(r, (x*k.Columns+width-1)/width, ((x+1)*k.Columns+width-1)/width)
			n := m.Of(&h)
			cells, most = append(cells, n), max(most, n)
		}
	}
	return cells, most
}
