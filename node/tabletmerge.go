package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/tablet"
)

// merge merges two neighbouring tablets of this server.
func (s *tabletServer) merge(ctx context.Context, lower, upper []byte) error {
	low, err := s.ownRef(ctx, lower)
	if errors.Is(err, errNoRow) {
		return nil // an earlier order succeeded
	}
	if err != nil {
		return err
	}
	up, err := s.ownRef(ctx, upper)
	if err != nil {
		return err
	}
	s.merges.Store(up, low.End)
	defer s.merges.Delete(up)
	return s.tablets.Merge(ctx, low, up)
}

// ownRef reads the row with that key and returns its tablet's name if the tablet belongs to this server.
func (s *tabletServer) ownRef(ctx context.Context, key []byte) (tablet.Ref, error) {
	row, err := s.rowOf(ctx, key)
	if err != nil {
		return tablet.Ref{}, err
	}
	if row.Server != s.nameFor(row.Table) {
		return tablet.Ref{}, fmt.Errorf("tablet server %q has the tablet: %w", row.Server, api.ErrNotServing)
	}
	return refOf(row), nil
}

// merging returns the event of a change that gives a tablet the rows of the one below it, or "" for other changes.
//
// Like every change, it also clears a split under way: otherwise the next server would create the row of the lower part again, which
// the merge removes.
func (s *tabletServer) merging(m *tablet.Meta) string {
	if at, ok := s.merges.Load(m.Ref()); ok && string(m.Start) < at.(string) {
		return fmt.Sprintf("merged with the tablet that ended at row %.64q on %s", at, s.name)
	}
	return ""
}

// holder returns the row of the tablet that contains a table's row. The error is errNoRow, or the client's.
func (m *metaRows) holder(ctx context.Context, tableID uint64, row []byte) (*metadata.Row, error) {
	if tableID == metadata.TableID && string(row) <= string(metadata.RootEnd()) {
		return m.root(ctx)
	}
	_, to := metadata.TableRange(tableID)
	s := m.rows.Scan(ctx, client.Start(string(metadata.SeekKey(nil, tableID, row))), client.End(string(to)), client.Filter(metadata.Rows()), client.Limit(1))
	defer s.Close()
	if !s.Next() {
		if err := s.Err(); err != nil {
			return nil, err
		}
		return nil, errNoRow
	}
	return metadata.Decode(s.Row())
}

// tablets calls each for the rows of a table's tablets, including the root tablet's, and stops at its error. Damaged rows are skipped.
func (m *metaRows) tablets(ctx context.Context, tableID uint64, each func(*metadata.Row) error) error {
	if tableID == metadata.TableID {
		r, err := m.root(ctx)
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
