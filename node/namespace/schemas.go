package namespace

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
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
		// known are the files of tables that were read for their ids. An id is never reused.
		known map[string]knownTable // by name
		// names are those of tables, as of the last look at all.
		names map[uint64]string
	}
}

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

// Schema implements tablet.Schemas. The result may have another name: the table was dropped and is kept, or is not dropped any more. Further errors
// are those of reading, and of ctx.
func (f *Schemas) Schema(ctx context.Context, id uint64, name string) (*table.Schema, tablet.Version, error) {
	pauses := timing.Backoff{Min: schemaPauseMin, Max: schemaPauseMax}
	for {
		s, v, err := f.read(ctx, id, name)
		switch {
		case errors.Is(err, api.ErrNoTable):
			names, err := f.learn(ctx)
			if err != nil {
				return nil, nil, err
			}
			if name = names[id]; name == "" || planted.On(planted.KeptTableDiscarded) && table.IsDropped(name) {
				return nil, nil, fmt.Errorf("table with id %d: %w", id, api.ErrNoTable)
			}
		case err != nil || v != nil:
			return s, v, err
		}
		if pauses.Sleep(ctx); ctx.Err() != nil {
			return nil, nil, fmt.Errorf("schema of table %q is being changed: %w", name, ctx.Err())
		}
	}
}

// read reads the schema of the table with that id and name. The version is nil while it is being changed. The error is api.ErrNoTable if the table does
// not have the name.
func (f *Schemas) read(ctx context.Context, id uint64, name string) (*table.Schema, tablet.Version, error) {
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
	if v == nil {
		return s, nil, nil
	}
	s.Name = name
	return s, v, nil
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
		names, err := f.learn(ctx)
		if err != nil {
			return nil, nil, err
		}
		if name = names[id]; name == "" {
			return nil, nil, fmt.Errorf("table with id %d: %w", id, api.ErrNoTable)
		}
	}
	return f.Schema(ctx, id, name)
}

// name returns the name of the table with an id when the directory was last read, or "" if it was not there.
func (f *Schemas) name(id uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.names[id]
}

// learn reads and returns the names of all tables by id. The ids of files that were read before are known. That a table is missing counts only in
// the result: names may be those that another caller has read before, and stored later.
func (f *Schemas) learn(ctx context.Context) (map[uint64]string, error) {
	f.mu.Lock()
	old := f.mu.known
	f.mu.Unlock()
	known := map[string]knownTable{}
	names, err := idsOf(func() ([]metaapi.Stat, error) { return f.Session.List(ctx, TablesDir) }, func(at *metaapi.Stat) (uint64, error) {
		name := path.Base(at.Path)
		t, ok := old[name]
		if !ok || t.instance != at.Instance {
			var err error
			if t, err = readKnown(ctx, f.Session, at); err != nil {
				return 0, err
			}
		}
		known[name] = t
		return t.id, nil
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.known, f.mu.names = known, names
	return names, nil
}
