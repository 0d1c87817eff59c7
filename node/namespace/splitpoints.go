package namespace

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// SplitPoints are the tablets that a table is created with. They follow its schema in the lock service, as
//
//	[id of the first tablet, [end row of each but the last, in order]]
//	[id of the first tablet, nil, [handle of the manifest, index of the table in it, tablets]]   of a table that is restored from a backup
//
// so that table and split points appear in one write. The master creates the rows of METADATA, the one of the last tablet last:
// once it exists, all do, and the split points are removed. Ids are allocated beforehand, so that two masters create the same rows.
type SplitPoints struct {
	First uint64
	Ends  [][]byte
	// From is where the tablets come from; nil if they are empty. Ends is empty then.
	From *Source
}

// Source is a table in the manifest of a backup (package backup). The manifest and all files that it names are kept while a table has it.
type Source struct {
	Manifest blobfs.Handle
	Table    int // index in the manifest
	Tablets  int
}

// CheckSplitPoints validates the split points of a new table and returns them in order.
func CheckSplitPoints(rows [][]byte, limits *table.Limits) ([][]byte, error) {
	if len(rows) > api.SplitAtMax {
		return nil, &table.LimitError{What: "split rows", Limit: api.SplitAtMax, Got: int64(len(rows))}
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, bytes.Compare)
	size := int64(0)
	for i, row := range rows {
		if err := limits.CheckRowKey(row); err != nil {
			return nil, err
		}
		if int64(len(row)) > metadata.EndMax {
			return nil, &table.LimitError{What: "split row bytes", Limit: metadata.EndMax, Got: int64(len(row))}
		}
		if i > 0 && bytes.Equal(row, rows[i-1]) {
			return nil, fmt.Errorf("row %.64q is given twice: %w", row, api.ErrBadSplit)
		}
		size += int64(len(row))
	}
	if size > api.SplitAtBytesMax {
		return nil, &table.LimitError{What: "split rows bytes", Limit: api.SplitAtBytesMax, Got: size}
	}
	return rows, nil
}

func (c *SplitPoints) append(e *wire.Encoder) {
	if f := c.From; f != nil {
		e.Array(3)
		e.Uint(c.First)
		e.Nil() // a version that does not know the source must not create empty tablets
		e.Array(3)
		blobfs.AppendHandle(e, f.Manifest)
		e.Int(int64(f.Table))
		e.Int(int64(f.Tablets))
		return
	}
	e.Array(2)
	e.Uint(c.First)
	e.Array(len(c.Ends))
	for _, end := range c.Ends {
		e.Bin(end)
	}
}

// decodeSplitPoints reads what append wrote. It returns nil if nothing follows the schema.
func decodeSplitPoints(d *wire.Decoder) (*SplitPoints, error) {
	if len(d.Rest()) == 0 {
		return nil, nil
	}
	n, read := d.Array(), 2
	c := &SplitPoints{First: d.Uint()}
	if n > 2 && d.IsNil() {
		c.From, read = decodeSource(d), 3
	} else {
		for range d.ArrayMax(api.SplitAtMax) {
			c.Ends = append(c.Ends, bytes.Clone(d.Bytes()))
		}
	}
	for ; n > read && d.Err() == nil; n-- {
		d.Skip()
	}
	return c, d.Err()
}

func decodeSource(d *wire.Decoder) *Source {
	n := d.Array()
	f := &Source{Manifest: blobfs.DecodeHandle(d), Table: int(d.Int()), Tablets: int(d.Int())}
	for ; n > 3 && d.Err() == nil; n-- {
		d.Skip()
	}
	if d.Err() == nil && (f.Table < 0 || f.Tablets < 1) {
		d.Fail(fmt.Errorf("table %d of a backup with %d tablets", f.Table, f.Tablets))
	}
	return f
}

// Tablets returns the number of tablets that the table starts with.
func (c *SplitPoints) Tablets() int {
	if c == nil {
		return 1
	}
	if c.From != nil {
		return c.From.Tablets
	}
	return len(c.Ends) + 1
}
