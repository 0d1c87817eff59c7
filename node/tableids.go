package node

import (
	"context"
	"errors"
	"path"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// tables returns the names of all tables by id.
func (m *metaAccess) tables(ctx context.Context) (map[uint64]string, error) {
	files, err := m.List(ctx, tablesDir)
	tables := map[uint64]string{}
	if errors.Is(err, metaapi.ErrNotFound) {
		return tables, nil
	}
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := path.Base(f.Path)
		s, _, err := readSchema(ctx, m.current(), name)
		if errors.Is(err, api.ErrNoTable) {
			continue
		}
		if err != nil {
			return nil, err
		}
		tables[s.ID] = name
	}
	return tables, nil
}

// schemaOf returns the schema of a table, which may be METADATA.
func (c *catalog) schemaOf(ctx context.Context, name string) (*table.Schema, error) {
	if name == metadata.Name {
		return metadata.Schema(), nil
	}
	s, _, err := c.schema(ctx, name)
	return s, err
}

// instancesAlive returns the tablet servers that hold their locks.
func (m *metaAccess) instancesAlive(ctx context.Context) (map[string]bool, error) {
	files, err := m.List(ctx, serversDir)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	alive := map[string]bool{}
	for _, f := range files {
		if f.Lock == metaapi.Exclusive {
			alive[serverName(path.Base(f.Path), f.LockGeneration)] = true
		}
	}
	return alive, nil
}
