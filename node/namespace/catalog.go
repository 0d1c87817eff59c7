package namespace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// Files is the part of the lock service that the catalog uses. The errors are those of raftmeta/api.
type Files interface {
	Get(ctx context.Context, path string) (metaapi.File, error)
	Stat(ctx context.Context, path string) (metaapi.Stat, error)
	Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)
	// SetGuarded is Set, subject to a guard.
	SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error)
	Delete(ctx context.Context, path string, gen uint64) error
	// DeleteGuarded is Delete, subject to a guard.
	DeleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error
	List(ctx context.Context, dir string) ([]metaapi.Stat, error)
}

// Catalog stores schemas in the namespace.
type Catalog struct{ Meta Files }

const (
	ClusterPath = "/cluster"
	IDsPath     = "/ids"
	TablesDir   = "/tables"
	// NodesDir holds a file for each node of the cluster, whether it is up or not: gossip forgets nodes, and does not hold operators'
	// decisions.
	NodesDir   = "/nodes"
	RemovedDir = "/removed"
	LogsDir    = "/logs"
	// RecoveryDir has a file for each dead server whose logs are being sorted, or are sorted and needed.
	RecoveryDir = "/recovery"
	// BlobsDir has a file for each stored blob: the blob exists, and is kept, while its file exists.
	BlobsDir = "/blobs"
	// ACLDir holds principals and grants (package security/acl), securityDir the join tokens.
	ACLDir      = "/acl"
	SecurityDir = "/security"
)

// TablePath returns the path of a table's schema.
func TablePath(name string) string { return TablesDir + "/" + name }

// RecoveryPath returns the path of the file of a dead server's recovery.
func RecoveryPath(server string) string { return RecoveryDir + "/" + server }

// NodePath returns the path of the file of a node.
func NodePath(id string) string { return NodesDir + "/" + id }

// RemovedPath returns the path of the mark of a removed node.
func RemovedPath(id string) string { return RemovedDir + "/" + id }

// RecoveredIDs is the number of ids that are skipped after a recovery of the lock service. The survivor may lack the last
// changes of /ids, so the skipped ids may belong to tables and tablets. A cluster that splits 20 tablets a second takes months to
// use that many.
const RecoveredIDs = 1 << 28

// errNoIDs means that all ids are used. Each recovery of the lock service uses recoveredIDs of them.
var errNoIDs = fmt.Errorf("ids of tables and tablets are used up: none is left below %d", metadata.EndID)

// NextIDs returns the first of n consecutive ids that are never issued again.
func (c *Catalog) NextIDs(ctx context.Context, n uint64) (uint64, error) {
	for {
		next, gen := metadata.FirstID, uint64(0)
		f, err := c.Meta.Get(ctx, IDsPath)
		switch {
		case err == nil && len(f.Data) == 8:
			next, gen = binary.BigEndian.Uint64(f.Data), f.Generation
		case err == nil:
			return 0, fmt.Errorf("%s holds %d bytes, want 8", IDsPath, len(f.Data))
		case !errors.Is(err, metaapi.ErrNotFound):
			return 0, err
		}
		if next > metadata.EndID || n > metadata.EndID-next {
			return 0, errNoIDs
		}
		_, err = c.Meta.Set(ctx, IDsPath, binary.BigEndian.AppendUint64(nil, next+n), gen)
		switch {
		case errors.Is(err, metaapi.ErrGeneration):
			continue
		case errors.Is(err, metaapi.ErrOutcomeUnknown) && ctx.Err() == nil:
			continue // ids may be skipped
		}
		return next, err
	}
}

// SkipIDs moves /ids past every id that the lost voters of a recovered lock service may have issued.
func (c *Catalog) SkipIDs(ctx context.Context) error {
	_, err := c.NextIDs(ctx, RecoveredIDs)
	return err
}

// Schema returns a table's schema and its generation. The error is api.ErrNoTable or that of the lock service.
func (c *Catalog) Schema(ctx context.Context, name string) (*table.Schema, uint64, error) {
	return ReadSchema(ctx, c.Meta, name)
}

// files is the part of the lock service that readSchema uses.
type files interface {
	Get(ctx context.Context, path string) (metaapi.File, error)
}

// ReadSchema returns a table's schema and its generation. The error is api.ErrNoTable or that of the lock service.
func ReadSchema(ctx context.Context, from files, name string) (*table.Schema, uint64, error) {
	s, _, gen, err := ReadTable(ctx, from, name)
	return s, gen, err
}

// ReadTable also returns the split points of a table whose first tablets have not all been created.
func ReadTable(ctx context.Context, from files, name string) (*table.Schema, *SplitPoints, uint64, error) {
	if table.IsDropped(name) {
		return nil, nil, 0, NoSuchTable(name)
	}
	return readFile(ctx, from, name)
}

// readFile is ReadTable for the name of a file, which may be that of a dropped table.
func readFile(ctx context.Context, from files, name string) (*table.Schema, *SplitPoints, uint64, error) {
	f, err := from.Get(ctx, TablePath(name))
	if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrBadPath) {
		return nil, nil, 0, fmt.Errorf("table %q: %w", name, api.ErrNoTable)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	d := wire.NewDecoder(f.Data)
	s, err := table.DecodeSchema(&d, nil)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("schema of table %q: %w", name, err)
	}
	c, err := decodeSplitPoints(&d)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("first tablets of table %q: %w", name, err)
	}
	return s, c, f.Generation, nil
}

// AlterEach changes the schemas of all tables, and those of dropped ones that are kept, within a change of the master. edit returns nil for a schema that
// stays. After an error some are changed.
func (c *Catalog) AlterEach(ctx context.Context, edit func(*table.Schema) *table.Schema) error {
	names, err := c.List(ctx, TablesDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		old, cut, gen, err := readFile(ctx, c.Meta, name)
		if errors.Is(err, api.ErrNoTable) {
			continue
		}
		if err != nil {
			return err
		}
		if s := edit(old); s != nil {
			if _, err := c.Set(ctx, TablePath(name), encodeTable(s, cut), gen); err != nil {
				return fmt.Errorf("schema of table %q: %w", name, err)
			}
		}
	}
	return nil
}

// SaveTable stores a schema, and the split points of a new table, if the file is at generation gen; 0 means that it must not
// exist. The error is api.ErrTableExists, api.ErrConflict, an unknown outcome, or that of the lock service.
func (c *Catalog) SaveTable(ctx context.Context, s *table.Schema, cut *SplitPoints, gen uint64) error {
	_, err := c.Set(ctx, TablePath(s.Name), encodeTable(s, cut), gen)
	switch {
	case errors.Is(err, metaapi.ErrOutcomeUnknown):
		if now, _, readErr := c.Schema(ctx, s.Name); gen == 0 && readErr == nil && now.ID == s.ID {
			return nil // it was created, and its file changed since
		}
		return err
	case errors.Is(err, metaapi.ErrGeneration) && gen == 0:
		return fmt.Errorf("table %q: %w", s.Name, api.ErrTableExists)
	case errors.Is(err, metaapi.ErrGeneration):
		return fmt.Errorf("schema of table %q: %w", s.Name, api.ErrConflict)
	}
	return err
}

// encodeTable returns the content of the file of a table.
func encodeTable(s *table.Schema, cut *SplitPoints) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	table.AppendSchema(e, s)
	if cut != nil {
		cut.append(e)
	}
	return slices.Clone(e.Bytes())
}

// RenameTable gives the table that is named from, whose file is at generation gen, the name in s. It is one write: at each moment the table has exactly
// one name (NS4). The error is api.ErrTableExists, api.ErrNoTable, api.ErrConflict, an unknown outcome, or that of the lock service.
func (c *Catalog) RenameTable(ctx context.Context, from string, gen uint64, s *table.Schema, cut *SplitPoints) error {
	return c.move(ctx, from, gen, s.Name, encodeTable(s, cut))
}

// move renames the file of a table, which is at generation gen, and writes it, in one step.
func (c *Catalog) move(ctx context.Context, from string, gen uint64, to string, data []byte) error {
	o := MastershipIn(ctx).options()
	o.From, o.FromGeneration = TablePath(from), gen
	_, err := c.SetWith(ctx, TablePath(to), data, 0, o)
	var changed *metaapi.GenerationError
	switch {
	case errors.Is(err, metaapi.ErrOutcomeUnknown) || !errors.As(err, &changed):
		return err
	case changed.Path == TablePath(to):
		return fmt.Errorf("table %q: %w", to, api.ErrTableExists)
	case changed.Got == 0:
		return NoSuchTable(from)
	}
	return fmt.Errorf("schema of table %q: %w", from, api.ErrConflict)
}

// Names lists the tables, without dropped ones.
func (c *Catalog) Names(ctx context.Context) ([]string, error) {
	names, err := c.List(ctx, TablesDir)
	return slices.DeleteFunc(names, table.IsDropped), err
}

// List returns the names of the files in a directory; none if there is no directory.
func (c *Catalog) List(ctx context.Context, dir string) ([]string, error) {
	stats, err := c.Meta.List(ctx, dir)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, nil
	}
	names := make([]string, len(stats))
	for i := range stats {
		names[i] = path.Base(stats[i].Path)
	}
	return names, err
}

// NoSuchTable returns the error for a table that does not exist, or of which the caller may see nothing.
func NoSuchTable(name string) error { return fmt.Errorf("table %q: %w", name, api.ErrNoTable) }

// LocksDir is the directory that users with write access to the cluster may use. All other paths belong to the nodes.
const LocksDir = "/locks"

// ServersDir holds a file for each node. The process that holds the file's lock is the node (I4). A process started on a copy of a
// node's data directories cannot get the lock.
const ServersDir = "/servers"
