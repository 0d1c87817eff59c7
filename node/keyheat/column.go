package keyheat

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/tablet/heat"
)

// Bounds of a column.
const (
	// bucketsMax is the number of buckets of all tables; each table has one at least.
	bucketsMax = 384
	namesMax   = 16  // of hot rows, and of large rows, of a table
	eventsMax  = 128 // of a table
)

// column is what tables had in an interval.
type column struct {
	minute int64 // its start, in minutes since 1970
	tables []*tableHeat
}

// tableHeat is a table's part of a column.
type tableHeat struct {
	table   uint64
	buckets []heat.Bucket
	hot     []heat.Hot
	large   []heat.Large
	events  []event
}

// event is a change of a tablet, or the start of the node, which is of table 0.
type event struct {
	atMS int64
	kind string
	row  []byte
}

// of returns the part of a table, and makes it if needed.
func (c *column) of(table uint64) *tableHeat {
	at, found := slices.BinarySearchFunc(c.tables, table, func(t *tableHeat, id uint64) int { return int(min(max(int64(t.table)-int64(id), -1), 1)) })
	if !found {
		c.tables = slices.Insert(c.tables, at, &tableHeat{table: table})
	}
	return c.tables[at]
}

// add adds what was taken from a tablet.
func (c *column) add(p *heat.Part) {
	t := c.of(p.Table)
	t.buckets = append(t.buckets, p.Buckets...)
	t.hot = append(t.hot, p.Hot...)
	for _, l := range p.Large {
		t.large = heat.AddLarge(t.large, namesMax, l)
	}
}

// merge adds another column's tables.
func (c *column) merge(o *column) {
	for _, from := range o.tables {
		t := c.of(from.table)
		t.events = append(t.events, from.events...)
		c.add(&heat.Part{Table: from.table, Buckets: from.buckets, Hot: from.hot, Large: from.large})
	}
}

// reduce keeps the column within its bounds.
func (c *column) reduce() {
	total := 0
	for _, t := range c.tables {
		t.buckets = heat.Merge(bucketsMax, t.buckets)
		total += len(t.buckets)
	}
	for _, t := range c.tables {
		if total > bucketsMax {
			t.buckets = heat.Merge(max(1, len(t.buckets)*bucketsMax/total), t.buckets)
		}
		t.hot = heat.MergeHot(namesMax, t.hot)
		t.events = t.events[:min(len(t.events), eventsMax)]
	}
}

// form is which values of buckets and hot rows are encoded.
type form int

const (
	formCounts form = iota // [start, end, reads, writes, read bytes, write bytes] and [row, reads, writes]
	formFull               // [… read µs, write µs]; hot rows: [… [[user, operations]…]]
	formLatest = formFull
)

// append encodes the column: [minute, [[table, buckets, hot, large, events]…]]. A later form has more values at the ends of arrays.
func (c *column) append(e *wire.Encoder, f form) {
	e.Array(2)
	e.Int(c.minute)
	e.Array(len(c.tables))
	for _, t := range c.tables {
		e.Array(5)
		e.Uint(t.table)
		t.append(e, f)
	}
}

func (t *tableHeat) append(e *wire.Encoder, f form) {
	e.Array(len(t.buckets))
	for i := range t.buckets {
		b := &t.buckets[i]
		values := []int64{b.Reads, b.Writes, b.ReadBytes, b.WriteBytes, b.ReadMicros, b.WriteMicros}
		if f < formFull {
			values = values[:4]
		}
		e.Array(2 + len(values))
		e.Bin(b.Start)
		e.Bin(b.End)
		for _, n := range values {
			e.Int(n)
		}
	}
	e.Array(len(t.hot))
	for _, h := range t.hot {
		appendHot(e, &h, f)
	}
	e.Array(len(t.large))
	for _, l := range t.large {
		e.Array(2)
		e.Bin(l.Row)
		e.Int(l.Bytes)
	}
	e.Array(len(t.events))
	for _, v := range t.events {
		e.Array(3)
		e.Int(v.atMS)
		e.Str(v.kind)
		e.Bin(v.row)
	}
}

func appendHot(e *wire.Encoder, h *heat.Hot, f form) {
	n := 3
	if f >= formFull {
		n++
	}
	e.Array(n)
	e.Bin(h.Row)
	e.Int(h.Reads)
	e.Int(h.Writes)
	if f < formFull {
		return
	}
	e.Array(len(h.Users))
	for _, u := range h.Users {
		e.Array(2)
		e.Str(u.Name)
		e.Int(u.Ops)
	}
}

// decodeHot decodes a hot row, of which more values than the first three are there. It returns how many of them it has read.
func decodeHot(d *wire.Decoder, more int) (h heat.Hot, used int) {
	h = heat.Hot{Row: bytes.Clone(d.Bytes()), Reads: d.Int(), Writes: d.Int()}
	if more == 0 {
		return h, 0
	}
	for range d.ArrayMax(heat.UsersMax) {
		tuple(d, 2, func(int) int {
			h.Users = append(h.Users, heat.UserOps{Name: d.Str(), Ops: d.Int()})
			return 0
		})
	}
	return h, 1
}

// decode decodes a column, with the parts of only those tables; all if there are none.
func (c *column) decode(d *wire.Decoder, only ...uint64) error {
	tuple(d, 2, func(int) int {
		c.minute = d.Int()
		for range d.Array() {
			tuple(d, 5, func(more int) int {
				t := &tableHeat{table: d.Uint()}
				if len(only) > 0 && !slices.Contains(only, t.table) {
					return -4 // its other values are skipped as well
				}
				t.decode(d)
				c.tables = append(c.tables, t)
				return 0
			})
		}
		return 0
	})
	return d.Err()
}

func (t *tableHeat) decode(d *wire.Decoder) {
	for range d.Array() {
		tuple(d, 6, func(more int) int {
			b := heat.Bucket{Start: bytes.Clone(d.Bytes()), End: bytes.Clone(d.Bytes())}
			b.Sums = heat.Sums{Reads: d.Int(), Writes: d.Int(), ReadBytes: d.Int(), WriteBytes: d.Int()}
			used := 0
			if more >= 2 { // formFull
				b.ReadMicros, b.WriteMicros = d.Int(), d.Int()
				used = 2
			}
			t.buckets = append(t.buckets, b)
			return used
		})
	}
	for range d.Array() {
		tuple(d, 3, func(more int) int {
			h, used := decodeHot(d, more)
			t.hot = append(t.hot, h)
			return used
		})
	}
	for range d.Array() {
		tuple(d, 2, func(int) int {
			t.large = append(t.large, heat.Large{Row: bytes.Clone(d.Bytes()), Bytes: d.Int()})
			return 0
		})
	}
	for range d.Array() {
		tuple(d, 3, func(int) int {
			t.events = append(t.events, event{d.Int(), d.Str(), bytes.Clone(d.Bytes())})
			return 0
		})
	}
}

// tuple reads an array of at least n values with read, which gets how many more there are, and returns how many of them it has read. The
// others, of a later form, are skipped.
func tuple(d *wire.Decoder, n int, read func(more int) int) {
	got := d.Array()
	if got < n && d.Err() == nil {
		d.Fail(fmt.Errorf("array of %d, want %d", got, n))
	}
	if d.Err() != nil {
		return
	}
	for range got - n - read(got-n) {
		d.Skip()
	}
}
