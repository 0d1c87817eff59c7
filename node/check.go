package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/tablet"
)

// CheckProblem is one thing that Check found wrong.
type CheckProblem struct {
	File   string
	Offset int64 // in the file, of the first byte in doubt
	Err    error
}

// CheckSummary counts what Check has looked at.
type CheckSummary struct {
	Blobs      int64
	SSTables   int64
	Logs       int64
	LogRecords int64
	Bytes      int64 // of blobs
	Entries    int64 // of SSTables
}

// Check verifies the data of a node that is not running: every checksum of every
// file, the order of keys, every log record, and that each file that a tablet's
// metadata names is there. The last is not done for a node that is no voter, since
// the metadata is on others. It calls report for each problem and changes nothing.
// The error is for data that could not be looked at, such as that of a running
// node.
func Check(ctx context.Context, dataDirs []string, report func(CheckProblem)) (CheckSummary, error) {
	var sum CheckSummary
	dirs, err := identity.Inspect(dataDirs)
	if err != nil {
		return sum, err
	}
	blobDirs := blobFolders(dataDirs)
	for _, d := range blobDirs {
		if _, err := os.Stat(d); err != nil {
			return sum, fmt.Errorf("%s is no data folder of a node: %w", filepath.Dir(d), err)
		}
	}
	if dirs.Founding {
		return sum, errors.New("the data folders are of a node that has not served yet")
	}
	problems := 0
	raftDir := dirs.RaftDir()
	if raftDir != "" {
		err = raftmeta.Verify(ctx, nil, raftDir, func(err error) {
			problems++
			report(located(raftDir, err))
		})
		if err != nil {
			return sum, fmt.Errorf("check the lock service's log: %w", err)
		}
	}
	store, err := blobfs.Open(blobfs.Config{Folders: blobDirs, ReadOnly: true})
	if err != nil {
		return sum, fmt.Errorf("open the block store: %w", err)
	}
	defer store.Close()
	if err := store.Verify(ctx, func(p blobfs.Problem) { report(CheckProblem(p)) }); err != nil {
		return sum, fmt.Errorf("check the block store: %w", err)
	}
	for _, b := range store.Blobs() {
		sum.Blobs++
		sum.Bytes += b.Length
	}
	if problems > 0 || raftDir == "" {
		return sum, nil // what the namespace says cannot be trusted, or is on other nodes
	}
	metas, err := readMetas(ctx, dirs)
	if err != nil {
		return sum, fmt.Errorf("read tablets' metadata: %w", err)
	}
	res, err := tablet.Check(ctx, tablet.OnStore(store), metas, func(file string, offset int64, err error) {
		report(CheckProblem{File: file, Offset: offset, Err: err})
	})
	sum.SSTables, sum.Logs, sum.LogRecords, sum.Entries = res.SSTables, res.Logs, res.Records, res.Entries
	return sum, err
}

// readMetas reads the metadata of tablets from a copy of the namespace: to open a
// Raft log is to write to it, and a check changes nothing.
func readMetas(ctx context.Context, dirs *identity.Folders) ([]*tablet.Meta, error) {
	scratch, err := os.MkdirTemp("", "stele-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if err := os.CopyFS(scratch, os.DirFS(dirs.RaftDir())); err != nil {
		return nil, err
	}
	group, err := raftmeta.Open(raftmeta.Config{Dir: scratch, ID: dirs.Node})
	if err != nil {
		return nil, err
	}
	defer group.Close()
	if err := group.WaitReady(ctx); err != nil {
		return nil, err
	}
	c := catalog{meta: direct{group.Service()}, node: dirs.Node}
	loads, err := c.tablets(ctx)
	if err != nil {
		return nil, err
	}
	var metas []*tablet.Meta
	for _, l := range loads {
		metas = append(metas, l.Meta)
	}
	return metas, nil
}

// located finds the place that an error names, if it names one.
func located(file string, err error) CheckProblem {
	p := CheckProblem{File: file, Err: err}
	var corrupt *raftmeta.CorruptError
	if errors.As(err, &corrupt) {
		p.File, p.Offset = corrupt.File, corrupt.Offset
	}
	return p
}

// direct asks a group that this process leads. It implements namespace.
type direct struct{ metaapi.Service }

// Get implements namespace.
func (d direct) Get(ctx context.Context, path string) (metaapi.File, error) {
	f, _, err := d.Service.Get(ctx, path, 0)
	return f, err
}

// Set implements namespace.
func (d direct) Set(ctx context.Context, path string, data []byte, gen uint64) (uint64, error) {
	return d.Service.Set(ctx, path, data, gen, metaapi.SetOptions{})
}

// Delete implements namespace.
func (d direct) Delete(ctx context.Context, path string, gen uint64) error {
	return d.Service.Delete(ctx, path, gen, metaapi.SetOptions{})
}
