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
	"github.com/steledb/stele/tablet/ikey"
)

// Schemas is the source of table schemas: the lock service, read through a session's consistent cache.
type Schemas interface {
	// Schema returns the schema of the table with that id and name, and its Version. The error is api.ErrNoTable if
	// the table was dropped, also if another table has the name.
	Schema(ctx context.Context, id uint64, name string) (*table.Schema, Version, error)
}

// Version is the version of a schema that was read. A change of a schema returns only when no server whose lease
// holds (Config.Serving) has a current Version of what was there before.
type Version interface {
	// Current reports whether the schema has not changed since it was read. Once false it stays false. It must be
	// cheap, must not wait, and says nothing while Config.Serving returns an error.
	Current() bool
	// Generation grows with each change of the schema, and is larger than that of any dropped table by the same name.
	Generation() uint64
}

// current reports whether operations may use the schema. The caller asks provable first: a Version counts only while
// the server's lease holds.
func (s *schema) current() bool {
	return s.version == nil || s.version.Current() || planted.On(planted.SchemaNotChecked)
}

// follows reports whether the schema may take the place of another: it was read of the same or a later version of the
// table. So the schemas of a tablet succeed each other in the order of their changes, and a compaction knows each family of
// which it finds cells.
func (s *schema) follows(old *schema) bool {
	switch {
	case s.version == nil || old.version == nil: // SetSchema alone changes one without
		return s.version != nil
	case s.version.Generation() == old.version.Generation():
		return s.version.Current()
	}
	return s.version.Generation() > old.version.Generation()
}

// keepPointer gives s the table of old if they are equal: what was made of that is found by its pointer.
func (s *schema) keepPointer(old *schema) {
	if s.table != old.table && reflect.DeepEqual(s.table, old.table) {
		s.table = old.table
	}
}

// errStale means that an operation has not begun, because the schema of its table may have changed.
var errStale = errors.New("schema of the table is to be read again")

const (
	// renewTimeout bounds how long an operation waits for a schema. A change of the schema takes longer only if
	// a server that has its old version neither answers nor loses its lease.
	renewTimeout = 5 * time.Second
	// renewalsMax is how many schemas RenewSchemas reads at a time.
	renewalsMax = 16
)

// RenewSchemas reads the schemas of served tables that are not current, and drops the tablets of tables that are gone. It
// returns the first error; the other tables are renewed all the same.
func (s *Server) RenewSchemas(ctx context.Context) (err error) {
	results := make(chan error)
	under, next := 0, 0
	var names []string
	for name, sv := range *s.tables.Load() {
		if len(sv.tablets) > 0 && !sv.current() {
			names = append(names, name)
		}
	}
	for next < len(names) || under > 0 {
		if next < len(names) && under < renewalsMax {
			name := names[next]
			next, under = next+1, under+1
			go func() { results <- s.renewSchema(ctx, name) }()
			continue
		}
		if failed := <-results; err == nil {
			err = failed
		}
		under--
	}
	return err
}

// renewSchema makes the schema by which a table is served current, or stops serving the table if it was dropped. Callers
// that come meanwhile wait for the first. Errors: ErrClosed, api.ErrUnavailable, ctx's.
func (s *Server) renewSchema(ctx context.Context, tableName string) error {
	sv := (*s.tables.Load())[tableName]
	if sv == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	renewing := sv.renewing
	select {
	case renewing <- struct{}{}:
		defer func() { <-renewing }()
	case <-ctx.Done():
		return s.renewError(ctx, tableName, ctx.Err())
	}
	if sv = (*s.tables.Load())[tableName]; sv == nil || sv.current() {
		return nil
	}
	sc, v, err := s.cfg.Schemas.Schema(ctx, sv.id, tableName)
	switch {
	case errors.Is(err, api.ErrNoTable):
		return s.dropTable(tableName, sv.id)
	case err != nil:
		return s.renewError(ctx, tableName, err)
	}
	s.adopt(sc, v)
	return nil
}

// renewError is the error of an operation that could not learn the schema of its table. Nothing was executed.
func (s *Server) renewError(ctx context.Context, tableName string, err error) error {
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: schema of table %q is not known, as the lock service does not answer or a change of it is under way: %s",
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

// adopt has a table served by a schema that was read.
func (s *Server) adopt(sc *table.Schema, v Version) {
	s.tablesMu.Lock()
	defer s.tablesMu.Unlock()
	sv := (*s.tables.Load())[sc.Name]
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

// agree gives a tablet that is registered, and those of its table that are served, the latest of their schemas. tablesMu
// is held.
func (sv *served) agree(t *Tablet) {
	last := t.schema.Load()
	for _, other := range sv.tablets {
		last.keepPointer(other.schema.Load())
	}
	for _, other := range sv.tablets {
		if sc := other.schema.Load(); sc.follows(last) {
			last = sc
		}
	}
	for _, other := range append(sv.tablets[:len(sv.tablets):len(sv.tablets)], t) {
		if old := other.schema.Load(); last.follows(old) {
			other.unpinOthers(other.schema.Swap(last))
		}
	}
}

// settle answers a write that is durable, and whose schema changed before its answer was given: as acknowledged if all
// families that it writes are those of the table still, otherwise with an *UnsureError.
func (w *write) settle() {
	s, t := w.server, w.tablet
	ctx, cancel := context.WithTimeout(s.ctx, renewTimeout)
	defer cancel()
	var err error
	for {
		sc, v, lookErr := s.cfg.Schemas.Schema(ctx, t.table, w.schema.table.Name)
		if lookErr != nil {
			err = &UnsureError{Cause: lookErr}
			break
		}
		if err = w.lost(newSchema(sc, v)); err != nil {
			break
		}
		if cause := s.provable(); cause != nil {
			err = &UnsureError{Cause: cause}
			break
		}
		if v.Current() {
			break
		}
	}
	w.end(err)
}

// lost returns an *UnsureError if the write is of a family that a schema does not have.
func (w *write) lost(now *schema) error {
	c := &w.commit
	_, err := eachEntry(c.Body, c.First, c.Time, nil, func(key, _ []byte) error {
		if id := ikey.FamilyOf(key); id != 0 && !now.hasFamily(id) {
			return fmt.Errorf("a family that it writes was dropped: %w", table.ErrNoFamily)
		}
		return nil
	})
	if err != nil {
		return &UnsureError{Cause: err}
	}
	return nil
}

// hasFamily reports whether the schema has the family of that id.
func (s *schema) hasFamily(id uint32) bool {
	for i := range s.families {
		if s.families[i].ID == id {
			return true
		}
	}
	return false
}
