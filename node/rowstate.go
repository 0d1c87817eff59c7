package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/tablet"
)

// rowState is the METADATA row of a loaded tablet. It is the only copy of the row's generation: each change of the row by this server
// starts from it.
type rowState struct {
	// mu guards row, and is held while the row is changed.
	mu  sync.Mutex
	row *metadata.Row
}

// remember records the row of a tablet that is being loaded.
func (s *tabletServer) remember(row *metadata.Row) *rowState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &rowState{row: row}
	s.mu.states[metarows.RefOf(row)] = st
	return st
}

// forget drops the row of a tablet that is no longer loaded.
func (s *tabletServer) forget(r tablet.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.states, r)
}

// forgetDropped removes the rows of dropped tables' tablets. A table may be missing among those served while one of its tablets is being
// loaded or unloaded.
func (s *tabletServer) forgetDropped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := map[uint64]bool{metadata.TableID: true}
	for _, id := range s.tablets.Served().Tables() {
		served[id] = true
	}
	maps.DeleteFunc(s.mu.states, func(r tablet.Ref, _ *rowState) bool {
		return !served[r.Table] && !s.mu.loading[string(metadata.Key(nil, r.Table, []byte(r.End)))]
	})
}

// state returns the row of a tablet, or nil if it is not loaded.
func (s *tabletServer) state(r tablet.Ref) *rowState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.states[r]
}

// recovered removes the dead servers from the row of a tablet that has been written out: it no longer needs their logs.
func (s *tabletServer) recovered(st *rowState) {
	ctx, cancel := context.WithTimeout(s.n.ctx, namespace.ChangeAttempt)
	defer cancel()
	st.mu.Lock()
	defer st.mu.Unlock()
	row := *st.row
	row.Recoveries = nil
	if err := s.rows.Replace(ctx, &row, "written out; needs no logs of others"); err != nil {
		s.log.Warn("recovered tablet not recorded; its next change records it", "table_id", row.Table, "end", row.End, "err", err)
		st.row.Recoveries = nil // written with the next change
		return
	}
	st.row = &row
}

// metaError converts an error about a row to one of tablet.Metadata.
func metaError(err error) error {
	switch {
	case errors.Is(err, metarows.ErrChanged):
		return errors.Join(tablet.ErrMetaChanged, err)
	case errors.Is(err, client.ErrClosed): // the node closes
		return errors.Join(tablet.ErrClosed, err)
	}
	return err
}

// Save implements tablet.Metadata.
func (s *tabletServer) Save(ctx context.Context, m *tablet.Meta) error {
	st := s.state(m.Ref())
	if st == nil {
		return fmt.Errorf("%v is not loaded here: %w: %w", m.Ref(), tablet.ErrMetaChanged, tablet.ErrMetaUnsent)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.serving(); err != nil {
		return errors.Join(tablet.ErrMetaChanged, tablet.ErrMetaUnsent, err)
	}
	row := *st.row
	row.Split = nil // an abandoned split: its lower part is outdated
	row.Meta = tablet.EncodeMeta(m)
	if err := s.rows.Replace(ctx, &row, s.merging(m)); err != nil {
		return metaError(err)
	}
	st.row = &row
	s.release(m)
	return nil
}

// release releases a tablet's files in the block store once METADATA names them: garbage collection finds them there.
func (s *tabletServer) release(m *tablet.Meta) {
	store := s.n.store.Load()
	for _, g := range m.Groups {
		for i := range g.Files {
			store.Release(g.Files[i].Handle.ID)
		}
	}
}

// Remove implements tablet.Metadata.
func (s *tabletServer) Remove(ctx context.Context, m *tablet.Meta) error {
	st := s.state(m.Ref())
	if st == nil {
		return fmt.Errorf("%v is not loaded here: %w", m.Ref(), tablet.ErrMetaChanged)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.serving(); err != nil {
		return err // retried: an earlier attempt may have succeeded
	}
	err := s.rows.Remove(ctx, st.row)
	if err == nil {
		s.forget(m.Ref())
	}
	return metaError(err)
}

// Load implements tablet.Metadata: it rereads the row after a change of unknown outcome.
func (s *tabletServer) Load(ctx context.Context, tableID uint64, end []byte) (*tablet.Meta, error) {
	row, err := s.rows.Get(ctx, tableID, end)
	if errors.Is(err, metarows.ErrNoRow) {
		return nil, errors.Join(tablet.ErrNoMeta, err)
	}
	if err != nil {
		return nil, metaError(err)
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		return nil, err
	}
	if row.Server != s.nameFor(row.Table) {
		return nil, fmt.Errorf("%w: tablet server %q has the tablet now", tablet.ErrMetaLost, row.Server)
	}
	st := s.state(metarows.RefOf(row))
	if st == nil { // created by a split of unknown outcome
		s.remember(row)
		return m, nil
	}
	st.mu.Lock()
	st.row = row
	st.mu.Unlock()
	return m, nil
}
