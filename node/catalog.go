package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// catalog keeps schemas and tablets' metadata in the namespace.
type catalog struct{ group *raftmeta.Group }

const (
	clusterPath = "/cluster"
	idsPath     = "/ids"
	tablesDir   = "/tables"
	tabletsDir  = "/tablets"
)

func tablePath(name string) string { return tablesDir + "/" + name }
func tabletPath(id uint64) string  { return fmt.Sprintf("%s/%016x", tabletsDir, id) }

// Save implements tablet.Metadata.
func (c *catalog) Save(ctx context.Context, m *tablet.Meta, gen uint64) (uint64, error) {
	next, err := c.group.Set(ctx, tabletPath(m.ID), tablet.EncodeMeta(m), gen)
	switch {
	case errors.Is(err, raftmeta.ErrGeneration):
		err = errors.Join(tablet.ErrMetaChanged, err)
	case errors.Is(err, raftmeta.ErrTooLarge):
		err = errors.Join(tablet.ErrMetaTooLarge, err)
	}
	return next, err
}

// Load implements tablet.Metadata.
func (c *catalog) Load(ctx context.Context, id uint64) (*tablet.Meta, uint64, error) {
	f, err := c.group.Get(ctx, tabletPath(id))
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
		f, err := c.group.Get(ctx, idsPath)
		switch {
		case err == nil && len(f.Data) == 8:
			next, gen = binary.BigEndian.Uint64(f.Data), f.Generation
		case err == nil:
			return 0, fmt.Errorf("%s holds %d bytes, want 8", idsPath, len(f.Data))
		case !errors.Is(err, raftmeta.ErrNotFound):
			return 0, err
		}
		_, err = c.group.Set(ctx, idsPath, binary.BigEndian.AppendUint64(nil, next+n), gen)
		switch {
		case errors.Is(err, raftmeta.ErrGeneration):
			continue
		case errors.Is(err, raftmeta.ErrOutcomeUnknown) && ctx.Err() == nil:
			continue // ids may be left out
		}
		return next, err
	}
}

// schema returns a table's schema and its generation. The error is api.ErrNoTable
// or the group's.
func (c *catalog) schema(ctx context.Context, name string) (*table.Schema, uint64, error) {
	f, err := c.group.Get(ctx, tablePath(name))
	if errors.Is(err, raftmeta.ErrNotFound) || errors.Is(err, raftmeta.ErrBadPath) {
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
	if changed := (*raftmeta.GenerationError)(nil); errors.As(err, &changed) {
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
	names, err := c.group.List(ctx, dir)
	if errors.Is(err, raftmeta.ErrNotFound) {
		return nil, nil
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
	ids, err := c.list(ctx, tabletsDir)
	if err != nil {
		return nil, err
	}
	var loads []tablet.Load
	for _, text := range ids {
		id, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("tablet id %q in the namespace: %w", text, err)
		}
		m, gen, err := c.Load(ctx, id)
		if err != nil {
			return nil, err
		}
		s := schemas[m.Table]
		if s == nil {
			if err := c.group.Delete(ctx, tabletPath(id), gen); err != nil {
				return nil, err
			}
			continue
		}
		loads = append(loads, tablet.Load{Meta: m, Gen: gen, Schema: s})
	}
	return loads, nil
}

// found puts the cluster's id into the namespace, unless it is there.
func (c *catalog) found(ctx context.Context, id string) error {
	e := wire.GetEncoder()
	defer e.Release()
	e.Map(2)
	e.Str("id")
	e.Str(id)
	e.Str("format")
	e.Int(1)
	_, err := c.group.Set(ctx, clusterPath, append([]byte(nil), e.Bytes()...), 0)
	if errors.Is(err, raftmeta.ErrGeneration) {
		return nil
	}
	return err
}

// cluster returns the cluster's id.
func (c *catalog) cluster(ctx context.Context) (string, error) {
	f, err := c.group.Get(ctx, clusterPath)
	if err != nil {
		return "", err
	}
	d := wire.NewDecoder(f.Data)
	id := ""
	for range d.Map() {
		if d.Str() == "id" {
			id = d.Str()
		} else {
			d.Skip()
		}
	}
	if err := d.Err(); err != nil || id == "" {
		return "", fmt.Errorf("%s does not tell the cluster's id: %w", clusterPath, err)
	}
	return id, nil
}
