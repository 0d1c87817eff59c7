package tabletserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/tablet"
)

// Rows has the METADATA rows of a server's loaded tablets. Each has the only copy of its row's generation: every change of the row by this
// server starts from it. It implements tablet.Metadata for both tablet servers.
type Rows struct {
	s *Server
	// merges has the tablets that are being merged with the one below: the end of the lower one, by tablet.Ref.
	merges sync.Map
	// mu guards the fields in it. Never held across I/O. Before the lock of Busy.
	mu struct {
		sync.Mutex
		states map[tablet.Ref]*rowState
	}
}

func newRows(s *Server) *Rows {
	r := &Rows{s: s}
	r.mu.states = map[tablet.Ref]*rowState{}
	return r
}

// rowState is the METADATA row of a loaded tablet.
type rowState struct {
	// mu guards row, and is held while the row is changed.
	mu  sync.Mutex
	row *metadata.Row
}

// changeLocked edits a copy of the row and writes it to METADATA, with an event unless that is empty.
func (st *rowState) changeLocked(ctx context.Context, table *metarows.Table, event string, edit func(row *metadata.Row)) error {
	row := *st.row
	edit(&row)
	if err := table.Replace(ctx, &row, event); err != nil {
		return err
	}
	st.row = &row
	return nil
}

// Change changes the row of a loaded tablet, with an event unless that is empty. It returns false if the tablet is not loaded.
func (r *Rows) Change(ctx context.Context, ref tablet.Ref, event string, edit func(row *metadata.Row)) (loaded bool, err error) {
	st := r.state(ref)
	if st == nil {
		return false, nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return true, st.changeLocked(ctx, r.s.table, event, edit)
}

// Tablets returns the tablets whose rows it has.
func (r *Rows) Tablets() []tablet.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.mu.states))
}

// remember records the row of a tablet that is being loaded.
func (r *Rows) remember(row *metadata.Row) *rowState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &rowState{row: row}
	r.mu.states[metarows.RefOf(row)] = st
	return st
}

// forget drops the row of a tablet that is no longer loaded.
func (r *Rows) forget(ref tablet.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.states, ref)
}

// forgetDropped removes the rows of dropped tables' tablets. A table may be missing among those served while one of its tablets is being
// loaded or unloaded.
func (r *Rows) forgetDropped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Before the tables: a load that ends in between has made its table served.
	var idle []tablet.Ref
	for ref := range r.mu.states {
		if !r.s.Busy.has(metadata.Key(nil, ref.Table, []byte(ref.End))) {
			idle = append(idle, ref)
		}
	}
	served := map[uint64]bool{metadata.TableID: true}
	for _, id := range r.s.Users.Served().Tables() {
		served[id] = true
	}
	for _, ref := range idle {
		if !served[ref.Table] {
			delete(r.mu.states, ref)
		}
	}
}

// state returns the row of a tablet, or nil if it is not loaded.
func (r *Rows) state(ref tablet.Ref) *rowState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.states[ref]
}

// recovered removes the dead servers from the row of a tablet that has been written out: it no longer needs their logs.
func (r *Rows) recovered(st *rowState) {
	ctx, cancel := context.WithTimeout(r.s.Ctx, namespace.ChangeAttempt)
	defer cancel()
	st.mu.Lock()
	defer st.mu.Unlock()
	row := *st.row
	if err := st.changeLocked(ctx, r.s.table, "written out; needs no logs of others", func(row *metadata.Row) { row.Recoveries = nil }); err != nil {
		r.s.log.Warn("recovered tablet not recorded; its next change records it", "table_id", row.Table, "end", row.End, "err", err)
		st.row.Recoveries = nil // written with the next change
	}
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
func (r *Rows) Save(ctx context.Context, m *tablet.Meta) error {
	st := r.state(m.Ref())
	if st == nil {
		return fmt.Errorf("%v is not loaded here: %w: %w", m.Ref(), tablet.ErrMetaChanged, tablet.ErrMetaUnsent)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := r.s.Serving(); err != nil {
		return errors.Join(tablet.ErrMetaChanged, tablet.ErrMetaUnsent, err)
	}
	err := st.changeLocked(ctx, r.s.table, r.mergeEvent(m), func(row *metadata.Row) {
		row.Split = nil // an abandoned split: its lower part is outdated
		row.Meta = tablet.EncodeMeta(m)
	})
	if err != nil {
		return metaError(err)
	}
	r.unpin(m)
	return nil
}

// mergeEvent returns the event of a change that gives a tablet the rows of the one below it, or "" for other changes.
//
// Like every change, it also clears a split under way: otherwise the next server would create the row of the lower part again, which
// the merge removes.
func (r *Rows) mergeEvent(m *tablet.Meta) string {
	if at, ok := r.merges.Load(m.Ref()); ok && string(m.Start) < at.(string) {
		return fmt.Sprintf("merged with the tablet that ended at row %.64q on %s", at, r.s.Name)
	}
	return ""
}

// unpin releases a tablet's files in the block store once METADATA names them: garbage collection finds them there.
func (r *Rows) unpin(m *tablet.Meta) {
	store := r.s.Store()
	_ = m.EachBlob(func(h blobfs.Handle) error {
		store.Release(h.ID)
		return nil
	})
}

// Remove implements tablet.Metadata.
func (r *Rows) Remove(ctx context.Context, m *tablet.Meta) error {
	st := r.state(m.Ref())
	if st == nil {
		return fmt.Errorf("%v is not loaded here: %w", m.Ref(), tablet.ErrMetaChanged)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := r.s.Serving(); err != nil {
		return err // retried: an earlier attempt may have succeeded
	}
	err := r.s.table.Remove(ctx, st.row)
	if err == nil {
		r.forget(m.Ref())
	}
	return metaError(err)
}

// Load implements tablet.Metadata: it rereads the row after a change of unknown outcome.
func (r *Rows) Load(ctx context.Context, tableID uint64, end []byte) (*tablet.Meta, error) {
	row, err := r.s.table.Get(ctx, tableID, end)
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
	if row.Server != r.s.nameFor(row.Table) {
		return nil, fmt.Errorf("%w: tablet server %q has the tablet now", tablet.ErrMetaLost, row.Server)
	}
	st := r.state(metarows.RefOf(row))
	if st == nil { // created by a split of unknown outcome
		r.remember(row)
		return m, nil
	}
	st.mu.Lock()
	st.row = row
	st.mu.Unlock()
	return m, nil
}

var (
	// RootTablet is METADATA's first tablet.
	RootTablet = tablet.Ref{Table: metadata.TableID, End: string(metadata.RootEnd())}
	// ErrRootSplit means that the root tablet cannot be split.
	ErrRootSplit = errors.New("the root tablet is never split")
)

// Split implements tablet.Metadata. First the upper tablet's row records what is split off, which only its server can write. Then the
// lower tablet's row is created. If that does not happen, the next server of the upper tablet creates it, so it cannot appear later
// when no server expects it.
func (r *Rows) Split(ctx context.Context, lower, upper *tablet.Meta) error {
	if metarows.IsRoot(upper.Table, upper.End) {
		return errors.Join(tablet.ErrMetaChanged, ErrRootSplit)
	}
	st := r.state(upper.Ref())
	if st == nil {
		return fmt.Errorf("%v is not loaded here: %w", upper.Ref(), tablet.ErrMetaChanged)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := r.s.Serving(); err != nil {
		return err // retried: an earlier attempt may have succeeded
	}
	// Otherwise a reader that reads one row before it exists and the other after it is written
	// out could conclude that the sorted logs are not needed.
	if len(st.row.Recoveries) > 0 {
		return errors.Join(tablet.ErrMetaChanged, errors.New("tablet is being recovered; split it later"))
	}
	event := fmt.Sprintf("split after row %.64q, tablet %d has what is below", lower.End, lower.ID)
	if err := st.changeLocked(ctx, r.s.table, event, func(row *metadata.Row) { row.Split = tablet.EncodeMeta(lower) }); err != nil {
		return metaError(err)
	}
	below := &metadata.Row{
		Table: lower.Table, End: lower.End, Generation: metadata.FirstGeneration(lower.ID), Server: r.s.nameFor(lower.Table), Addr: r.s.Addr(),
		Meta: st.row.Split, Recoveries: st.row.Recoveries,
	}
	if err := r.s.table.Create(ctx, below, fmt.Sprintf("split off tablet %d on %s", upper.ID, r.s.Name)); err != nil {
		return metaError(err)
	}
	done := *st.row
	done.Split = nil // written with the next change
	st.row = &done
	r.remember(below)
	r.s.Commands.NudgeMaster(ctx)
	return nil
}
