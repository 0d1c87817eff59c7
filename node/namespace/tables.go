package namespace

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// Tables returns the names of all tables by id, as they were at one moment. Dropped ones that are kept are among them: see table.IsDropped.
func (m *Access) Tables(ctx context.Context) (map[uint64]string, error) {
	return idsOf(func() ([]metaapi.Stat, error) { return m.List(ctx, TablesDir) }, func(at *metaapi.Stat) (uint64, error) {
		t, err := readKnown(ctx, m.Current(), at)
		return t.id, err
	})
}

// SchemaByID returns the schema of the table with an id, which may be a dropped one that is kept. Its name is that of its file, under which its
// tablets are served. The error is api.ErrNoTable if there is none.
func (c *Catalog) SchemaByID(ctx context.Context, id uint64) (*table.Schema, error) {
	for range listings {
		names, err := idsOf(func() ([]metaapi.Stat, error) { return c.Meta.List(ctx, TablesDir) }, func(at *metaapi.Stat) (uint64, error) {
			t, err := readKnown(ctx, c.Meta, at)
			return t.id, err
		})
		if err != nil {
			return nil, err
		}
		name := names[id]
		if name == "" {
			break
		}
		f, err := c.Meta.Get(ctx, TablePath(name))
		if errors.Is(err, metaapi.ErrNotFound) { // renamed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := decodeSchema(name, f.Data)
		if err == nil && s.ID != id {
			continue
		}
		if err == nil {
			s.Name = name
		}
		return s, err
	}
	return nil, fmt.Errorf("table with id %d: %w", id, api.ErrNoTable)
}

// knownTable is the id of a table, and the instance of the file that it was read from.
type knownTable struct{ id, instance uint64 }

// readKnown reads the id of the table whose file was listed. The error is api.ErrNoTable if that file is gone: another table may have its name.
func readKnown(ctx context.Context, from files, at *metaapi.Stat) (knownTable, error) {
	name := path.Base(at.Path)
	f, err := from.Get(ctx, at.Path)
	if errors.Is(err, metaapi.ErrNotFound) || err == nil && f.Instance != at.Instance {
		return knownTable{}, NoSuchTable(name)
	}
	if err != nil {
		return knownTable{}, err
	}
	s, err := decodeSchema(name, f.Data)
	if err != nil {
		return knownTable{}, err
	}
	return knownTable{s.ID, f.Instance}, nil
}

// SchemaOf returns the schema of a table, which may be METADATA.
func (c *Catalog) SchemaOf(ctx context.Context, name string) (*table.Schema, error) {
	if name == metadata.Name {
		return metadata.Schema(), nil
	}
	s, _, err := c.Schema(ctx, name)
	return s, err
}

// InstancesAlive returns the tablet servers that hold their locks.
func (m *Access) InstancesAlive(ctx context.Context) (map[string]bool, error) {
	files, err := m.List(ctx, ServersDir)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	alive := map[string]bool{}
	for _, f := range files {
		if f.Lock == metaapi.Exclusive {
			alive[ServerName(path.Base(f.Path), f.LockGeneration)] = true
		}
	}
	return alive, nil
}

// ServerName returns the name of a tablet server: the node, and the generation of the lock of this instance.
func ServerName(node string, lockGeneration uint64) string {
	return node + "." + strconv.FormatUint(lockGeneration, 10)
}

// metadataSuffix is appended to the server's name for the server of METADATA's tablets.
const metadataSuffix = ".metadata"

// MetadataServer returns the name of the server of METADATA's tablets that belongs to a server.
func MetadataServer(server string) string { return server + metadataSuffix }

// UserServer returns the name of the server of users' tablets that belongs to either server.
func UserServer(server string) string { return strings.TrimSuffix(server, metadataSuffix) }

// NodeOf returns the node of a tablet server.
func NodeOf(server string) string {
	node, _, _ := strings.Cut(server, ".")
	return node
}
