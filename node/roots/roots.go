package roots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/sortedrun"
)

// TableFile is an SSTable of a tablet, or a run of sorted commit logs.
type TableFile struct {
	Table  string // its name; empty if it was dropped
	Handle blobfs.Handle
}

// Info describes the file for clients.
func (x *TableFile) Info() api.BlobInfo {
	return api.BlobInfo{ID: x.Handle.ID.String(), Kind: api.BlobOfTable, Name: x.Table, Bytes: x.Handle.Length, Extents: int64(len(x.Handle.Extents))}
}

// Reader reads which blobs METADATA and the namespace reference.
type Reader struct {
	Catalog *namespace.Catalog
	Meta    *namespace.Access
	Rows    func() *metarows.Table
	Store   func() *blobfs.Store
}

// TableFiles calls each for the files of all tablets, and stops at its error. A tablet or file that appears or disappears meanwhile may be
// missed, or passed twice.
func (r *Reader) TableFiles(ctx context.Context, each func(*TableFile) error) error {
	tables, err := r.Meta.Tables(ctx)
	if err != nil {
		return err
	}
	tables[metadata.TableID] = metadata.Name
	root, err := r.Rows().Root(ctx)
	if err != nil {
		return err
	}
	if err := FilesOf(root, tables, each); err != nil {
		return err
	}
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = r.Rows().Scan(ctx, "", "", nil, func(r *metadata.Row) {
		if failed == nil {
			if failed = FilesOf(r, tables, each); failed != nil {
				cancel()
			}
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// FilesOf calls each for the files of a row's tablet.
func FilesOf(r *metadata.Row, tables map[uint64]string, each func(*TableFile) error) error {
	for _, b := range [][]byte{r.Meta, r.Split} {
		if b == nil {
			continue
		}
		m, err := tablet.DecodeMeta(b)
		if err != nil {
			return fmt.Errorf("tablet of table %d that ends at %.64q: %w", r.Table, r.End, err)
		}
		if err := m.EachBlob(func(h blobfs.Handle) error {
			return each(&TableFile{Table: tables[m.Table], Handle: h})
		}); err != nil {
			return err
		}
	}
	return nil
}

// ErrNotSorted means that the logs of a dead server are not sorted, so a tablet's records in them are not available.
var ErrNotSorted = errors.New("the server's logs are not sorted")

// Runs calls each for the sorted runs of a dead server's logs, and stops at its error. The error is ErrNotSorted if pieces are not
// sorted, or sorting has not begun. Even then each was called for all runs that exist: garbage collection relies on that.
func (r *Reader) Runs(ctx context.Context, server string, each func(*sortedrun.Meta) error) error {
	f, err := r.Catalog.Meta.Get(ctx, namespace.RecoveryPath(server))
	if errors.Is(err, metaapi.ErrNotFound) {
		if planted.On(planted.LoadBeforeSorted) {
			return nil
		}
		return ErrNotSorted
	}
	if err != nil {
		return err
	}
	rec, err := master.DecodeRecovery(f.Data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if err := EachRun(rec, each); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if !rec.Done() && !planted.On(planted.LoadBeforeSorted) {
		return ErrNotSorted
	}
	return nil
}

// EachRun calls each for the existing runs of a recovery, and stops at its error.
func EachRun(r *master.Recovery, each func(*sortedrun.Meta) error) error {
	for i := range r.Pieces {
		if r.Pieces[i].Run == nil {
			continue
		}
		runs, err := sortedrun.DecodeAll(r.Pieces[i].Run)
		if err != nil {
			return err
		}
		for k := range runs {
			if runs[k].Entries == 0 {
				continue // there is no blob
			}
			if err := each(&runs[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Use states what a blob is used for.
type Use struct{ Kind, Name string }

// namedTimeout bounds the reading of all uses.
const namedTimeout = 10 * time.Second

// Named returns all blobs that METADATA and the namespace reference.
func (r *Reader) Named(ctx context.Context) (map[blobfs.ID]Use, error) {
	ctx, cancel := context.WithTimeout(ctx, namedTimeout)
	defer cancel()
	named := map[blobfs.ID]Use{}
	if err := r.Each(ctx, func(id blobfs.ID, b Use) {
		if _, known := named[id]; !known || b.Kind != api.BlobOfBackup { // a file of a table stays one when it is also in a backup
			named[id] = b
		}
	}); err != nil {
		return nil, err
	}
	for id, b := range named {
		if b.Kind != api.BlobOfUser {
			continue
		}
		if f, _, err := r.Stored(ctx, id); err == nil {
			named[id] = Use{b.Kind, f.Name}
		} else if !errors.Is(err, api.ErrNoBlob) {
			return nil, err
		}
	}
	return named, nil
}

// Each calls each for all blobs that METADATA and the namespace reference, while it reads them: there may be more than fit in memory.
// The names of stored files are not included.
func (r *Reader) Each(ctx context.Context, each func(blobfs.ID, Use)) error {
	_, err := r.all(ctx, each)
	return err
}

// all is Each, and returns the backups that are being made. Tables that are being restored are read before METADATA, which gets the files
// of theirs, and backups after it: a backup that is not there then records only what METADATA names later.
func (r *Reader) all(ctx context.Context, each func(blobfs.ID, Use)) (making []string, err error) {
	if err := r.sources(ctx, each); err != nil {
		return nil, err
	}
	if err := r.TableFiles(ctx, func(x *TableFile) error {
		each(x.Handle.ID, Use{api.BlobOfTable, x.Table})
		return nil
	}); err != nil {
		return nil, err
	}
	if err := r.runsOfAll(ctx, each); err != nil {
		return nil, err
	}
	if err := r.storedFiles(ctx, each); err != nil {
		return nil, err
	}
	return r.backups(ctx, each)
}

// storedFiles calls each for the files that users have stored.
func (r *Reader) storedFiles(ctx context.Context, each func(blobfs.ID, Use)) error {
	names, err := r.Catalog.List(ctx, namespace.BlobsDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, err := blobfs.ParseID(name)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", namespace.BlobsDir, name, err)
		}
		each(id, Use{Kind: api.BlobOfUser})
	}
	return nil
}

// runsOfAll calls each for the sorted runs of all dead servers, also of those whose logs are not all sorted yet.
func (r *Reader) runsOfAll(ctx context.Context, each func(blobfs.ID, Use)) error {
	servers, err := r.Catalog.List(ctx, namespace.RecoveryDir)
	if err != nil {
		return err
	}
	for _, server := range servers {
		err := r.Runs(ctx, server, func(m *sortedrun.Meta) error {
			each(m.Handle.ID, Use{api.BlobOfLog, server})
			return nil
		})
		if err != nil && !errors.Is(err, ErrNotSorted) {
			return err
		}
	}
	return nil
}
