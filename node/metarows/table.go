package metarows

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Table reads and changes the rows of METADATA, and that of the root tablet, which is a file of the lock service. It is safe for
// concurrent use.
type Table struct {
	meta  namespace.Files
	guard func() metaapi.SetOptions
	// rows is the client of METADATA.
	rows *client.Table
}

// NewTable returns a table of the rows that rows, a client of METADATA, reads. Its changes of the root tablet's file are made with the
// options of guard.
func NewTable(meta namespace.Files, guard func() metaapi.SetOptions, rows *client.Table) *Table {
	return &Table{meta: meta, guard: guard, rows: rows}
}

// ErrChanged means that a row is not at the expected generation, or does not exist.
var ErrChanged = errors.New("METADATA row was changed by another server")

// ErrNoRow means that the row does not exist.
var ErrNoRow = errors.New("METADATA row not found")

// Root returns the root tablet's row. The error is ErrNoRow if there is none.
func (m *Table) Root(ctx context.Context) (*metadata.Row, error) {
	f, err := m.meta.Get(ctx, metadata.RootPath)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, ErrNoRow
	}
	if err != nil {
		return nil, err
	}
	return metadata.DecodeRoot(f.Data, f.Generation)
}

// Get returns the row of a table's tablet by its end. The error is ErrNoRow, or the client's.
func (m *Table) Get(ctx context.Context, tableID uint64, end []byte) (*metadata.Row, error) {
	if IsRoot(tableID, end) {
		return m.Root(ctx)
	}
	return m.read(ctx, tableID, end, metadata.Rows())
}

// Place is Get restricted to the columns of metadata.Places.
func (m *Table) Place(ctx context.Context, tableID uint64, end []byte) (*metadata.Row, error) {
	return m.read(ctx, tableID, end, metadata.Places())
}

func (m *Table) read(ctx context.Context, tableID uint64, end []byte, filter table.Filter) (*metadata.Row, error) {
	row, err := m.rows.Get(ctx, string(metadata.Key(nil, tableID, end)), client.Filter(filter))
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, ErrNoRow
	}
	return metadata.Decode(row)
}

// Last returns the last event of the tablet with that key, or "". The root tablet has no events.
func (m *Table) Last(ctx context.Context, key []byte) (event string, err error) {
	row, err := m.rows.Get(ctx, string(key), client.Filter(metadata.RowsWithEvents()))
	if err != nil || row == nil {
		return "", err
	}
	if all := metadata.Events(row); len(all) > 0 {
		return all[0].Text, nil
	}
	return "", nil
}

func IsRoot(tableID uint64, end []byte) bool {
	return tableID == metadata.TableID && string(end) == string(metadata.RootEnd())
}

// Between returns the rows of a table's tablets that end above start and below end, in order; an empty end is no bound. A damaged row
// has its table and end, and generation 0.
func (m *Table) Between(ctx context.Context, tableID uint64, start, end []byte) (rows []*metadata.Row, err error) {
	from, _ := metadata.TableRange(tableID)
	if len(start) > 0 {
		from = append(metadata.SeekKey(nil, tableID, start), 0)
	}
	err = m.ScanAll(ctx, string(from), string(metadata.Key(nil, tableID, end)), nil, func(_ string, r *metadata.Row, err error) error {
		if r == nil {
			return err
		}
		rows = append(rows, r)
		return nil
	})
	return rows, err
}

// Scan calls each for the rows from a key up to another, exclusively. It stops at a damaged row.
func (m *Table) Scan(ctx context.Context, from, to string, filter table.Filter, each func(*metadata.Row)) error {
	return m.ScanAll(ctx, from, to, filter, func(_ string, r *metadata.Row, err error) error {
		if err == nil {
			each(r)
		}
		return err
	})
}

// ScanAll calls each for the rows from a key up to another, exclusively, and stops at its error. For a damaged row it passes the result of
// metadata.Decode.
func (m *Table) ScanAll(ctx context.Context, from, to string, filter table.Filter, each func(key string, r *metadata.Row, err error) error) error {
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

// Create creates a row. The error is ErrChanged if it exists.
func (m *Table) Create(ctx context.Context, r *metadata.Row, event string) error {
	return m.settle(ctx, r, metadata.Create(r, event), r.Generation)
}

// Replace replaces a row that is at r's generation, and advances the generation. The error is ErrChanged, or leaves the outcome unknown.
func (m *Table) Replace(ctx context.Context, r *metadata.Row, event string) error {
	if IsRoot(r.Table, r.End) {
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

// Remove removes a row.
func (m *Table) Remove(ctx context.Context, r *metadata.Row) error {
	return m.settle(ctx, r, metadata.Remove(r), 0)
}

// settle applies a change. If its outcome is unknown, or the row has changed, it reads the row: an earlier attempt may have succeeded. want
// is the generation that the change gives the row, 0 if it removes it; another server's change may have given it the same.
func (m *Table) settle(ctx context.Context, r *metadata.Row, c *metadata.Change, want uint64) error {
	made, err := m.rows.ChangeMetadata(ctx, c)
	if err == nil {
		if made {
			return nil
		}
		err = fmt.Errorf("%s: %w", metadata.Describe(c.Key, ""), ErrChanged) // unless an earlier attempt changed it
	} else if !errors.Is(err, client.ErrAmbiguous) {
		return err
	}
	now, readErr := m.Get(ctx, r.Table, r.End)
	switch {
	case errors.Is(readErr, ErrNoRow) && want == 0:
		return nil
	case errors.Is(readErr, ErrNoRow):
		return err
	case readErr != nil:
		return fmt.Errorf("read the row of %s after a change of unknown outcome: %w", metadata.Describe(c.Key, ""), readErr)
	case want == 0 || now.Generation < want:
		return err // the change may still arrive
	case now.Generation == want && r.SameContents(now):
		return nil
	}
	return fmt.Errorf("%s: %w", metadata.Describe(c.Key, ""), ErrChanged)
}

// replaceRoot is Replace for the root tablet.
func (m *Table) replaceRoot(ctx context.Context, r *metadata.Row) error {
	data := metadata.EncodeRoot(r)
	gen, err := m.SetRoot(ctx, data, r.Generation)
	if err == nil {
		r.Generation = gen
	}
	return err
}

// SetRoot writes the root tablet's file if it is at generation gen; 0 means that it must not exist.
func (m *Table) SetRoot(ctx context.Context, data []byte, gen uint64) (made uint64, err error) {
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
		return 0, fmt.Errorf("%s: %w: %w", metadata.RootPath, ErrChanged, err)
	}
	return made, err
}

// RefOf returns the tablet.Ref of a row.
func RefOf(row *metadata.Row) tablet.Ref { return tablet.Ref{Table: row.Table, End: string(row.End)} }

// Holder returns the row of the tablet that contains a table's row. The error is ErrNoRow, or the client's.
func (m *Table) Holder(ctx context.Context, tableID uint64, row []byte) (*metadata.Row, error) {
	if tableID == metadata.TableID && string(row) <= string(metadata.RootEnd()) {
		return m.Root(ctx)
	}
	_, to := metadata.TableRange(tableID)
	s := m.rows.Scan(ctx, client.Start(string(metadata.SeekKey(nil, tableID, row))), client.End(string(to)), client.Filter(metadata.Rows()), client.Limit(1))
	defer s.Close()
	if !s.Next() {
		if err := s.Err(); err != nil {
			return nil, err
		}
		return nil, ErrNoRow
	}
	return metadata.Decode(s.Row())
}

// Tablets calls each for the rows of a table's tablets, including the root tablet's, and stops at its error. Damaged rows are skipped.
func (m *Table) Tablets(ctx context.Context, tableID uint64, each func(*metadata.Row) error) error {
	if tableID == metadata.TableID {
		r, err := m.Root(ctx)
		if err == nil {
			err = each(r)
		}
		if err != nil {
			return err
		}
	}
	from, to := metadata.TableRange(tableID)
	s := m.rows.Scan(ctx, client.Start(string(from)), client.End(string(to)), client.Filter(metadata.Rows()))
	defer s.Close()
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if err != nil {
			continue // the master reports it
		}
		if err := each(r); err != nil {
			return err
		}
	}
	return s.Err()
}
