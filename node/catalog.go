package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// namespace is what the catalog needs of the lock service. The errors are those of
// raftmeta/api.
type namespace interface {
	Get(ctx context.Context, path string) (metaapi.File, error)
	Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error)
	Delete(ctx context.Context, path string, gen uint64) error
	List(ctx context.Context, dir string) ([]metaapi.Stat, error)
}

// catalog keeps schemas and tablets' metadata in the namespace.
type catalog struct {
	meta namespace
	// node is the id of the node whose tablets the catalog tells of.
	node string
}

const (
	clusterPath = "/cluster"
	idsPath     = "/ids"
	tablesDir   = "/tables"
	tabletsDir  = "/tablets"
	removedDir  = "/removed"
)

func tablePath(name string) string { return tablesDir + "/" + name }
func removedPath(id string) string { return removedDir + "/" + id }

func (c *catalog) tabletsDir() string { return tabletsDir + "/" + c.node }

func (c *catalog) tabletPath(id uint64) string { return fmt.Sprintf("%s/%016x", c.tabletsDir(), id) }

// Save implements tablet.Metadata.
func (c *catalog) Save(ctx context.Context, m *tablet.Meta, gen uint64) (uint64, error) {
	next, err := c.meta.Set(ctx, c.tabletPath(m.ID), tablet.EncodeMeta(m), gen)
	return next, metaError(err)
}

// metaError gives the namespace's errors the form in which a tablet server knows them.
func metaError(err error) error {
	switch {
	case errors.Is(err, metaapi.ErrGeneration), errors.Is(err, metaapi.ErrNotFound):
		return errors.Join(tablet.ErrMetaChanged, err)
	case errors.Is(err, metaapi.ErrTooLarge):
		return errors.Join(tablet.ErrMetaTooLarge, err)
	}
	return err
}

// Split implements tablet.Metadata. The ranges of tablets follow from their ends (see
// tablets), so the lower one's file is all that there is to write.
func (c *catalog) Split(ctx context.Context, lower, _ *tablet.Meta, _ uint64) (uint64, error) {
	return c.Save(ctx, lower, 0)
}

// Remove implements tablet.Metadata.
func (c *catalog) Remove(ctx context.Context, m *tablet.Meta, gen uint64) error {
	return metaError(c.meta.Delete(ctx, c.tabletPath(m.ID), gen))
}

// Load implements tablet.Metadata. It reads all tablets of the node, which a change of
// unknown outcome is worth.
func (c *catalog) Load(ctx context.Context, table uint64, end []byte) (*tablet.Meta, uint64, error) {
	all, err := c.metas(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, l := range all {
		if l.Meta.Table == table && string(l.Meta.End) == string(end) {
			return l.Meta, l.Gen, nil
		}
	}
	return nil, 0, fmt.Errorf("tablet of table %d that ends at %.64q: %w", table, end, tablet.ErrNoMeta)
}

// metas returns the metadata of all tablets of the node.
func (c *catalog) metas(ctx context.Context) ([]tablet.Load, error) {
	ids, err := c.list(ctx, c.tabletsDir())
	if err != nil {
		return nil, err
	}
	var all []tablet.Load
	for _, text := range ids {
		id, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("tablet id %q in the namespace: %w", text, err)
		}
		m, gen, err := c.load(ctx, id)
		if errors.Is(err, metaapi.ErrNotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, tablet.Load{Meta: m, Gen: gen})
	}
	return all, nil
}

func (c *catalog) load(ctx context.Context, id uint64) (*tablet.Meta, uint64, error) {
	f, err := c.meta.Get(ctx, c.tabletPath(id))
	if err != nil {
		return nil, 0, err
	}
	m, err := tablet.DecodeMeta(f.Data)
	if err != nil {
		return nil, 0, fmt.Errorf("metadata of tablet %d: %w", id, err)
	}
	return m, f.Generation, nil
}

// nextIDs returns the first of n ids that nobody else gets.
func (c *catalog) nextIDs(ctx context.Context, n uint64) (uint64, error) {
	for {
		next, gen := uint64(1), uint64(0)
		f, err := c.meta.Get(ctx, idsPath)
		switch {
		case err == nil && len(f.Data) == 8:
			next, gen = binary.BigEndian.Uint64(f.Data), f.Generation
		case err == nil:
			return 0, fmt.Errorf("%s holds %d bytes, want 8", idsPath, len(f.Data))
		case !errors.Is(err, metaapi.ErrNotFound):
			return 0, err
		}
		_, err = c.meta.Set(ctx, idsPath, binary.BigEndian.AppendUint64(nil, next+n), gen)
		switch {
		case errors.Is(err, metaapi.ErrGeneration):
			continue
		case errors.Is(err, metaapi.ErrOutcomeUnknown) && ctx.Err() == nil:
			continue // ids may be left out
		}
		return next, err
	}
}

// schema returns a table's schema and its generation. The error is api.ErrNoTable
// or the group's.
func (c *catalog) schema(ctx context.Context, name string) (*table.Schema, uint64, error) {
	return readSchema(ctx, c.meta, name)
}

// files is what readSchema needs of the lock service.
type files interface {
	Get(ctx context.Context, path string) (metaapi.File, error)
}

func readSchema(ctx context.Context, from files, name string) (*table.Schema, uint64, error) {
	f, err := from.Get(ctx, tablePath(name))
	if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrBadPath) {
		return nil, 0, fmt.Errorf("table %q: %w", name, api.ErrNoTable)
	}
	if err != nil {
		return nil, 0, err
	}
	d := wire.NewDecoder(f.Data)
	s, err := table.DecodeSchema(&d, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("schema of table %q: %w", name, err)
	}
	return s, f.Generation, nil
}

// saveSchema stores a schema if the table's is at generation gen, 0 being none.
// The error is api.ErrTableExists, api.ErrConflict or the group's.
func (c *catalog) saveSchema(ctx context.Context, s *table.Schema, gen uint64) error {
	e := wire.GetEncoder()
	defer e.Release()
	table.AppendSchema(e, s)
	_, err := c.set(ctx, tablePath(s.Name), append([]byte(nil), e.Bytes()...), gen)
	if changed := (*metaapi.GenerationError)(nil); errors.As(err, &changed) {
		if gen == 0 {
			return fmt.Errorf("table %q: %w", s.Name, api.ErrTableExists)
		}
		return fmt.Errorf("schema of table %q: %w", s.Name, api.ErrConflict)
	}
	return err
}

// names lists the tables.
func (c *catalog) names(ctx context.Context) ([]string, error) {
	return c.list(ctx, tablesDir)
}

func (c *catalog) list(ctx context.Context, dir string) ([]string, error) {
	stats, err := c.meta.List(ctx, dir)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, nil
	}
	names := make([]string, len(stats))
	for i := range stats {
		names[i] = path.Base(stats[i].Path)
	}
	return names, err
}

// tablets returns every tablet to be served. Metadata of tables that are no more,
// or never came to be, is removed.
func (c *catalog) tablets(ctx context.Context) ([]tablet.Load, error) {
	names, err := c.names(ctx)
	if err != nil {
		return nil, err
	}
	schemas := map[uint64]*table.Schema{}
	for _, name := range names {
		s, _, err := c.schema(ctx, name)
		if err != nil {
			return nil, err
		}
		schemas[s.ID] = s
	}
	all, err := c.metas(ctx)
	if err != nil {
		return nil, err
	}
	var loads []tablet.Load
	for _, l := range all {
		if l.Schema = schemas[l.Meta.Table]; l.Schema == nil {
			if err := c.meta.Delete(ctx, c.tabletPath(l.Meta.ID), l.Gen); err != nil {
				return nil, err
			}
			continue
		}
		loads = append(loads, l)
	}
	return loads, narrow(loads)
}

// narrow gives each tablet the rows from the end of the one before in its table.
func narrow(loads []tablet.Load) error {
	slices.SortFunc(loads, func(a, b tablet.Load) int {
		if c := cmp.Compare(a.Meta.Table, b.Meta.Table); c != 0 {
			return c
		}
		switch last := len(a.Meta.End) == 0; {
		case last != (len(b.Meta.End) == 0) && last:
			return 1
		case last != (len(b.Meta.End) == 0):
			return -1
		}
		return bytes.Compare(a.Meta.End, b.Meta.End)
	})
	for i, l := range loads {
		var start []byte
		if i > 0 && loads[i-1].Meta.Table == l.Meta.Table {
			start = loads[i-1].Meta.End
		}
		if err := l.Meta.Narrow(start); err != nil {
			return err
		}
	}
	return nil
}
