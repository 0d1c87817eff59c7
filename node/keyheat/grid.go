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
	columns := make([][]heat.Bucket, g.columns())
	for _, p := range g.parts {
		for _, c := range p.columns {
			at := (c.minute - g.from) / g.interval
			if at < 0 || at >= int64(len(columns)) {
				continue
			}
			for _, t := range c.tables {
				for _, b := range t.buckets {
					if b, ok := inPrefix(b, r.Prefix); ok {
						columns[at] = append(columns[at], b)
					}
				}
			}
		}
	}
	k := &api.KeyHeat{Table: r.Table, StartMS: g.from * 60_000, IntervalMS: g.interval * 60_000, Columns: len(columns), Silent: g.silent}
	slices.Sort(k.Silent)
	axis := g.axis(columns, rows, r.Prefix)
	fill(k, axis, columns)
	g.addNames(k, r.Prefix)
	return k
}

// axis returns the ranges of the result. Half of the ranges go to where the data is, and half to where the operations are: so the
// height of a range is a measure of its data, and hot rows among it are not lost.
func (g *grid) axis(columns [][]heat.Bucket, most int, prefix []byte) []heat.Bucket {
	samples := g.dataIn(prefix)
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
		parts[i].ReadBytes, parts[i].WriteBytes = 0, 0
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

// dataIn returns the samples of all nodes' rows as buckets between them, with their bytes as ReadBytes.
func (g *grid) dataIn(prefix []byte) []heat.Bucket {
	var all []heat.Bucket
	for _, p := range g.parts {
		for _, s := range p.samples {
			if bytes.HasPrefix(s.Row, prefix) && len(s.Row) > 0 {
				all = append(all, heat.Bucket{End: s.Row, Sums: heat.Sums{ReadBytes: s.Bytes}})
			}
		}
	}
	slices.SortFunc(all, func(a, b heat.Bucket) int { return bytes.Compare(a.End, b.End) })
	n := 0
	for _, s := range all {
		if n > 0 && bytes.Equal(all[n-1].End, s.End) {
			all[n-1].ReadBytes += s.ReadBytes
			continue
		}
		if s.Start = heat.Below(prefix); n > 0 {
			s.Start = all[n-1].End
		}
		all[n] = s
		n++
	}
	return all[:n]
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
	k.Reads, k.Writes, k.ReadBytes, k.WriteBytes = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for c, buckets := range columns {
		for i := range buckets {
			from, to := heat.Overlap(starts, &buckets[i])
			heat.Spread(buckets[i].Sums, from, to, func(at int, s heat.Sums) {
				at = at*len(columns) + c
				k.Reads[at] += s.Reads
				k.Writes[at] += s.Writes
				k.ReadBytes[at] += s.ReadBytes
				k.WriteBytes[at] += s.WriteBytes
			})
		}
	}
}

// addNames adds hot and large rows with a prefix, and the events.
func (g *grid) addNames(k *api.KeyHeat, prefix []byte) {
	var hot []heat.Hot
	var large []heat.Large
	for _, p := range g.parts {
		for _, c := range p.columns {
			for _, t := range c.tables {
				hot = append(hot, t.hot...)
				for _, l := range t.large {
					if bytes.HasPrefix(l.Row, prefix) {
						large = heat.AddLarge(large, api.KeyHeatNamesMax, l)
					}
				}
				for _, e := range t.events {
					k.Events = append(k.Events, api.TabletEvent{AtMS: e.atMS, Kind: e.kind, Node: p.node, Row: e.row})
				}
			}
		}
	}
	hot = slices.DeleteFunc(hot, func(h heat.Hot) bool { return !bytes.HasPrefix(h.Row, prefix) })
	for _, h := range heat.MergeHot(api.KeyHeatNamesMax, hot) {
		k.Hot = append(k.Hot, api.HotRow(h))
	}
	for _, l := range large {
		k.Large = append(k.Large, api.LargeRow(l))
	}
	slices.SortFunc(k.Events, func(a, b api.TabletEvent) int { return cmp.Compare(a.AtMS, b.AtMS) })
	k.Events = k.Events[max(len(k.Events)-api.KeyHeatEventsMax, 0):]
}
