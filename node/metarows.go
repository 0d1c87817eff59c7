package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// metaRows reads and changes the rows of METADATA, and that of the root tablet, which is a file of the lock service.
type metaRows struct {
	meta  namespace.Files
	guard func() metaapi.SetOptions
	// rows is the client of METADATA.
	rows *client.Table
}

// errRowChanged means that a row is not at the expected generation, or does not exist.
var errRowChanged = errors.New("METADATA row was changed by another server")

// errNoRow means that the row does not exist.
var errNoRow = errors.New("METADATA row not found")

// root returns the root tablet's row. The error is errNoRow if there is none.
func (m *metaRows) root(ctx context.Context) (*metadata.Row, error) {
	f, err := m.meta.Get(ctx, metadata.RootPath)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, errNoRow
	}
	if err != nil {
		return nil, err
	}
	return metadata.DecodeRoot(f.Data, f.Generation)
}

// get returns the row of a table's tablet by its end. The error is errNoRow, or the client's.
func (m *metaRows) get(ctx context.Context, tableID uint64, end []byte) (*metadata.Row, error) {
	if isRoot(tableID, end) {
		return m.root(ctx)
	}
	return m.read(ctx, tableID, end, metadata.Rows())
}

// place is get restricted to the columns of metadata.Places.
func (m *metaRows) place(ctx context.Context, tableID uint64, end []byte) (*metadata.Row, error) {
	return m.read(ctx, tableID, end, metadata.Places())
}

func (m *metaRows) read(ctx context.Context, tableID uint64, end []byte, filter table.Filter) (*metadata.Row, error) {
	row, err := m.rows.Get(ctx, string(metadata.Key(nil, tableID, end)), client.Filter(filter))
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, errNoRow
	}
	return metadata.Decode(row)
}

// last returns the last event of the tablet with that key, or "". The root tablet has no events.
func (m *metaRows) last(ctx context.Context, key []byte) (event string, err error) {
	row, err := m.rows.Get(ctx, string(key), client.Filter(metadata.RowsWithEvents()))
	if err != nil || row == nil {
		return "", err
	}
	if all := metadata.Events(row); len(all) > 0 {
		return all[0].Text, nil
	}
	return "", nil
}

func isRoot(tableID uint64, end []byte) bool {
	return tableID == metadata.TableID && string(end) == string(metadata.RootEnd())
}

// between returns the rows of a table's tablets that end above start and below end, in order; an empty end is no bound. A damaged row
// has its table and end, and generation 0.
func (m *metaRows) between(ctx context.Context, tableID uint64, start, end []byte) (rows []*metadata.Row, err error) {
	from, _ := metadata.TableRange(tableID)
	if len(start) > 0 {
		from = append(metadata.SeekKey(nil, tableID, start), 0)
	}
	err = m.scanAll(ctx, string(from), string(metadata.Key(nil, tableID, end)), nil, func(_ string, r *metadata.Row, err error) error {
		if r == nil {
			return err
		}
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

// scan calls each for the rows from a key up to another, exclusively. It stops at a damaged row.
func (m *metaRows) scan(ctx context.Context, from, to string, filter table.Filter, each func(*metadata.Row)) error {
	return m.scanAll(ctx, from, to, filter, func(_ string, r *metadata.Row, err error) error {
		if err == nil {
			each(r)
		}
		return err
	})
}

// scanAll calls each for the rows from a key up to another, exclusively, and stops at its error. For a damaged row it passes the result of
// metadata.Decode.
func (m *metaRows) scanAll(ctx context.Context, from, to string, filter table.Filter, each func(key string, r *metadata.Row, err error) error) error {
	if filter == nil {
		filter = metadata.Rows()
	}
	s := m.rows.Scan(ctx, client.Start(from), client.End(to), client.Filter(filter))
	defer s.Close()
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if err := each(string(s.Row().Key), r, err); err != nil {
			return err
		}
	}
	return s.Err()
}

// create creates a row. The error is errRowChanged if it exists.
func (m *metaRows) create(ctx context.Context, r *metadata.Row, event string) error {
	return m.settle(ctx, r, metadata.Create(r, event), r.Generation)
}

// replace replaces a row that is at r's generation, and advances the generation. The error is errRowChanged, or leaves the outcome unknown.
func (m *metaRows) replace(ctx context.Context, r *metadata.Row, event string) error {
	if isRoot(r.Table, r.End) {
		return m.replaceRoot(ctx, r)
	}
	next := *r
	c := metadata.Replace(&next, event)
	if err := m.settle(ctx, &next, c, next.Generation); err != nil {
		return err
	}
	r.Generation = next.Generation
	return nil
}

// remove removes a row.
func (m *metaRows) remove(ctx context.Context, r *metadata.Row) error {
	return m.settle(ctx, r, metadata.Remove(r), 0)
}

// settle applies a change. If its outcome is unknown, or the row has changed, it reads the row: an earlier attempt may have succeeded. want
// is the generation that the change gives the row, 0 if it removes it; another server's change may have given it the same.
func (m *metaRows) settle(ctx context.Context, r *metadata.Row, c *metadata.Change, want uint64) error {
	made, err := m.rows.ChangeMetadata(ctx, c)
	if err == nil {
		if made {
			return nil
		}
		err = fmt.Errorf("%s: %w", metadata.Describe(c.Key, ""), errRowChanged) // unless an earlier attempt changed it
	} else if !errors.Is(err, client.ErrAmbiguous) {
		return err
	}
	now, readErr := m.get(ctx, r.Table, r.End)
	switch {
	case errors.Is(readErr, errNoRow) && want == 0:
		return nil
	case errors.Is(readErr, errNoRow):
		return err
	case readErr != nil:
		return fmt.Errorf("read the row of %s after a change of unknown outcome: %w", metadata.Describe(c.Key, ""), readErr)
	case want == 0 || now.Generation < want:
		return err // the change may still arrive
	case now.Generation == want && r.SameContents(now):
		return nil
	}
	return fmt.Errorf("%s: %w", metadata.Describe(c.Key, ""), errRowChanged)
}

// replaceRoot is replace for the root tablet.
func (m *metaRows) replaceRoot(ctx context.Context, r *metadata.Row) error {
	data := metadata.EncodeRoot(r)
	gen, err := m.setRoot(ctx, data, r.Generation)
	if err == nil {
		r.Generation = gen
	}
	return err
}

// setRoot writes the root tablet's file if it is at generation gen; 0 means that it must not exist.
func (m *metaRows) setRoot(ctx context.Context, data []byte, gen uint64) (made uint64, err error) {
	err = namespace.Settle(ctx, func(ctx context.Context, again bool) error {
		made, err = m.meta.SetGuarded(ctx, metadata.RootPath, data, gen, m.guard())
		if !again || !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
		f, getErr := m.meta.Get(ctx, metadata.RootPath)
		if getErr == nil && string(f.Data) == string(data) { // an earlier attempt succeeded
			made = f.Generation
			return nil
		}
		return errors.Join(err, getErr)
	})
	if errors.Is(err, metaapi.ErrGeneration) {
		return 0, fmt.Errorf("%s: %w: %w", metadata.RootPath, errRowChanged, err)
	}
	return made, err
}
