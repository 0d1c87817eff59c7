package tabletserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/tablet"
)

// Merge merges two neighbouring tablets of this server.
func (s *Server) Merge(ctx context.Context, lower, upper []byte) error {
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
	s.Rows.merges.Store(up, low.End)
	defer s.Rows.merges.Delete(up)
	return s.Users.Merge(ctx, low, up)
}

// ownRef reads the row with that key and returns its tablet's name if the tablet belongs to this server.
func (s *Server) ownRef(ctx context.Context, key []byte) (tablet.Ref, error) {
	row, err := s.Row(ctx, key)
	if err != nil {
		return tablet.Ref{}, err
	}
	if row.Server != s.nameFor(row.Table) {
		return tablet.Ref{}, fmt.Errorf("tablet server %q has the tablet: %w", row.Server, api.ErrNotServing)
	}
	return metarows.RefOf(row), nil
}
