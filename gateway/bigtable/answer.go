package bigtable

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steledb/stele/table"
)

// Fields of google.bigtable.v2.Row, Family, Column and Cell.
const (
	rowKey      = 1
	rowFamilies = 2

	familyName    = 1
	familyColumns = 2

	columnQualifier = 1
	columnCells     = 2

	cellTimestamp = 1
	cellValue     = 2
	cellLabels    = 3
)

// Fields of google.bigtable.v2.SessionResponse, VirtualRpcResponse and what these contain.
const (
	responseVirtual = 2

	virtualID      = 1
	virtualCluster = 2
	virtualPayload = 3
	virtualStats   = 4

	statsLatency = 1

	durationSeconds = 1
	durationNanos   = 2

	payloadRead   = 1 // of a TableResponse
	payloadMutate = 2
	readRowRow    = 1
)

// answer is that of a virtual RPC that succeeded: a row, or nil, or that one was mutated.
type answer struct {
	row     *table.Row
	mutated bool
}

// field returns the size of a field of n bytes.
func field(n int) int { return tagBytes + protowire.SizeBytes(n) }

// integer returns the size of an integer, which is absent if it is 0.
func integer(v uint64) int {
	if v == 0 {
		return 0
	}
	return tagBytes + protowire.SizeVarint(v)
}

// ofFamily returns how many of the cells, from the first, are of one family.
func ofFamily(cells []table.Cell) int {
	n := 1
	for n < len(cells) && cells[n].Family == cells[0].Family {
		n++
	}
	return n
}

// ofColumn returns how many of the cells of one family, from the first, are of one column.
func ofColumn(cells []table.Cell) int {
	n := 1
	for n < len(cells) && string(cells[n].Qualifier) == string(cells[0].Qualifier) {
		n++
	}
	return n
}

func cellSize(c *table.Cell) int {
	n := integer(uint64(c.Timestamp)) + bytesSize(len(c.Value))
	for _, l := range c.Labels {
		n += field(len(l))
	}
	return n
}

func columnSize(cells []table.Cell) int {
	n := bytesSize(len(cells[0].Qualifier))
	for i := range cells {
		n += field(cellSize(&cells[i]))
	}
	return n
}

func familySize(cells []table.Cell) int {
	n := bytesSize(len(cells[0].Family))
	for len(cells) > 0 {
		k := ofColumn(cells)
		n += field(columnSize(cells[:k]))
		cells = cells[k:]
	}
	return n
}

func rowSize(row *table.Row) int {
	n := bytesSize(len(row.Key))
	for cells := row.Cells; len(cells) > 0; {
		k := ofFamily(cells)
		n += field(familySize(cells[:k]))
		cells = cells[k:]
	}
	return n
}

// appendRow appends an encoded Row (GB1).
func appendRow(b []byte, row *table.Row) []byte {
	b = appendBytes(b, rowKey, row.Key)
	for cells := row.Cells; len(cells) > 0; {
		k := ofFamily(cells)
		b = appendLength(b, rowFamilies, familySize(cells[:k]))
		b = appendFamily(b, cells[:k])
		cells = cells[k:]
	}
	return b
}

func appendFamily(b []byte, cells []table.Cell) []byte {
	b = appendBytes(b, familyName, cells[0].Family)
	for len(cells) > 0 {
		k := ofColumn(cells)
		b = appendLength(b, familyColumns, columnSize(cells[:k]))
		b = appendBytes(b, columnQualifier, cells[0].Qualifier)
		for i := range cells[:k] {
			c := &cells[i]
			b = appendLength(b, columnCells, cellSize(c))
			b = appendVarint(b, cellTimestamp, uint64(c.Timestamp))
			b = appendBytes(b, cellValue, c.Value)
			for _, l := range c.Labels {
				b = append(appendLength(b, cellLabels, len(l)), l...)
			}
		}
		cells = cells[k:]
	}
	return b
}

// encode encodes the SessionResponse for a virtual RPC that succeeded (GB1). It uses memory until it is written.
func (x *session) encode(id int64, a answer, took time.Duration, memory *held) *encoded {
	row, read := 0, 0 // sizes of the row, and of the SessionReadRowResponse
	if a.row != nil {
		row = rowSize(a.row)
		read = field(row)
	}
	seconds, nanos := uint64(took/time.Second), uint64(took%time.Second)
	latency := integer(seconds) + integer(nanos)
	payload := field(read) // a mutation has an empty message there
	virtual := integer(uint64(id)) + field(len(x.service.peer.clusterInfo)) + field(payload) + field(field(latency))
	buffer := x.service.cfg.Pool.Get(max(field(virtual), firstBytes))
	b := appendLength((*buffer)[:0], responseVirtual, virtual)
	b = appendVarint(b, virtualID, uint64(id))
	b = append(appendLength(b, virtualCluster, len(x.service.peer.clusterInfo)), x.service.peer.clusterInfo...)
	b = appendLength(b, virtualPayload, payload)
	if a.mutated {
		b = appendLength(b, payloadMutate, 0)
	} else {
		b = appendLength(b, payloadRead, read)
	}
	if a.row != nil {
		b = appendRow(appendLength(b, readRowRow, row), a.row)
	}
	b = appendLength(appendLength(b, virtualStats, field(latency)), statsLatency, latency)
	*buffer = appendVarint(appendVarint(b, durationSeconds, seconds), durationNanos, nanos)
	return memory.message(buffer, x.service.cfg.Pool)
}
