package replication

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// pieceCells bounds the cells of a large row that are copied at a time: fewer than the mutations of a change.
const pieceCells = 20_000

// rowCopy copies a row in pieces, in the order of its cells. After each piece the copied cells are what they were in the source at the position of the piece: the
// changes between two positions are made in them.
type rowCopy struct {
	*follower
	row    []byte
	part   api.RowPart // the next one
	next   uint64      // the copied cells are as before this position
	most   int         // cells in a piece
	copied cellBound
}

// cellBound divides the cells of a row. Below it are all cells of the families below family. If within, so are those of family with qualifiers below
// qualifier, and those with it and a timestamp of at least since; otherwise all of family.
type cellBound struct {
	family    string
	within    bool
	qualifier []byte
	since     int64
}

// above reports whether the bound is above a cell.
func (b *cellBound) above(family string, qualifier []byte, timestamp int64) bool {
	if family != b.family || !b.within {
		return family <= b.family
	}
	order := bytes.Compare(qualifier, b.qualifier)
	return order < 0 || order == 0 && timestamp >= b.since
}

// after returns the bound after cells that are the first ones, at most so many, which pass the filter of rest.
func (b *cellBound) after(family string, cells []table.Cell, most int) cellBound {
	switch n := len(cells); {
	case n == most: // there may be more
		return cellBound{family, true, cells[n-1].Qualifier, cells[n-1].Timestamp}
	case b.within && b.since > 0: // all of the column
		return cellBound{family, true, b.qualifier, 0}
	}
	return cellBound{family: family}
}

// copyLarge copies a row in parts. The saved progress does not have the row until its last part is made, so that another master copies it again. A master that has
// taken over has saved the progress: then this one begins no copy.
func (f *follower) copyLarge(ctx context.Context, row []byte) error {
	c := &rowCopy{follower: f, row: row, part: api.RowPart{Copy: rand.Uint64() | 1}, most: pieceCells}
	at, err := f.get(ctx, row, client.Filter(table.Chain{table.CellsPerRowLimit(1), table.StripValue{}}))
	if err != nil {
		return err
	}
	if err := f.save(ctx); err != nil { // after the position was taken
		return err
	}
	c.next = at.Next
	if err := c.make(ctx, &client.Change{Row: row, Seq: at.Next - 1, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}); err != nil {
		return err
	}
	if err := c.pieces(ctx); err != nil {
		return err
	}
	c.part.Last = true
	if err := c.make(ctx, &client.Change{Row: row, Seq: c.next - 1}); err != nil {
		return err
	}
	f.rows.Add(1)
	return nil
}

// pieces copies all cells.
func (c *rowCopy) pieces(ctx context.Context) error {
	for moves := 0; ; {
		family, filter := c.rest()
		if family == "" {
			return nil
		}
		err := c.piece(ctx, family, filter)
		switch {
		case err == nil:
			moves = 0
			continue
		case !errors.Is(err, errMoved) && !errors.Is(err, client.ErrRowTooLarge) || moves == movesMax:
			return err
		}
		moves++
		c.most = max(c.most/2, 1)
		if err := timing.Sleep(ctx, copyPause); err != nil {
			return err
		}
	}
}

// rest returns a filter of cells that are not copied: those of a column that is copied in part, otherwise those of the columns after it, otherwise those of
// the next family. family is empty if all are copied.
func (c *rowCopy) rest() (family string, filter table.Filter) {
	switch b := &c.copied; {
	case b.within && b.since > 0:
		q := table.Closed(b.qualifier)
		return b.family, table.Chain{table.ColumnRange{Family: b.family, Qualifiers: table.ByteRange{Start: q, End: q}}, table.TimestampRange{End: table.Before(b.since)}}
	case b.within:
		return b.family, table.ColumnRange{Family: b.family, Qualifiers: table.ByteRange{Start: table.Open(b.qualifier)}}
	}
	schema := c.families.Load().schema
	for i := range schema.Families {
		if name := schema.Families[i].Name; name > c.copied.family {
			return name, table.ColumnRange{Family: name}
		}
	}
	return "", nil
}

// piece copies the first cells that pass a filter. The error is errMoved if the families have changed.
func (c *rowCopy) piece(ctx context.Context, family string, filter table.Filter) error {
	first := client.Filter(table.Chain{filter, table.CellsPerRowLimit(c.most)})
	got, err := c.get(ctx, c.row, first)
	if c.most == 1 && errors.Is(err, client.ErrRowTooLarge) {
		return c.getLarge(ctx, c.row, first, func(large *client.Client, got *rowState) error { return c.makePiece(ctx, family, got, large) })
	}
	if err != nil {
		return err
	}
	return c.makePiece(ctx, family, got, nil)
}

// makePiece makes what was read of the row. large, unless nil, is the client that holds it.
func (c *rowCopy) makePiece(ctx context.Context, family string, got *rowState, large *client.Client) error {
	if err := c.catchUp(ctx, got, large); err != nil {
		return err
	}
	if len(got.cells) > 0 {
		x := &client.Change{Row: c.row, Seq: c.next - 1}
		if err := addCells(x, got.cells, got.schema); err != nil {
			return err
		}
		if err := c.make(ctx, x); err != nil {
			return err
		}
	}
	full := len(got.cells) == c.most
	if c.copied = c.copied.after(family, got.cells, c.most); full {
		c.most = min(2*c.most, pieceCells)
	}
	return nil
}

// catchUp makes the changes of the row before a position in the cells that are copied.
func (c *rowCopy) catchUp(ctx context.Context, at *rowState, large *client.Client) error {
	next := max(at.Next, c.next) // without changes between, it is lower once the tablet was split
	start := beforeRow(c.row)
	if bytes.Compare(at.Start, start) > 0 {
		start = at.Start
	}
	_, err := c.drain(ctx, client.ChangesFrom{Start: start, End: c.row, Next: c.next}, large, func(got []client.Change) error {
		for i := range got {
			x := &got[i]
			if x.Cleared != nil && x.Cleared.Has(c.row) {
				x = &client.Change{Row: c.row, Seq: x.Seq, Time: x.Time, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}
			}
			if bytes.Equal(x.Row, c.row) && x.Seq < next {
				if err := c.make(ctx, c.clip(x)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		c.next = next
	}
	return err
}

// clip returns a change without the cells that are not copied yet. Deletions of such cells do no harm.
func (c *rowCopy) clip(x *client.Change) *client.Change {
	left := &client.Change{Row: x.Row, Seq: x.Seq}
	for i := range x.Mutations {
		if m := &x.Mutations[i]; m.Op.IsDeletion() || c.copied.above(m.Family, m.Qualifier, m.Timestamp) {
			left.Mutations = append(left.Mutations, *m)
			if len(x.FamilyIDs) > 0 {
				left.FamilyIDs = append(left.FamilyIDs, x.FamilyIDs[i])
			}
		}
	}
	return left
}

// make makes the next part.
func (c *rowCopy) make(ctx context.Context, x *client.Change) error {
	if err := c.throttle(ctx, changeBytes(x)); err != nil {
		return err
	}
	part := c.part
	_, err := c.send(ctx, x, &part)
	c.part.Index++
	return err
}
