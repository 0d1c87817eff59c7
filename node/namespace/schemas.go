package namespace

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Schemas reads the schemas of tables for a tablet server, through the session that holds the server's lock. A change of a
// table's file commits when every server that read it has dropped what it read, or has lost its lock (I15). It implements
// tablet.Schemas.
type Schemas struct {
	Session *session.Session

	// mu guards the field in it. Never held across I/O.
	mu struct {
		sync.Mutex
		// known are the tables that were looked up by id. An id is never reused.
		known map[string]knownTable // by name
	}
}

// knownTable is the id of a table, and the instance of the file that it was read from.
type knownTable struct{ id, instance uint64 }

// NewSchemas returns the schemas that a session reads.
func NewSchemas(s *session.Session) *Schemas {
	f := &Schemas{Session: s}
	f.mu.known = map[string]knownTable{}
	return f
}

// Pauses between reads of a schema that cannot be cached because it is being changed.
const (
	schemaPauseMin = time.Millisecond
	schemaPauseMax = 50 * time.Millisecond
)

// Schema implements tablet.Schemas. Further errors are those of reading, and of ctx.
func (f *Schemas) Schema(ctx context.Context, id uint64, name string) (*table.Schema, tablet.Version, error) {
	pauses := timing.Backoff{Min: schemaPauseMin, Max: schemaPauseMax}
	for {
		file, v, err := f.Session.GetVersion(ctx, TablePath(name))
		if errors.Is(err, metaapi.ErrNotFound) {
			return nil, nil, NoSuchTable(name)
		}
		if err != nil {
			return nil, nil, err
		}
		s, err := decodeSchema(name, file.Data)
		if err != nil {
			return nil, nil, err
		}
		if s.ID != id {
			return nil, nil, NoSuchTable(name)
		}
		if v != nil {
			return s, v, nil
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return nil, nil, fmt.Errorf("schema of table %q is being changed: %w", name, ctx.Err())
		}
	}
}

func decodeSchema(name string, data []byte) (*table.Schema, error) {
	d := wire.NewDecoder(data)
	s, err := table.DecodeSchema(&d, nil)
	if err != nil {
		return nil, fmt.Errorf("schema of table %q: %w", name, err)
	}
	return s, nil
}

// ByID is Schema for the table with an id. The error is api.ErrNoTable if there is none.
func (f *Schemas) ByID(ctx context.Context, id uint64) (*table.Schema, tablet.Version, error) {
	name := f.name(id)
	if name == "" {
		if err := f.learn(ctx); err != nil {
			return nil, nil, err
		}
		if name = f.name(id); name == "" {
			return nil, nil, fmt.Errorf("table with id %d: %w", id, api.ErrNoTable)
		}
	}
	return f.Schema(ctx, id, name)
}

// name returns the name of the table with an id, or "" if it is unknown. A table's name never changes.
func (f *Schemas) name(id uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, t := range f.mu.known {
		if t.id == id {
			return name
		}
	}
	return ""
}

// learn reads the ids of tables created since the last call, and forgets dropped ones.
func (f *Schemas) learn(ctx context.Context) error {
	files, err := f.Session.List(ctx, TablesDir)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return err
	}
	f.mu.Lock()
	old := f.mu.known
	f.mu.Unlock()
	known := make(map[string]knownTable, len(files))
	for _, at := range files {
		name := path.Base(at.Path)
		if t, ok := old[name]; ok && t.instance == at.Instance {
			known[name] = t
			continue
		}
		file, err := f.Session.Get(ctx, at.Path)
		if errors.Is(err, metaapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s, err := decodeSchema(name, file.Data)
		if err != nil {
			return err
		}
		known[name] = knownTable{s.ID, file.Instance}
	}
	f.mu.Lock()
	f.mu.known = known
	f.mu.Unlock()
	return nil
}
