package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/table"
)

// Bounds of the rows that are copied at a time.
const (
	copyRows  = 1000
	copyBytes = 4 << 20
	// copyPause is the pause before a row is read again that was changed while it was read.
	copyPause = 5 * time.Millisecond
)

// copy copies the rows of the source, from the last one that was copied. A row is copied with a position: its state has all changes before it, and none after.
func (f *follower) copy(ctx context.Context) error {
	if f.st.token == "" {
		stream, err := f.from.Table(f.table).Changes(client.ChangesFrom{})
		if err != nil {
			return err
		}
		if err := stream.Drain(ctx, func([]client.Change) error { return nil }); err != nil {
			return err
		}
		f.st.token, f.st.row = stream.Token(), nil
		if err := f.save(ctx); err != nil {
			return err
		}
	}
	for !f.st.copied {
		last, err := f.part(ctx, f.st.row)
		if errors.Is(err, errFamilies) && timing.Sleep(ctx, copyPause) == nil {
			continue
		}
		if err != nil {
			return err
		}
		f.failure.Store(nil)
		f.st.row, f.st.copied = last, len(last) == 0
		if err := f.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// part copies the rows after a row, and returns the last one that is copied; empty if all are.
func (f *follower) part(ctx context.Context, after []byte) (last []byte, err error) {
	at, err := f.positionAfter(ctx, after)
	if err != nil {
		return nil, err
	}
	rows, whole, err := readRows(ctx, f.from.Table(f.table), after, at.End, copyRows, copyBytes)
	if err != nil {
		return nil, err
	}
	if last = at.End; !whole {
		last = rows[len(rows)-1].Key
	}
	changed, err := f.changed(ctx, after, last, at)
	if err != nil {
		return nil, err
	}
	state := map[string][]table.Cell{}
	if err := f.eachKey(ctx, after, last, func(key []byte) { state[string(key)] = nil }); err != nil { // rows that the source may not have
		return nil, err
	}
	for i := range rows {
		state[string(rows[i].Key)] = rows[i].Cells
	}
	for row := range changed {
		state[row] = nil
	}
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(lanes)
	for row, cells := range state {
		group.Go(func() error {
			if changed[row] {
				return f.copyChanged(inGroup, []byte(row))
			}
			return f.copyRow(inGroup, []byte(row), cells, at.Next)
		})
	}
	return last, group.Wait()
}

// positionAfter returns the position of the source's tablet with the rows after a row. The table then has the families that the source had at the position.
func (f *follower) positionAfter(ctx context.Context, row []byte) (client.ChangePosition, error) {
	at, err := f.from.Table(f.table).ChangePositionAfter(ctx, row)
	if err == nil {
		err = f.syncFamilies(ctx, at.Families)
	}
	return at, err
}

// errFamilies means that a family of the source was added or dropped while rows were read.
var errFamilies = errors.New("the families of the source changed")

// changed returns the rows in a range that have changes since a position. The error is errFamilies if the families have changed since then.
func (f *follower) changed(ctx context.Context, start, end []byte, at client.ChangePosition) (map[string]bool, error) {
	rows := map[string]bool{}
	stream, err := f.from.Table(f.table).Changes(client.ChangesFrom{Start: start, End: end, Next: at.Next})
	if err == nil {
		err = stream.Drain(ctx, func(got []client.Change) error {
			for i := range got {
				rows[string(got[i].Row)] = true
			}
			return nil
		})
	}
	if err == nil && stream.Families() != at.Families {
		err = errFamilies
	}
	return rows, err
}

// readRows reads rows in start < row <= end, an empty one meaning no bound. whole is false if there are more than so many rows or bytes.
func readRows(ctx context.Context, t *client.Table, start, end []byte, most, bytesMax int) (rows []table.Row, whole bool, err error) {
	s := t.Scan(ctx, scanOf(start, end)...)
	defer s.Close()
	bytes := 0
	for s.Next() {
		if len(rows) > 0 && (len(rows) >= most || bytes >= bytesMax) {
			return rows, false, nil
		}
		for i := range s.Row().Cells {
			bytes += len(s.Row().Cells[i].Value) + len(s.Row().Cells[i].Qualifier) + 32
		}
		rows = append(rows, *s.Row())
	}
	return rows, true, s.Err()
}

func scanOf(start, end []byte) (o []client.ScanOption) {
	if len(start) > 0 {
		o = append(o, client.Start(string(start)+"\x00"))
	}
	if len(end) > 0 {
		o = append(o, client.End(string(end)+"\x00"))
	}
	return o
}

// eachKey calls each for the keys of the table's rows in start < row <= end.
func (f *follower) eachKey(ctx context.Context, start, end []byte, each func(key []byte)) error {
	s := f.to.Scan(ctx, append(scanOf(start, end), client.Filter(table.Chain{table.CellsPerRowLimit(1), table.StripValue{}}))...)
	defer s.Close()
	for s.Next() {
		each(s.Row().Key)
	}
	return s.Err()
}

// copyChanged copies a row that is being changed: it reads the row until no change came between.
func (f *follower) copyChanged(ctx context.Context, row []byte) error {
	before := beforeRow(row)
	for {
		at, err := f.positionAfter(ctx, before)
		if err != nil {
			return err
		}
		rows, _, err := readRows(ctx, f.from.Table(f.table), before, row, 1<<30, 1<<30)
		if err != nil {
			return err
		}
		changed, err := f.changed(ctx, before, row, at)
		if err != nil {
			return err
		}
		if !changed[string(row)] {
			var cells []table.Cell
			for i := range rows {
				if bytes.Equal(rows[i].Key, row) {
					cells = rows[i].Cells
				}
			}
			return f.copyRow(ctx, row, cells, at.Next)
		}
		if err := timing.Sleep(ctx, copyPause); err != nil {
			return err
		}
	}
}

// beforeRow returns a key below row with few keys between, and on the same tablet unless that begins at row.
func beforeRow(row []byte) []byte {
	n := len(row) - 1
	if row[n] == 0 {
		return row[:n]
	}
	return append(append(bytes.Clone(row[:n]), row[n]-1), 0xff, 0xff, 0xff)
}

// copyRow makes the row what it is in the source, which has its changes before the position next.
func (f *follower) copyRow(ctx context.Context, row []byte, cells []table.Cell, next uint64) error {
	c := &client.Change{Row: row, Seq: next - 1, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}
	for i := range cells {
		x := &cells[i]
		m := table.Set(x.Family, x.Qualifier, x.Timestamp, x.Value)
		of := f.schema.Family(x.Family)
		if of == nil {
			return errFamilies
		}
		if of.Aggregate != table.AggregateNone {
			m = table.Merge(x.Family, x.Qualifier, x.Timestamp, x.Value)
		}
		c.Mutations, c.FamilyIDs = append(c.Mutations, m), append(c.FamilyIDs, of.ID)
	}
	if err := f.throttle(ctx, changeBytes(c)); err != nil {
		return err
	}
	if _, err := f.to.Follow(ctx, f.run.name, c); err != nil {
		return fmt.Errorf("row %.64q: %w", row, err)
	}
	f.rows.Add(1)
	return nil
}
