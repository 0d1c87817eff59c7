package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// clusterFile is the content of /cluster, a MessagePack map.
type clusterFile struct {
	id    string
	epoch uint64 // of the Raft group that stores the file
	gen   uint64 // the file's generation
}

func decodeCluster(f metaapi.File) (clusterFile, error) {
	c := clusterFile{gen: f.Generation}
	d := wire.NewDecoder(f.Data)
	for range d.Map() {
		switch d.Str() {
		case "id":
			c.id = d.Str()
		case "raft_epoch":
			c.epoch = d.Uint()
		default:
			d.Skip()
		}
	}
	if err := d.Err(); err != nil || c.id == "" {
		return c, fmt.Errorf("%s has no cluster id: %w", clusterPath, err)
	}
	return c, nil
}

// cluster reads /cluster.
func (c *catalog) cluster(ctx context.Context) (clusterFile, error) {
	f, err := c.meta.Get(ctx, clusterPath)
	if err != nil {
		return clusterFile{}, err
	}
	return decodeCluster(f)
}

// saveCluster writes /cluster if it is at that generation; 0 means that it must not exist.
func (c *catalog) saveCluster(ctx context.Context, f clusterFile) error {
	e := wire.GetEncoder()
	defer e.Release()
	e.Map(3)
	e.Str("id")
	e.Str(f.id)
	e.Str("format")
	e.Int(1)
	e.Str("raft_epoch")
	e.Uint(f.epoch)
	_, err := c.set(ctx, clusterPath, append([]byte(nil), e.Bytes()...), f.gen)
	return err
}

// found writes the cluster's id into the namespace, unless it exists.
func (c *catalog) found(ctx context.Context, id string) error {
	err := c.saveCluster(ctx, clusterFile{id: id})
	if errors.Is(err, metaapi.ErrGeneration) {
		return nil
	}
	return err
}
