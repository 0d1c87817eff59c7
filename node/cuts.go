package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// cuts are the split points that a table is created with. They follow its schema in the lock service, as
//
//	[id of the first tablet, [end row of each but the last, in order]]
//
// so that table and split points appear in one write. The master creates the rows of METADATA, the one of the last tablet last:
// once it exists, all do, and the split points are removed. Ids are allocated beforehand, so that two masters create the same rows.
type cuts struct {
	first uint64
	ends  [][]byte
}

// checkCuts validates the split points of a new table and returns them in order.
func checkCuts(rows [][]byte, limits *table.Limits) ([][]byte, error) {
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

func (c *cuts) append(e *wire.Encoder) {
	e.Array(2)
	e.Uint(c.first)
	e.Array(len(c.ends))
	for _, end := range c.ends {
		e.Bin(end)
	}
}

// decodeCuts reads what append wrote. It returns nil if nothing follows the schema.
func decodeCuts(d *wire.Decoder) (*cuts, error) {
	if len(d.Rest()) == 0 {
		return nil, nil
	}
	n := d.Array()
	c := &cuts{first: d.Uint()}
	for range d.ArrayMax(api.SplitAtMax) {
		c.ends = append(c.ends, bytes.Clone(d.Bytes()))
	}
	for ; n > 2 && d.Err() == nil; n-- {
		d.Skip()
	}
	return c, d.Err()
}

// tablets returns the number of tablets that the table starts with.
func (c *cuts) tablets() int {
	if c == nil {
		return 1
	}
	return len(c.ends) + 1
}

const (
	// cutters is the number of rows of METADATA that are created concurrently.
	cutters = 32
	// cutTimeout bounds the time that the master spends on this in one round; it continues in the next.
	cutTimeout = 2 * time.Second
)

// makeTablets creates the rows of a new table's tablets, as many as fit into one round. Rows that exist, by key, are skipped.
func (c *clusterTablets) makeTablets(ctx context.Context, name string, tableID uint64, there map[string]bool) error {
	s, cut, _, err := readTable(ctx, c.n.catalog.meta, name)
	if errors.Is(err, api.ErrNoTable) || err == nil && s.ID != tableID {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	if cut == nil {
		return c.makeTablet(ctx, tableID, nil, nil)
	}
	short, cancel := context.WithTimeout(ctx, cutTimeout)
	defer cancel()
	var mu sync.Mutex
	var failed error
	var made sync.WaitGroup
	next := make(chan int)
	for range cutters {
		made.Go(func() {
			for i := range next {
				if err := c.makeCut(short, cut, tableID, i); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for i, end := range cut.ends {
		if !there[tabletKey(tableID, end)] && short.Err() == nil {
			next <- i
		}
	}
	close(next)
	made.Wait()
	if short.Err() != nil {
		return ctx.Err()
	}
	if failed != nil {
		return failed
	}
	return c.makeCut(ctx, cut, tableID, len(cut.ends))
}

// makeCut creates the row of the i-th tablet.
func (c *clusterTablets) makeCut(ctx context.Context, cut *cuts, tableID uint64, i int) error {
	m := tablet.Meta{ID: cut.first + uint64(i), Table: tableID, LastMajor: time.Now()}
	if i > 0 {
		m.Start = cut.ends[i-1]
	}
	if i < len(cut.ends) {
		m.End = cut.ends[i]
	}
	return c.writeTablet(ctx, m.ID, tableID, m.Start, m.End)
}

// forgetCuts removes the split points of a table whose tablets have all been created.
func (c *clusterTablets) forgetCuts(ctx context.Context, name string, tableID uint64) error {
	if c.uncut[tableID] {
		return nil
	}
	s, cut, gen, err := readTable(ctx, c.n.catalog.meta, name)
	if errors.Is(err, api.ErrNoTable) {
		return nil
	}
	if err == nil && cut != nil && s.ID == tableID {
		err = c.n.catalog.saveTable(ctx, s, nil, gen)
	}
	if errors.Is(err, api.ErrConflict) || errors.Is(err, metaapi.ErrGeneration) {
		return nil // retried in the next round
	}
	if err == nil {
		c.uncut[tableID] = true
	}
	return err
}
