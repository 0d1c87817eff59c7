package judge

import (
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// createAggregates creates a table with a plain family and aggregate ones.
func (h *history) createAggregates() {
	h.add(workload.Op{Kind: workload.Create, Families: []string{"a1", "max1", "min2", "sum1", "sum2"}})
}

// sum reads the sum of a row; empty means that there is none.
func (h *history) sum(sum string) *workload.Op {
	if sum == "" {
		return h.read("r")
	}
	return h.read("r", "sum2:n="+sum)
}

// aggregateTests are histories of aggregate families.
var aggregateTests = []judged{
	{"aggregate: operands", "", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=5@past0", "operand max1:n=5@past0")
		h.write("r", "operand sum2:n=-7@past0", "operand max1:n=-7@past0")
		h.write("r", "operand sum2:n=1@future0", "operand min2:n=3@past1")
		h.write("r", "operand min2:n=2@past1")
		h.read("r", "max1:n=5", "min2:n=2", "sum2:n=1,-2")
	}},
	{"aggregate: overflow", "", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=9223372036854775807@past0", "operand sum2:n=2@past0")
		h.sum("-9223372036854775807")
	}},
	{"aggregate: an operand is lost", "rows", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=5@past0")
		h.write("r", "operand sum2:n=7@past0")
		h.sum("5")
	}},
	{"aggregate: an operand counts twice", "rows", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=5@past0")
		h.write("r", "operand sum2:n=7@past0")
		h.sum("17")
	}},
	{"aggregate: an operand of unknown outcome counts once", "", func(h *history) {
		h.createAggregates()
		h.unknown("r", "operand sum2:n=5@past0")
		h.write("r", "operand sum2:n=7@past0")
		h.sum("7")
		h.sum("12")
	}},
	{"aggregate: an operand of unknown outcome counts twice", "rows", func(h *history) {
		h.createAggregates()
		h.unknown("r", "operand sum2:n=5@past0")
		h.write("r", "operand sum2:n=7@past0")
		h.sum("17")
	}},
	{"aggregate: an operand is read and lost", "rows", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=7@past0")
		h.unknown("r", "operand sum2:n=5@past0")
		h.sum("12")
		h.sum("7")
	}},
	{"aggregate: deletions", "", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=5@past0")
		h.write("r", "del sum2:n", "operand sum2:n=2@past0")
		h.sum("2")
		h.write("r", "delpast sum2:n")
		h.sum("")
	}},
	{"aggregate: a deleted operand", "rows", func(h *history) {
		h.createAggregates()
		h.write("r", "operand sum2:n=5@past0")
		h.write("r", "delfamily sum2", "operand sum2:n=2@past0")
		h.sum("7")
	}},
	{"aggregate: too many versions", "rows", func(h *history) {
		h.createAggregates()
		h.write("r", slices.Repeat([]string{"operand sum1:n=5@past0", "operand sum1:n=5@past1"}, 2)...)
		h.read("r", "sum1:n=10,10")
	}},
	{"aggregate: the minimum of a lost operand", "rows", func(h *history) {
		h.createAggregates()
		h.write("r", "operand min2:n=5@past0")
		h.write("r", "operand min2:n=2@past0")
		h.read("r", "min2:n=5")
	}},
}
