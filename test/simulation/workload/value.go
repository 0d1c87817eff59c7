package workload

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A value has a name, which is unique, a bar, and bytes that follow from the name. The name is
// "client.number.bytes".

// valueName returns the name of a value of n bytes, or a little more.
func valueName(of, number, n int) string { return fmt.Sprintf("%d.%d.%d", of, number, n) }

// Contents returns the bytes of the value with that name.
func Contents(name string) []byte {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	b := append([]byte(name), '|')
	h := fnv.New64a()
	h.Write(b)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	for len(b) < n {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// nameOf returns the name of a value with those contents.
func nameOf(contents []byte) string {
	name, _, found := strings.Cut(string(contents), "|")
	if !found || string(Contents(name)) != string(contents) {
		return fmt.Sprintf("corrupt: %d bytes: %.40q", len(contents), contents)
	}
	return name
}

// Qualifiers of columns that are not set but counted and appended to.
const (
	counterQualifier = "n"
	logQualifier     = "log"
)

// Counter reports whether a column is one that is incremented. The values of others are all different.
func Counter(column string) bool { return strings.HasSuffix(column, ":"+counterQualifier) }

// IsLog reports whether a column is one that is appended to.
func IsLog(column string) bool { return strings.HasSuffix(column, ":"+logQualifier) }

// valueText returns a value of a column as a history has it.
func valueText(family, qualifier string, value []byte) string {
	switch {
	case isSketch(family) && qualifier == counterQualifier:
		return sketchText(value)
	case qualifier == counterQualifier && len(value) == 8:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(value)), 10)
	case qualifier == counterQualifier:
		return fmt.Sprintf("corrupt: %.40q", value)
	case qualifier == logQualifier:
		return string(value)
	}
	return nameOf(value)
}

// cells returns the cells of a row as the history has them.
func (h *History) cells(row *table.Row) (cells []Cell) {
	if row == nil {
		return nil
	}
	for i := range row.Cells {
		c := &row.Cells[i]
		column, text := client.ColumnName(c), valueText(c.Family, string(c.Qualifier), c.Value)
		if n := len(cells); n > 0 && cells[n-1].Column == column {
			cells[n-1].Values, cells[n-1].Stamps = append(cells[n-1].Values, text), append(cells[n-1].Stamps, h.stamp(c.Timestamp))
			continue
		}
		cells = append(cells, Cell{column, []string{text}, []int64{h.stamp(c.Timestamp)}})
	}
	return cells
}

// FamilyVersions returns the number of versions that a family keeps, which is the last digit of its
// name. So it follows from the name in each life of the family.
func FamilyVersions(family string) int { return int(family[len(family)-1] - '0') }
