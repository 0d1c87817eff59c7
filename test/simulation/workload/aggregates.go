package workload

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/table/hll"
)

// aggregates are the aggregates of families. The name of such a family begins with that of its aggregate, and ends with the number of versions
// that it keeps. Its only column is that of counters.
var aggregates = [...]table.Aggregate{table.AggregateSum, table.AggregateMin, table.AggregateMax, table.AggregateHLL}

// newAggregates returns up to two aggregate families of a table.
func newAggregates(r *rand.Rand) (families []table.FamilySpec) {
	first := r.IntN(len(aggregates))
	for i := range r.IntN(3) {
		f := newFamily(r, 10+i) // in groups that other families do not have
		a := aggregates[(first+i)%len(aggregates)]
		f.Name, f.Aggregate = fmt.Sprintf("%v%d", a, FamilyVersions(f.Name)), &a
		families = append(families, f)
	}
	return families
}

// aggregates returns the table's aggregate families, which are the last ones.
func (t *TablePlan) aggregates() []table.FamilySpec {
	for i := range t.Families {
		if t.Families[i].Aggregate != nil {
			return t.Families[i:]
		}
	}
	return nil
}

// operands returns operands for cells of a row, mostly of one column, sometimes after a deletion. A table without aggregate families gets a set.
func (c *rowClient) operands(t *TablePlan) (changes []Change) {
	families := t.aggregates()
	if len(families) == 0 {
		return c.sets(t, 1)
	}
	column := func() string { return families[c.r.IntN(len(families))].Name + ":" + counterQualifier }
	switch n := c.r.IntN(20); {
	case n == 0:
		changes = append(changes, Change{Kind: DeleteColumn, Column: column()})
	case n == 1:
		changes = append(changes, Change{Kind: DeleteVersions, Column: column(), From: math.MinInt64, To: serverBound})
	case n < 5:
		changes = append(changes, c.sets(t, 1)...)
	}
	for range 1 + c.r.IntN(3)*c.r.IntN(2) {
		changes = append(changes, Change{Kind: Operand, Column: column(), N: c.operand(), At: c.explicit()})
	}
	return changes
}

// operand returns an operand that no other operation has. Some sums of them wrap around.
func (c *rowClient) operand() int64 {
	n := int64(c.history.number())<<8 + c.r.Int64N(256)
	switch c.r.IntN(8) {
	case 0:
		return math.MaxInt64 - n
	case 1, 2, 3:
		return -n
	}
	return n
}

// isSketch reports whether the cells of a family, or column, are sketches. These count what was added, so that they show an operand that is folded twice.
func isSketch(family string) bool { return strings.HasPrefix(family, table.AggregateHLL.String()) }

// sketchText returns a sketch as a history has it.
func sketchText(sketch []byte) string { return "sketch " + hex.EncodeToString(sketch) }

// sketchOf returns the sketch of an operand.
func sketchOf(operand int64) []byte { return hll.AppendOne(nil, operand) }

// OperandText returns an operand of a column as a change stream shows it.
func OperandText(x Change) string {
	switch {
	case x.Value != "":
		return x.Value
	case isSketch(x.Column):
		return sketchText(sketchOf(x.N))
	}
	return strconv.FormatInt(x.N, 10)
}

// FoldedText is Folded for an operand as a change stream shows it.
func FoldedText(family, before, operand string) string {
	if isSketch(family) {
		return mergedSketch(before, operand)
	}
	n, err := strconv.ParseInt(operand, 10, 64)
	if err != nil {
		return operand // it is corrupt
	}
	return Folded(family, before, n)
}

// Folded returns the value of a cell of an aggregate family after an operand; before is empty if there was none. Values are as Cell has them.
func Folded(family, before string, operand int64) string {
	if isSketch(family) {
		return foldedSketch(before, operand)
	}
	if before == "" {
		return strconv.FormatInt(operand, 10)
	}
	n, _ := strconv.ParseInt(before, 10, 64) // a corrupt one was reported where it was read
	switch family[:3] {
	case "sum":
		n += operand
	case "min":
		n = min(n, operand)
	case "max":
		n = max(n, operand)
	default:
		panic("BUG: an operand in the family " + family)
	}
	return strconv.FormatInt(n, 10)
}

func foldedSketch(before string, operand int64) string {
	return mergedSketch(before, sketchText(sketchOf(operand)))
}

// mergedSketch returns the sketch of what is in any of some sketches, of which empty ones have nothing.
func mergedSketch(all ...string) string {
	var s hll.Sketch
	for _, one := range all {
		if text, found := strings.CutPrefix(one, "sketch "); found {
			sketch, err := hex.DecodeString(text)
			if err = errors.Join(err, s.Merge(sketch)); err != nil {
				return fmt.Sprintf("corrupt: %.40q: %v", one, err)
			}
		}
	}
	return sketchText(s.Append(nil))
}
