package keyheat

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/heat"
)

// unionMax is the number of ranges from which those of a result are made.
const unionMax = 4096

// grid makes the result of key_heat from the parts of nodes.
type grid struct {
	period
	parts  []*part
	silent []string
}

func newGrid(p period) *grid { return &grid{period: p} }

// result returns the result of a request.
func (g *grid) result(r *api.KeyHeatRequest) *api.KeyHeat {
	rows := cmp.Or(r.Rows, api.KeyHeatRows)
	of := selectionOf(r, g.parts)
	columns := make([][]heat.Bucket, g.columns())
	for _, p := range g.parts {
		for _, c := range p.columns {
			at := (c.minute - g.from) / g.interval
			if at < 0 || at >= int64(len(columns)) {
				continue
			}
			for _, t := range c.tables {
				for _, b := range t.buckets {
					if b, ok := of.part(b); ok {
						columns[at] = append(columns[at], b)
					}
				}
			}
		}
	}
	k := &api.KeyHeat{Table: r.Table, StartMS: g.from * 60_000, IntervalMS: g.interval * 60_000, Columns: len(columns), Silent: g.silent}
	slices.Sort(k.Silent)
	axis := axisOf(columns, rows, of)
	fill(k, axis, columns)
	g.addNames(k, of)
	return k
}

// axisOf returns the ranges of the result. Half of the ranges go to where the data is, and half to where the operations are: so the
// height of a range is a measure of its data, and hot rows among it are not lost.
func axisOf(columns [][]heat.Bucket, most int, of *selection) []heat.Bucket {
	samples := of.dataIn()
	parts := union(append(columns, samples))
	data := make([]float64, len(parts))
	total, ops := 0.0, 0.0
	for _, s := range samples {
		at, _ := slices.BinarySearchFunc(parts, s.End, func(p heat.Bucket, row []byte) int {
			if len(p.End) == 0 {
				return 1
			}
			return bytes.Compare(p.End, row)
		})
		if at < len(parts) {
			data[at] += float64(s.ReadBytes)
			total += float64(s.ReadBytes)
		}
	}
	for i := range parts {
		ops += float64(parts[i].Ops())
	}
	return cutAxis(parts, most, func(i int) float64 {
		weight := 0.0
		if ops > 0 {
			weight += float64(parts[i].Ops()) / ops
		}
		if total > 0 {
			return weight + data[i]/total
		}
		return weight + 1/float64(len(parts))
	})
}

// union returns the sums of lists by their bounds. It joins a few lists at a time, so that its work is in proportion to them.
func union(lists [][]heat.Bucket) []heat.Bucket {
	const atOnce = 8
	for len(lists) > 1 {
		var joined [][]heat.Bucket
		for some := range slices.Chunk(lists, atOnce) {
			joined = append(joined, heat.Merge(unionMax, some...))
		}
		lists = joined
	}
	return heat.Merge(unionMax, lists...)
}

// cutAxis joins ranges to most or fewer of about the same weight.
func cutAxis(parts []heat.Bucket, most int, weight func(i int) float64) []heat.Bucket {
	total := 0.0
	for i := range parts {
		total += weight(i)
	}
	axis := cutAt(parts, total/float64(most), weight)
	for target := total / float64(most); len(axis) > most; {
		target *= 1.05
		axis = cutAt(parts, target, weight)
	}
	for i := range axis[:max(len(axis)-1, 0)] { // without gaps
		axis[i].End = axis[i+1].Start
	}
	return axis
}

// cutAt joins ranges while their weight is target or less.
func cutAt(parts []heat.Bucket, target float64, weight func(i int) float64) (axis []heat.Bucket) {
	sum := 0.0
	for i := range parts {
		w := weight(i)
		if n := len(axis); n > 0 && sum+w <= target {
			axis[n-1].End, sum = parts[i].End, sum+w
			continue
		}
		axis, sum = append(axis, heat.Bucket{Start: parts[i].Start, End: parts[i].End}), w
	}
	return axis
}

// fill adds the operations of the columns to the ranges of k. The sum of the ranges is that of the buckets (KH1).
func fill(k *api.KeyHeat, axis []heat.Bucket, columns [][]heat.Bucket) {
	starts := make([][]byte, len(axis))
	for i := range axis {
		starts[i] = axis[i].Start
		k.Starts, k.Ends = append(k.Starts, axis[i].Start), append(k.Ends, axis[i].End)
	}
	n := len(axis) * len(columns)
	for _, v := range []*[]int64{&k.Reads, &k.Writes, &k.ReadBytes, &k.WriteBytes, &k.ReadMicros, &k.WriteMicros} {
		*v = make([]int64, n)
	}
	for c, buckets := range columns {
		for i := range buckets {
			from, to := heat.Overlap(starts, &buckets[i])
			heat.Spread(buckets[i].Sums, from, to, func(at int, s heat.Sums) {
				at = at*len(columns) + c
				k.Reads[at] += s.Reads
				k.Writes[at] += s.Writes
				k.ReadBytes[at] += s.ReadBytes
				k.WriteBytes[at] += s.WriteBytes
				k.ReadMicros[at] += s.ReadMicros
				k.WriteMicros[at] += s.WriteMicros
			})
		}
	}
}

// addNames adds the selected hot and large rows, and the events.
func (g *grid) addNames(k *api.KeyHeat, of *selection) {
	var hot []heat.Hot
	var large []heat.Large
	for _, p := range g.parts {
		for _, c := range p.columns {
			for _, t := range c.tables {
				hot = append(hot, t.hot...)
				for _, l := range t.large {
					if of.has(l.Row) {
						large = heat.AddLarge(large, api.KeyHeatNamesMax, l)
					}
				}
				for _, e := range t.events {
					k.Events = append(k.Events, api.TabletEvent{AtMS: e.atMS, Kind: e.kind, Node: p.node, Row: e.row})
				}
			}
		}
	}
	hot = slices.DeleteFunc(hot, func(h heat.Hot) bool { return !of.has(h.Row) })
	for _, h := range heat.MergeHot(api.KeyHeatNamesMax, hot) {
		row := api.HotRow{Row: h.Row, Reads: h.Reads, Writes: h.Writes}
		for _, u := range h.Users {
			row.Users = append(row.Users, api.HotUser(u))
		}
		k.Hot = append(k.Hot, row)
	}
	for _, l := range large {
		k.Large = append(k.Large, api.LargeRow(l))
	}
	slices.SortFunc(k.Events, func(a, b api.TabletEvent) int { return cmp.Compare(a.AtMS, b.AtMS) })
	k.Events = k.Events[max(len(k.Events)-api.KeyHeatEventsMax, 0):]
}
