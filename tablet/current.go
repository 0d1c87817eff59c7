package tablet

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
)

// Schemas is the source of table schemas: the lock service, read through a session's consistent
// cache.
type Schemas interface {
	// Schema returns the schema of the table with that id and name, and its Version. The result has
	// another name if the table was dropped and is kept, or is not dropped any more: see
	// table.IsDropped. The error is api.ErrNoTable if the table was dropped for good, even if another
	// table has the name now.
	Schema(ctx context.Context, id uint64, name string) (*table.Schema, Version, error)
}

// Version is the version of a schema that was read. A schema change returns only when no server
// with a valid lease (Config.Serving) has a current Version of the previous schema.
type Version interface {
	// Current reports whether the schema has not changed since it was read. Once false it stays
	// false. It must be cheap and must not block. Its result has no meaning while Config.Serving
	// returns an error.
	Current() bool
	// Generation grows with each change of the schema, and is larger than that of any dropped table
	// with the same name.
	Generation() uint64
}

// current reports whether operations may use the schema. The caller calls checkServing first: a
// Version is valid only while the server's lease is.
func (s *schema) current() bool {
	return s.version == nil || s.version.Current() || planted.On(planted.SchemaNotChecked)
}

// missedChange is the Version of a schema that changed while a tablet was loaded, as servers had it that
// read schemas each second: see planted.DroppedTableServed.
type missedChange struct {
	Version
	until time.Time // when the schema is read again
}

// Current implements Version.
func (v *missedChange) Current() bool { return time.Now().Before(v.until) }

// follows reports whether the schema may replace old: it was read from the same or a later version
// of the table. The schemas of a tablet therefore follow each other in the order of their changes,
// and a compaction knows every family of which it finds cells.
func (s *schema) follows(old *schema) bool {
	switch {
	case s.version == nil || old.version == nil: // schemas without a version change by SetSchema only
		return s.version != nil
	case s.version.Generation() == old.version.Generation():
		return s.version.Current()
	}
	return s.version.Generation() > old.version.Generation()
}

// keepPointer makes s share old's table if they are equal, because derived values are cached by its
// pointer.
func (s *schema) keepPointer(old *schema) {
	if s.table != old.table && reflect.DeepEqual(s.table, old.table) {
		s.table = old.table
	}
}

// errStale means that an operation has not begun because its table's schema may have changed.
var errStale = errors.New("table schema must be read again")

const (
	// renewTimeout bounds how long an operation waits for a schema. A schema change takes longer
	// only if a server that has the old version neither answers nor loses its lease, and pending
	// writes only if the commit log makes no progress.
	renewTimeout = 5 * time.Second
	// renewalsMax bounds the schemas that RenewSchemas reads concurrently.
	renewalsMax = 16
)

// schemaRenewer keeps the schemas of served tables current.
type schemaRenewer struct {
	source Schemas
	life   *lifetime
	served *TabletMap
	drop   func(id uint64) error // of a table that no longer exists
}

// RenewSchemas reads the schemas of served tables that are not current, and drops the tablets of
// tables that no longer exist. It returns the first error, after renewing the other tables.
func (s *Server) RenewSchemas(ctx context.Context) error { return s.schemas.renewAll(ctx) }

// renewAll is Server.RenewSchemas.
func (r *schemaRenewer) renewAll(ctx context.Context) (err error) {
	results := make(chan error)
	under, next := 0, 0
	type stale struct {
		name string
		*served
	}
	var all []stale
	for name, sv := range *r.served.tables.Load() {
		if !sv.current() {
			all = append(all, stale{name, sv})
		}
	}
	for next < len(all) || under > 0 {
		if next < len(all) && under < renewalsMax {
			one := all[next]
			next, under = next+1, under+1
			go func() { results <- r.renewTable(ctx, one.name, one.served) }()
			continue
		}
		if failed := <-results; err == nil {
			err = failed
		}
		under--
	}
	return err
}

// renew makes the schema of a served table current, or stops serving the table if it was dropped. Errors: as renewTable.
func (r *schemaRenewer) renew(ctx context.Context, tableName string) error {
	if sv := (*r.served.tables.Load())[tableName]; sv != nil {
		return r.renewTable(ctx, tableName, sv)
	}
	return nil
}

// renewTable makes the schemas of a table's tablets current, and serves them by the table's name, which may have changed, or stops serving
// them if the table was dropped. Before it changes the schema of a tablet it waits for the pending writes of that tablet (T12). Concurrent
// callers wait for the first. Errors: ErrClosed, api.ErrUnavailable, ctx's.
//
// It waits for no other table. A table that loses its name to this one has a stale schema, and is renewed by renewAll.
func (r *schemaRenewer) renewTable(ctx context.Context, tableName string, sv *served) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	defer context.AfterFunc(r.life.ctx, cancel)()
	select {
	case sv.renewing <- struct{}{}:
		defer func() { <-sv.renewing }()
	case <-ctx.Done():
		return r.unavailable(ctx, tableName, ctx.Err())
	}
	if !r.served.stale(sv.id) {
		return nil
	}
	sc, v, err := r.source.Schema(ctx, sv.id, tableName)
	switch {
	case errors.Is(err, api.ErrNoTable):
		return r.drop(sv.id)
	case err != nil:
		return r.unavailable(ctx, tableName, err)
	}
	if !planted.On(planted.RenameNotFollowed) && !r.served.rename(sc.ID, sc.Name) {
		return fmt.Errorf("%w: table %d has lost the name %q again", api.ErrUnavailable, sc.ID, sc.Name)
	}
	if err := r.passWrites(ctx, sc, v); err != nil {
		if r.life.ctx.Err() != nil {
			return ErrClosed
		}
		return fmt.Errorf("%w: schema of table %q has changed, and writes that began before are pending in the commit log: %s",
			api.ErrUnavailable, tableName, err.Error())
	}
	r.adopt(sc, v)
	return nil
}

// passWrites returns when no write is pending that was checked by an earlier schema than sc, which
// was just read (T12). If the schema has not changed, it waits for none. Errors are those of ctx.
//
// A writer holds a latch from before it checks that its schema is current until its commit is done,
// and an earlier schema is not current. So once each latch has been free, no such writer is left,
// and none follows. This holds for tablets that are registered meanwhile, too: an earlier schema of
// theirs was not current any more when sc was read.
func (r *schemaRenewer) passWrites(ctx context.Context, sc *table.Schema, v Version) error {
	sv := (*r.served.tables.Load())[sc.Name]
	if sv == nil || sv.id != sc.ID {
		return nil
	}
	for _, t := range sv.tablets {
		if old := t.schema.Load(); old.current() || old.version.Generation() == v.Generation() {
			continue
		}
		if err := t.fence.latches.PassAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// unavailable returns the error of an operation that could not read its table's schema. Nothing was
// executed.
func (r *schemaRenewer) unavailable(ctx context.Context, tableName string, err error) error {
	if r.life.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: read schema of table %q, lock service unreachable or schema change pending: %s",
		api.ErrUnavailable, tableName, err.Error())
}

// current reports whether operations may use the table's schema.
func (sv *served) current() bool {
	for _, t := range sv.tablets {
		if !t.schema.Load().current() {
			return false
		}
	}
	return true
}

// adopt sets the schema of a table's tablets to one that was read, after passWrites.
func (r *schemaRenewer) adopt(sc *table.Schema, v Version) {
	r.served.mu.Lock()
	defer r.served.mu.Unlock()
	sv := (*r.served.tables.Load())[sc.Name]
	if sv == nil || sv.id != sc.ID {
		return
	}
	fresh := newSchema(sc, v)
	for _, t := range sv.tablets {
		if old := t.schema.Load(); fresh.follows(old) {
			fresh.keepPointer(old)
			t.unpinOthers(t.schema.Swap(fresh))
		}
	}
}

// set sets the schema of a table's tablets, whatever they have. The error is api.ErrNoTable.
func (r *schemaRenewer) set(sc *table.Schema) error {
	r.served.mu.Lock()
	defer r.served.mu.Unlock()
	tablets, err := r.served.tabletsOf(sc.Name)
	if err != nil {
		return err
	}
	compiled := newSchema(sc, nil)
	for _, t := range tablets {
		t.unpinOthers(t.schema.Swap(compiled))
	}
	return nil
}

// unifySchemas sets the schema of t, which is being registered, to the latest that its table's
// served tablets have. It does not change theirs: they may have pending writes, and an operation
// renews a schema that is not current. The map's mu is held.
func (sv *served) unifySchemas(t *Tablet) {
	last := t.schema.Load()
	for _, other := range sv.tablets {
		last.keepPointer(other.schema.Load())
	}
	for _, other := range sv.tablets {
		if sc := other.schema.Load(); sc.follows(last) {
			last = sc
		}
	}
	t.unpinOthers(t.schema.Swap(last))
}

// UnknownOutcomeError means that a mutation is in the commit log, but the server lost the proof that the
// tablet is its own before it answered. The next server of the tablet may or may not find the
// mutation in the log.
//
// It does not match its cause, which as an answer would mean that nothing was executed.
type UnknownOutcomeError struct{ Cause error }

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("mutation logged, but its outcome is unknown: %v", e.Cause)
}

// checkServing returns nil while the server provably holds the right to serve its tablets. It is
// called before an operation begins and before its answer is given. The second call is the one that
// counts: an operation may take any time, and the process may be suspended (I4).
func (s *Server) checkServing() error {
	if f := s.cfg.Serving; f != nil {
		return f()
	}
	return nil
}
