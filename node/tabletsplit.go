package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/tablet"
)

// splitTimeout bounds a split: a memtable may have to be written out first.
const splitTimeout = time.Minute

// splitWanted splits a tablet that has grown large or hot, one at a time, and one of METADATA's. The root
// tablet stays as it is.
func (s *tabletServer) splitWanted(w tablet.SplitWanted) {
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
			s.log.Warn("split a tablet; will try again", "tablet", w.ID, "error", err)
			return
		}
		s.log.Info("tablet split", "tablet", w.ID, "lower", lower, "took", time.Since(start).Round(time.Millisecond))
	})
}

var (
	rootTablet   = tablet.Ref{Table: metadata.TableID, End: string(metadata.RootEnd())}
	errRootSplit = errors.New("the root tablet is never split")
)

// Split implements tablet.Metadata. First the upper row says what is being split off, which only
// who has the tablet can make it say; then the lower row is made. If that does not come about, who gets the
// tablet next makes it, so it cannot appear when nobody reckons with it any more.
func (s *tabletServer) Split(ctx context.Context, lower, upper *tablet.Meta) error {
	if isRoot(upper.Table, upper.End) {
		return errors.Join(tablet.ErrMetaChanged, errRootSplit)
	}
	st := s.state(upper.Ref())
	if st == nil {
		return fmt.Errorf("%v is not this server's: %w", upper.Ref(), tablet.ErrMetaChanged)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.serving(); err != nil {
		return err // to be tried again: an earlier try may have been made
	}
	// Else it could seem that nobody needs those logs, to who reads the one row before it is there and
	// the other after it is written out.
	if len(st.row.Recoveries) > 0 {
		return errors.Join(tablet.ErrMetaChanged, errors.New("tablet is being recovered; split it later"))
	}
	row := *st.row
	row.Split = tablet.EncodeMeta(lower)
	if err := s.rows.replace(ctx, &row, fmt.Sprintf("split after row %.64q, tablet %d has what is below", lower.End, lower.ID)); err != nil {
		return metaError(err)
	}
	st.row = &row
	below := &metadata.Row{
		Table: lower.Table, End: lower.End, Generation: metadata.FirstGeneration(lower.ID), Server: s.nameFor(lower.Table), Addr: s.n.RPCAddr(),
		Meta: row.Split, Recoveries: row.Recoveries,
	}
	if err := s.rows.create(ctx, below, fmt.Sprintf("split off tablet %d on %s", upper.ID, s.name)); err != nil {
		return metaError(err)
	}
	done := row
	done.Split = nil // with the next change
	st.row = &done
	s.remember(below)
	s.n.nudgeMaster(ctx)
	return nil
}

// narrow has a tablet begin where the one before it ends, wherever splits have brought that.
//
// A server that died while it merged the two may yet remove the row before, which is the second step of that.
// Then nobody would have its rows. So the row gets another generation first, and the step fails; or it has been
// taken, and the rows are this tablet's.
func (s *tabletServer) narrow(ctx context.Context, row *metadata.Row, m *tablet.Meta) error {
	for !isRoot(row.Table, row.End) {
		before, err := s.rows.between(ctx, row.Table, m.Start, row.End)
		if err != nil {
			return fmt.Errorf("find the tablet before it: %w", err)
		}
		if len(before) == 0 {
			return nil
		}
		last := before[len(before)-1]
		if last.Generation == 0 && len(row.Recoveries) > 0 {
			return fmt.Errorf("keep the tablet before it: its row of METADATA is damaged: %s", metadata.Describe(last.Key(), ""))
		}
		if slices.Contains(row.Recoveries, last.Server) {
			err := s.rows.replace(ctx, last, "")
			if errors.Is(err, errRowChanged) {
				continue
			}
			if err != nil {
				return fmt.Errorf("keep the tablet before it: %w", err)
			}
		}
		return m.Narrow(last.End)
	}
	return nil
}

// finishSplit makes the row of the lower part if the server that split the tablet did not come
// to it, and notes that the split is over.
func (s *tabletServer) finishSplit(ctx context.Context, row *metadata.Row) error {
	if row.Split == nil {
		return nil
	}
	lower, err := tablet.DecodeMeta(row.Split)
	if err != nil {
		return err
	}
	_, err = s.rows.get(ctx, lower.Table, lower.End)
	if errors.Is(err, errNoRow) {
		err = s.rows.create(ctx, &metadata.Row{
			Table: lower.Table, End: lower.End, Generation: metadata.FirstGeneration(lower.ID),
			Meta: row.Split, Recoveries: row.Recoveries,
		}, "split off; its row was made by "+s.name)
		if errors.Is(err, errRowChanged) {
			err = nil // it came after all
		}
	}
	if err != nil {
		return err
	}
	row.Split = nil
	return s.rows.replace(ctx, row, "")
}
