package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/tablet"
)

// merge merges two neighbouring tablets of this server.
func (s *tabletServer) merge(ctx context.Context, lower, upper []byte) error {
	low, err := s.ownRef(ctx, lower)
	if errors.Is(err, metarows.ErrNoRow) {
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
	return metarows.RefOf(row), nil
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
