package namespace

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/steledb/stele/client/metadata"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// Tables returns the names of all tables by id, as they were at one moment. Dropped ones that are kept are among them: see table.IsDropped.
func (m *Access) Tables(ctx context.Context) (map[uint64]string, error) {
	return idsOf(func() ([]metaapi.Stat, error) { return m.List(ctx, TablesDir) }, func(at *metaapi.Stat) (uint64, error) {
		s, _, err := ReadSchema(ctx, m.Current(), path.Base(at.Path))
		if err != nil {
			return 0, err
		}
		return s.ID, nil
	})
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
