package replication

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// pieceCells bounds the cells of a large row that are copied at a time: fewer than the mutations of a change.
const pieceCells = 20_000

// rowCopy copies a row in pieces, in the order of its cells. After each piece the copied cells are what they were in the source at a position: the changes
// between two positions are made in them. So only the cells of a piece must not change while it is read.
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

// touches reports whether a mutation may change cells between two bounds.
func touches(m *table.Mutation, from, to *cellBound) bool {
	switch m.Op {
	case table.OpDeleteRow:
		return true
	case table.OpDeleteFamily:
		return m.Family == to.family
	}
	newest, oldest := m.Timestamp, m.Timestamp
	if m.Op.IsDeletion() {
		newest, oldest = math.MaxInt64, 0
	}
	return to.above(m.Family, m.Qualifier, newest) && !from.above(m.Family, m.Qualifier, oldest)
}

// copyLarge copies a row in parts. The saved progress does not have the row until its last part is made, so that another master copies it again. A master that has
// taken over has saved the progress: then this one begins no copy.
func (f *follower) copyLarge(ctx context.Context, row []byte) error {
	c := &rowCopy{follower: f, row: row, part: api.RowPart{Copy: rand.Uint64() | 1}, most: pieceCells}
	_, at, err := f.positionOf(ctx, row)
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
	for i := range c.schema.Families {
		if name := c.schema.Families[i].Name; name > c.copied.family {
			return name, table.ColumnRange{Family: name}
		}
	}
	return "", nil
}

// piece copies the first cells that pass a filter. The error is errMoved if they, or the families, have changed while they were read.
func (c *rowCopy) piece(ctx context.Context, family string, filter table.Filter) error {
	before, at, err := c.positionOf(ctx, c.row)
	if err != nil {
		return err
	}
	if err := c.catchUp(ctx, before, at.Next); err != nil {
		return err
	}
	first := client.Filter(table.Chain{filter, table.CellsPerRowLimit(c.most)})
	got, err := c.get(ctx, c.row, first)
	if c.most == 1 && errors.Is(err, client.ErrRowTooLarge) {
		return c.getLarge(ctx, c.row, first, func(got *table.Row) error { return c.makePiece(ctx, family, before, at, got, true) })
	}
	if err != nil {
		return err
	}
	return c.makePiece(ctx, family, before, at, got, false)
}

// makePiece makes what was read of the row, which is nil if there were no cells. held reports that the place for large changes is held.
func (c *rowCopy) makePiece(ctx context.Context, family string, before []byte, at client.ChangePosition, got *table.Row, held bool) error {
	var cells []table.Cell
	if got != nil {
		cells = got.Cells
	}
	to := c.copied.after(family, cells, c.most)
	if err := c.unchanged(ctx, before, at, &to, held); err != nil {
		return err
	}
	if len(cells) > 0 {
		x := &client.Change{Row: c.row, Seq: at.Next - 1}
		if err := c.addCells(x, cells); err != nil {
			return err
		}
		if err := c.make(ctx, x); err != nil {
			return err
		}
	}
	c.copied = to
	if len(cells) == c.most {
		c.most = min(2*c.most, pieceCells)
	}
	return nil
}

// unchanged returns errMoved if a change since a position may have changed cells that are not copied yet and below a bound. If held, each
// large change may have.
func (c *rowCopy) unchanged(ctx context.Context, before []byte, at client.ChangePosition, to *cellBound, held bool) error {
	families, err := c.drain(ctx, client.ChangesFrom{Start: before, End: c.row, Next: at.Next}, held, func(got []client.Change) error {
		for i := range got {
			if bytes.Equal(got[i].Row, c.row) && slices.ContainsFunc(got[i].Mutations, func(m table.Mutation) bool { return touches(&m, &c.copied, to) }) {
				return errMoved
			}
		}
		return nil
	})
	if err == nil && families != at.Families {
		err = errMoved
	}
	return err
}

// catchUp makes the changes of the row before a position in the cells that are copied.
func (c *rowCopy) catchUp(ctx context.Context, before []byte, next uint64) error {
	_, err := c.drain(ctx, client.ChangesFrom{Start: before, End: c.row, Next: c.next}, false, func(got []client.Change) error {
		for i := range got {
			if x := &got[i]; bytes.Equal(x.Row, c.row) && x.Seq < next {
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
