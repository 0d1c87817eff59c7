package verify

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/raftmeta"
	raftlog "github.com/steledb/stele/raftmeta/storage"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/storage"
)

// Problem is a problem found by Folders.
type Problem struct {
	File   string
	Offset int64 // in the file, of the first byte in doubt
	Err    error
}

// Summary has the numbers of checked objects.
type Summary struct {
	Blobs    int64
	SSTables int64
	Logs     int64 // replicas of log extents
	Bytes    int64 // of blobs
	Entries  int64 // of SSTables
}

// Config describes where the data of a node is. The zero Config is that of the program.
type Config struct {
	// FS is the file system of the data directories. Nil means the operating system's.
	FS vfs.FS
	// OpenRaftLog opens the store of the Raft log. Nil means that it is a bbolt file, which is read without bbolt.
	OpenRaftLog raftlog.OpenFunc
}

// Folders verifies the data of a node on the operating system's file system, as Config.Folders.
func Folders(ctx context.Context, dataDirs []string, keys masterkeys.Source, report func(Problem)) (Summary, error) {
	return Config{}.Folders(ctx, dataDirs, keys, report)
}

// Folders verifies the data of a node that is not running: all checksums of all files, and the order of keys in SSTables that are completely
// here, using the master keys of an encrypted node. Missing files are known only to the running cluster. It calls report for each problem and
// changes nothing. The error is for data that could not be checked, such as that of a running node.
func (c Config) Folders(ctx context.Context, dataDirs []string, keys masterkeys.Source, report func(Problem)) (Summary, error) {
	var sum Summary
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	masterKeys, err := keys.Read(ctx)
	if err != nil {
		return sum, err
	}
	dirs, err := identity.InspectFS(c.FS, dataDirs)
	if err != nil {
		return sum, err
	}
	blobDirs := identity.BlobFolders(dataDirs)
	for _, d := range blobDirs {
		if _, _, err := c.FS.Stat(d); err != nil {
			return sum, fmt.Errorf("%s is not a data folder of a node: %w", filepath.Dir(d), err)
		}
	}
	if dirs.Founding {
		return sum, errors.New("the data folders belong to a node that has never served")
	}
	raftDir := dirs.RaftDir()
	if raftDir != "" {
		err = raftmeta.Verify(ctx, c.FS, raftDir, c.OpenRaftLog, func(err error) {
			report(located(raftDir, err))
		})
		if err != nil {
			return sum, fmt.Errorf("check the lock service's log: %w", err)
		}
	}
	store, err := blobfs.Open(blobfs.Config{FS: c.FS, Folders: blobDirs, ReadOnly: true, MasterKeys: masterKeys})
	if err != nil {
		return sum, fmt.Errorf("open the block store: %w", err)
	}
	defer store.Close()
	if err := store.Verify(ctx, func(p blobfs.Problem) { report(Problem(p)) }); err != nil {
		return sum, fmt.Errorf("check the block store: %w", err)
	}
	for _, b := range store.Blobs() {
		sum.Blobs++
		sum.Bytes += b.Length
	}
	sum.Logs = int64(len(store.LogReplicas()))
	for _, b := range store.Blobs() {
		if !b.Whole {
			continue // other extents are on other nodes
		}
		if err := checkBlob(ctx, store, b.ID, &sum, report); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// checkBlob verifies an SSTable of which all extents are here. The error is ctx's.
func checkBlob(ctx context.Context, store *blobfs.Store, id blobfs.ID, sum *Summary, report func(Problem)) error {
	h, err := store.HandleOf(ctx, id)
	if err == nil {
		var entries int64
		entries, err = tablet.CheckSSTable(ctx, storage.OnStore(store), h, func(file string, offset int64, err error) {
			report(Problem{File: file, Offset: offset, Err: err})
		})
		if entries >= 0 {
			sum.SSTables++
			sum.Entries += entries
		}
	}
	if err != nil && ctx.Err() == nil {
		report(Problem{File: id.String(), Err: err})
	}
	return ctx.Err()
}

// located returns the problem with the position that an error names, if any.
func located(file string, err error) Problem {
	p := Problem{File: file, Err: err}
	var corrupt *raftmeta.CorruptError
	if errors.As(err, &corrupt) {
		p.File, p.Offset = corrupt.File, corrupt.Offset
	}
	return p
}
