package namespace

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// ClusterFile is the content of /cluster, a MessagePack map.
type ClusterFile struct {
	Name  string
	Epoch uint64 // of the Raft group that stores the file
	gen   uint64 // the file's generation
}

// DecodeCluster decodes the content of /cluster.
func DecodeCluster(f metaapi.File) (ClusterFile, error) {
	c := ClusterFile{gen: f.Generation}
	d := wire.NewDecoder(f.Data)
	for range d.Map() {
		switch d.Str() {
		case "id":
			c.Name = d.Str()
		case "raft_epoch":
			c.Epoch = d.Uint()
		default:
			d.Skip()
		}
	}
	if err := d.Err(); err != nil || c.Name == "" {
		return c, fmt.Errorf("%s has no cluster id: %w", ClusterPath, err)
	}
	return c, nil
}

// Cluster reads /cluster.
func (c *Catalog) Cluster(ctx context.Context) (ClusterFile, error) {
	f, err := c.Meta.Get(ctx, ClusterPath)
	if err != nil {
		return ClusterFile{}, err
	}
	return DecodeCluster(f)
}

// SaveCluster writes /cluster if it is at that generation; 0 means that it must not exist.
func (c *Catalog) SaveCluster(ctx context.Context, f ClusterFile) error {
	e := wire.GetEncoder()
	defer e.Release()
	e.Map(3)
	e.Str("id")
	e.Str(f.Name)
	e.Str("format")
	e.Int(1)
	e.Str("raft_epoch")
	e.Uint(f.Epoch)
	_, err := c.Set(ctx, ClusterPath, append([]byte(nil), e.Bytes()...), f.gen)
	return err
}

// Found writes the cluster's id into the namespace, unless it exists.
func (c *Catalog) Found(ctx context.Context, id string) error {
	err := c.SaveCluster(ctx, ClusterFile{Name: id})
	if errors.Is(err, metaapi.ErrGeneration) {
		return nil
	}
	return err
}
