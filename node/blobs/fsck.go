package blobs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/roots"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet/sortedrun"
)

// A check of the whole store reads, in steps, all files of the lock service that name extents, in order of their paths, and then everything
// that nodes hold. The position where a step ends is
//
//	/path/of/file#extent    extents of the file that are done, counted across all its blobs
//	unnamed#id              blobs up to that id are done
//
// No state is kept between steps.
const (
	fsckUnnamed = "unnamed"
	// fsckTime is the approximate duration of a step, so that progress is visible and no deadline passes.
	fsckTime = time.Second
	// fsckExtents and fsckDeepExtents are the numbers of extents checked together.
	fsckExtents, fsckDeepExtents = 64, 4
	fsckPage                     = 2000 // blobs per page of what nodes hold
)

// rowsDir represents METADATA among the paths of files: a tablet's row is below it, with its key in hexadecimal.
const rowsDir = "/" + metadata.Name

// need is the extents that a file of the lock service names.
type need struct {
	kind, name string
	id         blobfs.ID
	refs       []blobfs.ExtentRef // of a blob
	log        *logproto.List     // of a log
}

func (d *need) extents() int {
	if d.log != nil {
		return len(d.log.Extents)
	}
	return len(d.refs)
}

// inspect checks the extents from to to.
func (d *need) inspect(ctx context.Context, s *blobfs.Store, from, to int, deep bool) []blobfs.ExtentReport {
	if d.log != nil {
		part := *d.log
		part.Extents = d.log.Extents[from:to]
		return s.InspectLog(ctx, d.id, &part, deep)
	}
	return s.Inspect(ctx, d.id, d.refs[from:to], deep)
}

// index returns the position of the extent with that index, or -1.
func (d *need) index(index int) int {
	if d.log != nil {
		return slices.IndexFunc(d.log.Extents, func(x logproto.Extent) bool { return int(x.Seq) == index })
	}
	return slices.IndexFunc(d.refs, func(x blobfs.ExtentRef) bool { return x.Index == index })
}

// fsck is one step.
type fsck struct {
	bs     *Service
	deep   bool
	step   api.FsckStep
	tables map[uint64]string
}

func (bs *Service) check(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	at, rest, _ := strings.Cut(r.After, "#")
	f := &fsck{bs: bs, deep: r.Deep}
	paths, err := f.paths(ctx)
	if err != nil {
		return nil, err
	}
	f.step.Total = int64(len(paths)) + 1
	if at == fsckUnnamed {
		f.step.Done = int64(len(paths))
		err = f.unnamed(ctx, rest)
		return f.step.Append, err
	}
	from, err := strconv.Atoi("0" + rest)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "after: %q is not a position", r.After)
	}
	if f.tables, err = bs.Meta.Tables(ctx); err != nil {
		return nil, err
	}
	i, _ := slices.BinarySearch(paths, at)
	for end := time.Now().Add(fsckTime); i < len(paths) && time.Now().Before(end); i++ {
		if paths[i] != at {
			from = 0
		}
		next, err := f.file(ctx, paths[i], from, end)
		if err != nil {
			return nil, err
		}
		if next > 0 {
			f.step.Done, f.step.Next = int64(i), fmt.Sprintf("%s#%d", paths[i], next)
			return f.step.Append, nil
		}
	}
	f.step.Done, f.step.Next = int64(i), fsckUnnamed+"#"
	if i < len(paths) {
		f.step.Next = paths[i] + "#"
	}
	return f.step.Append, nil
}

// paths returns the paths of all files that name extents, sorted.
func (f *fsck) paths(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all := []string{metadata.RootPath}
	err := f.bs.Roots.Rows().Scan(ctx, "", "", metadata.Places(), func(r *metadata.Row) {
		all = append(all, path.Join(rowsDir, hex.EncodeToString(r.Key())))
	})
	if err != nil {
		return nil, err
	}
	servers, err := f.bs.Catalog.List(ctx, namespace.LogsDir)
	if err != nil {
		return nil, err
	}
	dirs := []string{backup.Dir, namespace.BlobsDir, namespace.RecoveryDir}
	for _, name := range servers {
		dirs = append(dirs, path.Join(namespace.LogsDir, name))
	}
	for _, dir := range dirs {
		names, err := f.bs.Catalog.List(ctx, dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, path.Join(dir, name))
		}
	}
	slices.Sort(all)
	return all, nil
}

// file checks the extents that a file names, starting with from, until end. It returns the next extent, or 0 at the end of the file.
func (f *fsck) file(ctx context.Context, p string, from int, end time.Time) (next int, err error) {
	needs, err := f.needs(ctx, p)
	if err != nil {
		return 0, err
	}
	batch := fsckExtents
	if f.deep {
		batch = fsckDeepExtents
	}
	start := 0
	for i := range needs {
		d := &needs[i]
		for x := max(0, from-start); x < d.extents(); x += batch {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if start+x > from && time.Now().After(end) {
				return start + x, nil
			}
			if err := f.check(ctx, p, d, x, min(x+batch, d.extents())); err != nil {
				return 0, err
			}
		}
		start += d.extents()
	}
	return 0, nil
}

// check checks some extents. Problems are checked again if the extents are still needed: files come and go meanwhile.
func (f *fsck) check(ctx context.Context, p string, d *need, from, to int) error {
	store := f.bs.Store()
	var now []need
	for _, x := range d.inspect(ctx, store, from, to, f.deep) {
		if x.Count(blobfs.ReplicaGood) < x.Wanted || x.Count(blobfs.ReplicaCorrupt) > 0 {
			if now == nil {
				var err error
				if now, err = f.needs(ctx, p); err != nil {
					return err
				}
			}
			at := slices.IndexFunc(now, func(n need) bool { return n.id == d.id })
			if at < 0 {
				continue
			}
			again := now[at].index(x.Index)
			if again < 0 {
				continue
			}
			if x.Count(blobfs.ReplicaCorrupt) == 0 {
				x = now[at].inspect(ctx, store, again, again+1, f.deep)[0]
			}
		}
		f.add(d, x)
	}
	return ctx.Err()
}

func (f *fsck) add(d *need, x blobfs.ExtentReport) {
	good := x.Count(blobfs.ReplicaGood)
	f.step.Extents++
	f.step.Bytes += max(x.Length, 0)
	f.step.Replicas += int64(good)
	if good < x.Wanted || x.Count(blobfs.ReplicaCorrupt) > 0 {
		f.step.Findings = append(f.step.Findings, api.BlobFinding{
			Kind: d.kind, Name: d.name, ID: d.id.String(), ExtentInfo: f.bs.extentInfos([]blobfs.ExtentReport{x})[0],
		})
	}
}

// needs returns what a file names, or nothing if it is gone.
func (f *fsck) needs(ctx context.Context, p string) (needs []need, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	switch top, _, _ := strings.Cut(p[1:], "/"); "/" + top {
	case metadata.RootPath, rowsDir:
		row, err := f.bs.rowAt(ctx, p)
		if errors.Is(err, metarows.ErrNoRow) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		err = roots.FilesOf(row, f.tables, func(x *roots.TableFile) error {
			needs = append(needs, need{kind: api.BlobOfTable, name: x.Table, id: x.Handle.ID, refs: x.Handle.Extents})
			return nil
		})
		return needs, err
	case backup.Dir:
		return f.backup(ctx, path.Base(p))
	case namespace.RecoveryDir:
		err = f.bs.Roots.Runs(ctx, path.Base(p), func(m *sortedrun.Meta) error {
			needs = append(needs, need{kind: api.BlobOfLog, name: path.Base(p), id: m.Handle.ID, refs: m.Handle.Extents})
			return nil
		})
		if errors.Is(err, roots.ErrNotSorted) {
			err = nil
		}
		return needs, err
	case namespace.BlobsDir:
		id, err := blobfs.ParseID(path.Base(p))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		file, _, err := f.bs.Roots.Stored(ctx, id)
		if errors.Is(err, api.ErrNoBlob) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		needs = append(needs, need{kind: api.BlobOfUser, name: file.Name, id: id, refs: file.Handle.Extents})
	case namespace.LogsDir:
		file, err := f.bs.Catalog.Meta.Get(ctx, p)
		if errors.Is(err, metaapi.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		l, err := replog.DecodeList(file.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		id, err := blobfs.ParseID(path.Base(p))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		needs = append(needs, need{kind: api.BlobOfLog, name: f.bs.nameOf(namespace.NodeOf(path.Base(path.Dir(p)))), id: id, log: &l})
	}
	return needs, nil
}

// backup returns what a backup names.
func (f *fsck) backup(ctx context.Context, id string) (needs []need, err error) {
	rec, _, err := f.bs.Roots.Backup(ctx, id)
	if errors.Is(err, api.ErrNoBackup) || err == nil && rec.State != backup.Made {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seen := map[blobfs.ID]bool{} // tablets share files
	err = f.bs.Roots.ManifestFiles(ctx, rec.Manifest, func(h blobfs.Handle) {
		if !seen[h.ID] {
			seen[h.ID] = true
			needs = append(needs, need{kind: api.BlobOfBackup, name: id, id: h.ID, refs: h.Extents})
		}
	})
	return needs, err
}

// rowAt returns the METADATA row that a path represents.
func (bs *Service) rowAt(ctx context.Context, p string) (*metadata.Row, error) {
	if p == metadata.RootPath {
		return bs.Roots.Rows().Root(ctx)
	}
	key, err := hex.DecodeString(path.Base(p))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	tableID, end, err := metadata.ParseKey(key)
	if err != nil {
		return nil, err
	}
	return bs.Roots.Rows().Get(ctx, tableID, end)
}

// unnamed finds blobs that nodes hold and no file names. It lists what nodes hold first, so that files written meanwhile count.
func (f *fsck) unnamed(ctx context.Context, after string) error {
	var id blobfs.ID
	if after != "" {
		var err error
		if id, err = blobfs.ParseID(after); err != nil {
			return rpc.Errorf(rpc.CodeBadRequest, "after: %v", err)
		}
	}
	held, silent, err := f.bs.Store().Holdings(ctx, id, fsckPage)
	if err != nil {
		return err
	}
	for _, id := range silent {
		f.step.Silent = append(f.step.Silent, f.bs.nameOf(id))
	}
	named, err := f.bs.Roots.Named(ctx)
	if err != nil {
		return err
	}
	for i := range held {
		if _, ok := named[held[i].ID]; !ok {
			f.step.Unnamed = append(f.step.Unnamed, holdingInfo(&held[i]))
		}
	}
	if len(held) == fsckPage {
		f.step.Next = fsckUnnamed + "#" + held[fsckPage-1].ID.String()
	} else {
		f.step.Done++
	}
	return nil
}
