package node

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// tableFile is an SSTable of a tablet, wherever the tablet is served.
type tableFile struct {
	path   string // of the tablet's metadata
	table  string // its name; empty for one that was dropped
	tablet uint64
	handle blobfs.Handle
}

func (x *tableFile) info() api.BlobInfo {
	return api.BlobInfo{ID: x.handle.ID.String(), Kind: api.BlobOfTable, Name: x.table, Bytes: x.handle.Length, Extents: int64(len(x.handle.Extents))}
}

// tableFiles calls each for the files of all tablets that the namespace names, and ends with its
// error. A tablet or file that comes or goes meanwhile may be left out.
func (n *Node) tableFiles(ctx context.Context, each func(*tableFile) error) error {
	paths, err := n.tabletPaths(ctx)
	if err != nil {
		return err
	}
	tables, err := n.tableNames(ctx)
	if err != nil {
		return err
	}
	for _, p := range paths {
		files, err := n.filesOf(ctx, p, tables)
		if err != nil {
			return err
		}
		for i := range files {
			if err := each(&files[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// tabletPaths returns the paths of the metadata of all tablets, sorted.
func (n *Node) tabletPaths(ctx context.Context) ([]string, error) {
	return n.twoLevels(ctx, tabletsDir)
}

// twoLevels returns the paths of the files in the directories in dir, sorted.
func (n *Node) twoLevels(ctx context.Context, dir string) (paths []string, err error) {
	nodes, err := n.catalog.list(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		names, err := n.catalog.list(ctx, path.Join(dir, node))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			paths = append(paths, path.Join(dir, node, name))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// filesOf returns the files of the tablet whose metadata is at a path; none if it is gone.
func (n *Node) filesOf(ctx context.Context, p string, tables map[uint64]string) (files []tableFile, err error) {
	f, err := n.catalog.meta.Get(ctx, p)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := tablet.DecodeMeta(f.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	id, err := strconv.ParseUint(path.Base(p), 16, 64)
	if err != nil {
		return nil, fmt.Errorf("tablet id in %s: %w", p, err)
	}
	for _, g := range m.Groups {
		for i := range g.Files {
			files = append(files, tableFile{path: p, table: tables[m.Table], tablet: id, handle: g.Files[i].Handle})
		}
	}
	return files, nil
}

// tableNames returns the names of the tables by their ids.
func (n *Node) tableNames(ctx context.Context) (map[uint64]string, error) {
	names, err := n.catalog.names(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[uint64]string{}
	for _, name := range names {
		f, err := n.catalog.meta.Get(ctx, tablePath(name))
		if errors.Is(err, metaapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := wire.NewDecoder(f.Data)
		s, err := table.DecodeSchema(&d, nil)
		if err != nil {
			return nil, fmt.Errorf("schema of table %q: %w", name, err)
		}
		byID[s.ID] = s.Name
	}
	return byID, nil
}

// blobName says what a blob is for.
type blobName struct{ kind, name string }

// namedBlobs returns all blobs that the namespace names.
func (n *Node) namedBlobs(ctx context.Context) (map[blobfs.ID]blobName, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	named := map[blobfs.ID]blobName{}
	if err := n.tableFiles(ctx, func(x *tableFile) error {
		named[x.handle.ID] = blobName{api.BlobOfTable, x.table}
		return nil
	}); err != nil {
		return nil, err
	}
	names, err := n.catalog.list(ctx, blobsDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		id, err := blobfs.ParseID(name)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", blobsDir, name, err)
		}
		b := blobName{kind: api.BlobOfPerson}
		if f, _, err := n.blobFile(ctx, id); err == nil {
			b.name = f.name
		} else if !errors.Is(err, api.ErrNoBlob) {
			return nil, err
		}
		named[id] = b
	}
	return named, nil
}
