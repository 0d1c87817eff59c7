package node

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

// splitWanted splits a tablet that has become large or hot: one at a time, and separately one of METADATA's. The root tablet is never
// split.
func (s *tabletServer) splitWanted(w tablet.SplitCandidate) {
	splitting := &s.splitting[0]
	if w.Ref.Table == metadata.TableID {
		splitting = &s.splitting[1]
	}
	if w.Ref == rootTablet || !splitting.CompareAndSwap(false, true) {
		return
	}
	s.n.background.Go(func() {
		defer splitting.Store(false)
		ctx, cancel := context.WithTimeout(s.n.ctx, splitTimeout)
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

var (
	rootTablet   = tablet.Ref{Table: metadata.TableID, End: string(metadata.RootEnd())}
	errRootSplit = errors.New("the root tablet is never split")
)

// Split implements tablet.Metadata. First the upper tablet's row records what is split off, which only its server can write. Then the
// lower tablet's row is created. If that does not happen, the next server of the upper tablet creates it, so it cannot appear later
// when no server expects it.
func (s *tabletServer) Split(ctx context.Context, lower, upper *tablet.Meta) error {
	if metarows.IsRoot(upper.Table, upper.End) {
		return errors.Join(tablet.ErrMetaChanged, errRootSplit)
	}
	st := s.state(upper.Ref())
	if st == nil {
		return fmt.Errorf("%v is not loaded here: %w", upper.Ref(), tablet.ErrMetaChanged)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.serving(); err != nil {
		return err // retried: an earlier attempt may have succeeded
	}
	// Otherwise a reader that reads one row before it exists and the other after it is written
	// out could conclude that the sorted logs are not needed.
	if len(st.row.Recoveries) > 0 {
		return errors.Join(tablet.ErrMetaChanged, errors.New("tablet is being recovered; split it later"))
	}
	row := *st.row
	row.Split = tablet.EncodeMeta(lower)
	if err := s.rows.Replace(ctx, &row, fmt.Sprintf("split after row %.64q, tablet %d has what is below", lower.End, lower.ID)); err != nil {
		return metaError(err)
	}
	st.row = &row
	below := &metadata.Row{
		Table: lower.Table, End: lower.End, Generation: metadata.FirstGeneration(lower.ID), Server: s.nameFor(lower.Table), Addr: s.n.RPCAddr(),
		Meta: row.Split, Recoveries: row.Recoveries,
	}
	if err := s.rows.Create(ctx, below, fmt.Sprintf("split off tablet %d on %s", upper.ID, s.name)); err != nil {
		return metaError(err)
	}
	done := row
	done.Split = nil // written with the next change
	st.row = &done
	s.remember(below)
	s.n.commands.NudgeMaster(ctx)
	return nil
}

// narrow makes a tablet begin where the one before it ends, wherever splits have moved that.
//
// A server that died while merging the two may still remove the row before, which is the second step of a merge. Its rows would then
// be in no tablet. So that row gets another generation first, and the removal fails; or it has happened, and the rows are this
// tablet's.
func (s *tabletServer) narrow(ctx context.Context, row *metadata.Row, m *tablet.Meta) error {
	for !metarows.IsRoot(row.Table, row.End) {
		before, err := s.rows.Between(ctx, row.Table, m.Start, row.End)
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
			err := s.rows.Replace(ctx, last, "")
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
func (s *tabletServer) finishSplit(ctx context.Context, row *metadata.Row) error {
	if row.Split == nil {
		return nil
	}
	lower, err := tablet.DecodeMeta(row.Split)
	if err != nil {
		return err
	}
	_, err = s.rows.Get(ctx, lower.Table, lower.End)
	if errors.Is(err, metarows.ErrNoRow) {
		err = s.rows.Create(ctx, &metadata.Row{
			Table: lower.Table, End: lower.End, Generation: metadata.FirstGeneration(lower.ID),
			Meta: row.Split, Recoveries: row.Recoveries,
		}, "split off; its row was made by "+s.name)
		if errors.Is(err, metarows.ErrChanged) {
			err = nil // the splitting server has created it
		}
	}
	if err != nil {
		return err
	}
	row.Split = nil
	return s.rows.Replace(ctx, row, "")
}
