package tabletserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/tablet"
)

// splitTimeout bounds a split: a memtable may have to be written out first.
const splitTimeout = time.Minute

// TrySplit splits a tablet that has become large or hot: one at a time, and separately one of METADATA's. The root tablet is never
// split.
func (s *Server) TrySplit(w tablet.SplitCandidate) {
	splitting := &s.splitting[0]
	if w.Ref.Table == metadata.TableID {
		splitting = &s.splitting[1]
	}
	if w.Ref == RootTablet || !splitting.CompareAndSwap(false, true) {
		return
	}
	s.Background.Go(func() {
		defer splitting.Store(false)
		ctx, cancel := context.WithTimeout(s.Ctx, splitTimeout)
		defer cancel()
		start := time.Now()
		_, lower, err := s.of(w.Ref.Table).Split(ctx, w.Ref, w.At)
		if err != nil {
			s.log.Warn("tablet split failed; will retry", "tablet", w.ID, "err", err)
			return
		}
		s.log.Info("tablet split", "tablet", w.ID, "lower", lower, "took", time.Since(start).Round(time.Millisecond))
	})
}

// narrow makes a tablet begin where the one before it ends, wherever splits have moved that.
//
// A server that died while merging the two may still remove the row before, which is the second step of a merge. Its rows would then
// be in no tablet. So that row gets another generation first, and the removal fails; or it has happened, and the rows are this
// tablet's.
func (s *Server) narrow(ctx context.Context, row *metadata.Row, m *tablet.Meta) error {
	for !metarows.IsRoot(row.Table, row.End) {
		before, err := s.table.Between(ctx, row.Table, m.Start, row.End)
		if err != nil {
			return fmt.Errorf("find the tablet before: %w", err)
		}
		if len(before) == 0 {
			return nil
		}
		last := before[len(before)-1]
		if last.Generation == 0 && len(row.Recoveries) > 0 {
			return fmt.Errorf("keep the tablet before: its METADATA row is damaged: %s", metadata.Describe(last.Key(), ""))
		}
		if slices.Contains(row.Recoveries, last.Server) {
			err := s.table.Replace(ctx, last, "")
			if errors.Is(err, metarows.ErrChanged) {
				continue
			}
			if err != nil {
				return fmt.Errorf("keep the tablet before: %w", err)
			}
		}
		return m.Narrow(last.End)
	}
	return nil
}

// finishSplit creates the row of the lower part if the server that split the tablet did not, and records that the split is over.
func (s *Server) finishSplit(ctx context.Context, row *metadata.Row) error {
	if row.Split == nil {
		return nil
	}
	lower, err := tablet.DecodeMeta(row.Split)
	if err != nil {
		return err
	}
	_, err = s.table.Get(ctx, lower.Table, lower.End)
	if errors.Is(err, metarows.ErrNoRow) {
		err = s.table.Create(ctx, &metadata.Row{
			Table: lower.Table, End: lower.End, Generation: metadata.FirstGeneration(lower.ID),
			Meta: row.Split, Recoveries: row.Recoveries,
		}, "split off; its row was made by "+s.Name)
		if errors.Is(err, metarows.ErrChanged) {
			err = nil // the splitting server has created it
		}
	}
	if err != nil {
		return err
	}
	row.Split = nil
	return s.table.Replace(ctx, row, "")
}
