package replication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
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
		stream, err := f.from.Table(f.table).Changes(client.ChangesFrom{Clears: true})
		if err == nil {
			stream.Bound(pageBytes)
			err = stream.Drain(ctx, func([]client.Change) error { return nil })
		}
		if err != nil {
			return f.ofRequest("read the position of changes", err)
		}
		f.st.token, f.st.saved, f.st.row, f.st.clears = stream.Token(), time.Now(), nil, true
		if err := f.save(ctx); err != nil {
			return err
		}
	}
	for moves := 0; !f.st.copied; {
		last, err := f.part(ctx, f.st.row)
		if moves++; errors.Is(err, errMoved) && moves < movesMax && timing.Sleep(ctx, copyPause) == nil {
			continue
		}
		if err != nil {
			return err
		}
		moves = 0
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
	free, err := f.run.take(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	at, families, err := f.positionAfter(ctx, after)
	if err != nil {
		return nil, err
	}
	moment.Pass("before rows of the source are read", "")
	rows, whole, err := f.readRows(ctx, after, at.End)
	if errors.Is(err, client.ErrRowTooLarge) {
		return f.largeFirst(ctx, after, at)
	}
	if err != nil {
		return nil, err
	}
	if last = at.End; !whole {
		last = rows[len(rows)-1].Key
	}
	moment.Pass("before rows of the source are checked", "")
	changed, cleared, err := f.changed(ctx, after, last, at)
	if err != nil {
		return nil, err
	}
	if planted.On(planted.CopyUnchecked) {
		changed, cleared = map[string]bool{}, nil
	}
	state := map[string][]table.Cell{}
	if err := eachKey(ctx, f.to, after, last, func(key []byte) bool { state[string(key)] = nil; return true }); err != nil { // rows that the source may not have
		return nil, err
	}
	for i := range rows {
		state[string(rows[i].Key)] = rows[i].Cells
	}
	for row := range state {
		if slices.ContainsFunc(cleared, func(c table.RowRange) bool { return c.Has([]byte(row)) }) { // before it was read, or after
			changed[row] = true
		}
	}
	for row := range changed {
		state[row] = nil
	}
	large := make(chan string, len(state))
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(lanes)
	for row, cells := range state {
		group.Go(func() error {
			if !changed[row] {
				return f.copyRow(inGroup, []byte(row), cells, at.Next, families.schema)
			}
			err := f.copyChanged(inGroup, []byte(row))
			if errors.Is(err, client.ErrRowTooLarge) { // since the scan
				large <- row
				return nil
			}
			return err
		})
	}
	err = group.Wait()
	for close(large); err == nil && len(large) > 0; {
		err = f.copyLarge(ctx, []byte(<-large))
	}
	return last, err
}

// largeFirst is part if the first row in a range is too large to be read at once. It copies the rows up to that one.
func (f *follower) largeFirst(ctx context.Context, after []byte, at client.ChangePosition) (last []byte, err error) {
	if last, err = f.firstKey(ctx, after, at.End); err != nil || last == nil {
		return nil, cmp.Or(err, errMoved) // the row is gone
	}
	if err := f.copyLarge(ctx, last); err != nil {
		return nil, err
	}
	return last, eachKey(ctx, f.to, after, last, func(key []byte) bool {
		if !bytes.Equal(key, last) {
			err = f.copyChanged(ctx, key) // the source had no such row
		}
		return err == nil
	})
}

// positionAfter returns the position of the source's tablet with the rows after a row. The table then has the families that the source had at the position.
func (f *follower) positionAfter(ctx context.Context, row []byte) (client.ChangePosition, *families, error) {
	at, err := f.from.Table(f.table).ChangePositionAfter(ctx, row)
	if err != nil {
		return at, nil, f.ofRequest("read the position of changes", err)
	}
	of, err := f.syncFamilies(ctx, at.Families)
	return at, of, err
}

// errMoved means that what was read is not of one position, since it changed meanwhile. It is read again.
var errMoved = errors.New("the source changed while it was read")

// changed returns the rows in a range that have changes since a position, and the ranges that were cleared. The error is errMoved if a family was added or dropped since then.
func (f *follower) changed(ctx context.Context, start, end []byte, at client.ChangePosition) (rows map[string]bool, cleared []table.RowRange, err error) {
	rows = map[string]bool{}
	families, err := f.drain(ctx, client.ChangesFrom{Start: start, End: end, Next: at.Next}, nil, func(got []client.Change) error {
		for i := range got {
			if c := got[i].Cleared; c != nil {
				cleared = append(cleared, table.RowRange{Start: bytes.Clone(c.Start), End: bytes.Clone(c.End)})
			} else {
				rows[string(got[i].Row)] = true
			}
		}
		if len(rows) > changedRowsMax || len(cleared) > clearsMax {
			return f.bad("more than %d rows changed, or %d ranges were cleared, while one batch was read", changedRowsMax, clearsMax)
		}
		return nil
	})
	if err == nil && families != at.Families {
		err = errMoved
	}
	return rows, cleared, err
}

// readRows reads rows of the source in start < row <= end, an empty one meaning no bound. whole is false if there are more. The error is client.ErrRowTooLarge if
// the first row is larger than copyBytes.
func (f *follower) readRows(ctx context.Context, start, end []byte) (rows []table.Row, whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	s := f.from.Table(f.table).Scan(ctx, append(scanOf(start, end), client.RowBytesMax(copyBytes))...)
	defer s.Close()
	last := start
	for size := int64(0); s.Next(); {
		if err := f.checkRow(s.Row(), last, end); err != nil {
			return nil, false, err
		}
		last = s.Row().Key
		rows = append(rows, *s.Row())
		if size += api.RowMemory(s.Row().Cells); len(rows) >= copyRows || size >= copyBytes {
			return rows, false, nil
		}
	}
	if err := s.Err(); len(rows) == 0 || !errors.Is(err, client.ErrRowTooLarge) {
		return rows, true, f.ofRequest("read rows", err)
	}
	return rows, false, nil
}

// firstKey returns the key of the first row of the source in start < row <= end; nil if there is none.
func (f *follower) firstKey(ctx context.Context, start, end []byte) (key []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	err = eachKey(ctx, f.from.Table(f.table), start, end, func(row []byte) bool {
		key = row
		return false
	})
	if err != nil || key == nil {
		return nil, f.ofRequest("read rows", err)
	}
	return key, f.checkRow(&table.Row{Key: key}, start, end)
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

// eachKey calls each for the keys of a table's rows in start < row <= end, until it returns false.
func eachKey(ctx context.Context, t *client.Table, start, end []byte, each func(key []byte) bool) error {
	return eachOf(ctx, t, scanOf(start, end), each)
}

// eachKeyFrom is eachKey for the rows start <= row < end.
func eachKeyFrom(ctx context.Context, t *client.Table, start, end []byte, each func(key []byte) bool) error {
	return eachOf(ctx, t, []client.ScanOption{client.Start(string(start)), client.End(string(end))}, each)
}

func eachOf(ctx context.Context, t *client.Table, rows []client.ScanOption, each func(key []byte) bool) error {
	s := t.Scan(ctx, append(rows, client.Filter(table.Chain{table.CellsPerRowLimit(1), table.StripValue{}}), client.RowBytesMax(copyBytes))...)
	defer s.Close()
	for s.Next() {
		if !each(s.Row().Key) {
			return nil
		}
	}
	return s.Err()
}

// copyChanged copies a row that is being changed. The error is client.ErrRowTooLarge if it is larger than copyBytes.
func (f *follower) copyChanged(ctx context.Context, row []byte) error {
	for range movesMax {
		got, err := f.get(ctx, row)
		if err == nil {
			return f.copyRow(ctx, row, got.cells, got.Next, got.schema)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
		if err := timing.Sleep(ctx, copyPause); err != nil {
			return err
		}
	}
	return fmt.Errorf("row %.64q: %w", row, errMoved)
}

// beforeRow returns a key below row with few keys between.
func beforeRow(row []byte) []byte {
	n := len(row) - 1
	if row[n] == 0 {
		return row[:n]
	}
	return append(append(bytes.Clone(row[:n]), row[n]-1), 0xff, 0xff, 0xff)
}

// copyRow makes the row what it is in the source, which has its changes before the position next.
func (f *follower) copyRow(ctx context.Context, row []byte, cells []table.Cell, next uint64, schema *table.Schema) error {
	c := &client.Change{Row: row, Seq: next - 1, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}
	if err := addCells(c, cells, schema); err != nil {
		return err
	}
	if err := f.throttle(ctx, changeBytes(c)); err != nil {
		return err
	}
	if _, err := f.send(ctx, c, nil); err != nil {
		return err
	}
	f.rows.Add(1)
	return nil
}

// addCells adds cells of the source, which has the schema, to a change. The error is errMoved if it is none of theirs.
func addCells(c *client.Change, cells []table.Cell, schema *table.Schema) error {
	for i := range cells {
		x := &cells[i]
		m := table.Set(x.Family, x.Qualifier, x.Timestamp, x.Value)
		of := schema.Family(x.Family)
		if of == nil {
			return errMoved
		}
		if of.Aggregate != table.AggregateNone {
			m = table.Merge(x.Family, x.Qualifier, x.Timestamp, x.Value)
		}
		c.Mutations, c.FamilyIDs = append(c.Mutations, m), append(c.FamilyIDs, of.ID)
	}
	return nil
}
