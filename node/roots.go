package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/tablet/sortedrun"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/tablet"
)

// tableFile is an SSTable of a tablet, or a run of sorted commit logs.
type tableFile struct {
	table  string // its name; empty if it was dropped
	tablet uint64
	handle blobfs.Handle
}

func (x *tableFile) info() api.BlobInfo {
	return api.BlobInfo{ID: x.handle.ID.String(), Kind: api.BlobOfTable, Name: x.table, Bytes: x.handle.Length, Extents: int64(len(x.handle.Extents))}
}

// blobRefs reads which blobs METADATA and the namespace reference.
type blobRefs struct {
	catalog *namespace.Catalog
	meta    *namespace.Access
	rows    func() *metarows.Table
}

// tableFiles calls each for the files of all tablets, and stops at its error. A tablet or file that appears or disappears meanwhile may be
// missed, or passed twice.
func (rf *blobRefs) tableFiles(ctx context.Context, each func(*tableFile) error) error {
	tables, err := rf.meta.Tables(ctx)
	if err != nil {
		return err
	}
	tables[metadata.TableID] = metadata.Name
	root, err := rf.rows().Root(ctx)
	if err != nil {
		return err
	}
	if err := filesOf(root, tables, each); err != nil {
		return err
	}
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = rf.rows().Scan(ctx, "", "", nil, func(r *metadata.Row) {
		if failed == nil {
			if failed = filesOf(r, tables, each); failed != nil {
				cancel()
			}
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// filesOf calls each for the files of a row's tablet.
func filesOf(r *metadata.Row, tables map[uint64]string, each func(*tableFile) error) error {
	for _, b := range [][]byte{r.Meta, r.Split} {
		if b == nil {
			continue
		}
		m, err := tablet.DecodeMeta(b)
		if err != nil {
			return fmt.Errorf("tablet of table %d that ends at %.64q: %w", r.Table, r.End, err)
		}
		for _, g := range m.Groups {
			for i := range g.Files {
				if err := each(&tableFile{table: tables[m.Table], tablet: m.ID, handle: g.Files[i].Handle}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// errNotSorted means that the logs of a dead server are not sorted, so a tablet's records in them are not available.
var errNotSorted = errors.New("the server's logs are not sorted")

// runsOf calls each for the sorted runs of a dead server's logs, and stops at its error. The error is errNotSorted if pieces are not
// sorted, or sorting has not begun.
func (rf *blobRefs) runsOf(ctx context.Context, server string, each func(*sortedrun.Meta) error) error {
	f, err := rf.catalog.Meta.Get(ctx, recoveryPath(server))
	if errors.Is(err, metaapi.ErrNotFound) {
		return errNotSorted
	}
	if err != nil {
		return err
	}
	r, err := master.DecodeRecovery(f.Data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if err := eachRun(r, each); err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	if !r.Done() {
		return errNotSorted
	}
	return nil
}

// eachRun calls each for the existing runs of a recovery, and stops at its error.
func eachRun(r *master.Recovery, each func(*sortedrun.Meta) error) error {
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

// blobName states what a blob is used for.
type blobName struct{ kind, name string }

// namedBlobs returns all blobs that METADATA and the namespace reference.
func (rf *blobRefs) namedBlobs(ctx context.Context) (map[blobfs.ID]blobName, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	named := map[blobfs.ID]blobName{}
	if err := rf.eachNamed(ctx, func(id blobfs.ID, b blobName) { named[id] = b }); err != nil {
		return nil, err
	}
	for id, b := range named {
		if b.kind != api.BlobOfUser {
			continue
		}
		if f, _, err := rf.blobFile(ctx, id); err == nil {
			named[id] = blobName{b.kind, f.name}
		} else if !errors.Is(err, api.ErrNoBlob) {
			return nil, err
		}
	}
	return named, nil
}

// eachNamed calls each for all blobs that METADATA and the namespace reference, while it reads them: there may be more than fit in memory.
// The names of stored files are not included.
func (rf *blobRefs) eachNamed(ctx context.Context, each func(blobfs.ID, blobName)) error {
	if err := rf.tableFiles(ctx, func(x *tableFile) error {
		each(x.handle.ID, blobName{api.BlobOfTable, x.table})
		return nil
	}); err != nil {
		return err
	}
	servers, err := rf.catalog.List(ctx, recoveryDir)
	if err != nil {
		return err
	}
	for _, server := range servers {
		if err := rf.runsOf(ctx, server, func(m *sortedrun.Meta) error {
			each(m.Handle.ID, blobName{api.BlobOfLog, server})
			return nil
		}); err != nil && !errors.Is(err, errNotSorted) {
			return err
		}
	}
	names, err := rf.catalog.List(ctx, blobsDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, err := blobfs.ParseID(name)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", blobsDir, name, err)
		}
		each(id, blobName{kind: api.BlobOfUser})
	}
	return nil
}

// sweepRoots marks what garbage collection must keep. It implements gc.Roots.
type sweepRoots struct{ refs *blobRefs }

// Mark implements gc.Roots. It reads all of METADATA.
func (r sweepRoots) Mark(ctx context.Context, mark func(blobfs.ID)) error {
	return r.refs.eachNamed(ctx, func(id blobfs.ID, _ blobName) { mark(id) })
}

const (
	// mastershipPoll is the interval at which the node checks whether it is to collect garbage.
	mastershipPoll = 5 * time.Second
	// sweepDelay is the time between becoming master and the first garbage collection: other work is more urgent.
	sweepDelay = 10 * time.Minute
)

// sweepStore collects garbage of the block store while this node is the master, until it closes.
func (bs *blobService) sweepStore() {
	tick := time.NewTicker(mastershipPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-bs.ctx.Done():
			return
		}
		if bs.master().Epoch() != 0 {
			bs.sweepWhileMaster()
		}
	}
}

// sweepWhileMaster collects garbage until this mastership ends.
func (bs *blobService) sweepWhileMaster() {
	ctx, cancel := context.WithCancel(bs.ctx)
	defer cancel()
	epoch := bs.master().Epoch()
	bs.background.Go(func() {
		for ctx.Err() == nil {
			timing.Sleep(ctx, mastershipPoll)
			if bs.master().Epoch() != epoch {
				cancel()
			}
		}
	})
	// From now on the metrics show whether it is halted.
	if _, err := bs.store.Load().GC().Halted(ctx); err != nil && ctx.Err() == nil {
		bs.log.Info("state of garbage collection unknown", "err", err)
	}
	if timing.Sleep(ctx, sweepDelay); ctx.Err() == nil {
		bs.store.Load().GC().NewSweeper(sweepRoots{bs.refs}).Run(ctx)
	}
}
