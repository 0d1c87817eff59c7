package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/tablet"
)

// merge makes one tablet of two neighbours that are here.
func (s *tabletServer) merge(ctx context.Context, lower, upper []byte) error {
	low, err := s.ownRef(ctx, lower)
	if errors.Is(err, errNoRow) {
		return nil // an earlier order came through
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

// ownRef reads the row with that key, and returns the name of its tablet if METADATA gives it to this server.
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

// merging returns the event of a change of a tablet's row after which it has the rows of the one below it, if it is that.
//
// The change also says that no split of the tablet is under way, as every change does: else whoever loads it next would
// make the row of the lower part anew, which is what the merge takes away.
func (s *tabletServer) merging(m *tablet.Meta) string {
	if at, ok := s.merges.Load(m.Ref()); ok && string(m.Start) < at.(string) {
		return fmt.Sprintf("merged with the tablet that ended at row %.64q on %s", at, s.name)
	}
	return ""
}

// holder returns the row of the table's tablet that has a row. The error is errNoRow, or the client's.
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

// tablets calls each for the rows of a table's tablets, the root tablet's too, and ends with its error. Damaged rows are left out.
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

// toldOfTablets gives the errors of changes of tablets the form in which the data API tells them.
func toldOfTablets(err error) error {
	for _, k := range [...]struct{ is, as error }{
		{tablet.ErrBadSplitRow, api.ErrBadSplit}, {tablet.ErrNoSplitRow, api.ErrBadSplit},
		{tablet.ErrNotNeighbours, api.ErrConflict}, {tablet.ErrMetaChanged, api.ErrConflict},
		{master.ErrBusy, api.ErrTabletBusy}, {master.ErrGone, api.ErrNoTablet},
		{master.ErrNotAlive, api.ErrNodeNotAlive}, {master.ErrNotMaster, api.ErrUnavailable},
	} {
		if errors.Is(err, k.is) {
			return told(k.as, err)
		}
	}
	return err
}
