package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// blobService stores files for users, checks and reports the block store, and on the master collects its garbage.
type blobService struct {
	ctx        context.Context // of the node
	background *sync.WaitGroup
	log        *slog.Logger
	name       string // the node's
	id         func() string
	catalog    *namespace.Catalog
	meta       *namespace.Access
	authz      *authz.Authorizer
	peers      *peers.Set
	results    *results.Memory
	store      *atomic.Pointer[blobfs.Store] // nil until it is open
	members    func() *members.Blobs
	master     func() *master.Master
	refs       *blobRefs
	uploads    uploads
}

// register registers the methods for blobs.
func (bs *blobService) register(r method.Registrar) {
	bs.handleBlob(r, api.MethodBlobOpen, bs.blobOpen)
	bs.handleBlob(r, api.MethodBlobWrite, bs.blobWrite)
	bs.handleBlob(r, api.MethodBlobSeal, bs.blobSeal)
	bs.handleBlob(r, api.MethodBlobAbort, bs.blobAbort)
	bs.handleBlob(r, api.MethodBlobStat, bs.blobStat)
	bs.handleBlob(r, api.MethodBlobList, bs.blobList)
	bs.handleBlob(r, api.MethodBlobDelete, bs.blobDelete)
	bs.handleBlob(r, api.MethodBlobFsck, bs.blobFsck)
	bs.handleBlob(r, api.MethodBlobStatus, bs.blobStatus)
	bs.handleBlob(r, api.MethodBlobRevive, bs.blobRevive)
	bs.handleBlob(r, api.MethodBlobResumeSweep, bs.blobResumeSweep)
	r.Handle(api.MethodBlobRead, rpc.Spawned, bs.blobRead)
}

func (bs *blobService) handleBlob(r method.Registrar, method string, h func(ctx context.Context, r *api.BlobRequest) (reply.Result, error)) {
	r.Handle(method, rpc.Spawned, func(c *rpc.Call) {
		r, ok := beginBlob(c, method)
		if !ok {
			return
		}
		result, err := h(authz.WithSubject(c.Context(), authz.SubjectOf(c)), r)
		if err != nil {
			reply.Fail(c, blobError(c, err))
			return
		}
		c.Reply(result)
	})
}

func beginBlob(c *rpc.Call, method string) (*api.BlobRequest, bool) {
	r := &api.BlobRequest{Method: method}
	return r, reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options)
}

// blobError converts errors of the block store to their API form. A blob that has a name but no bytes is corrupt.
func blobError(c *rpc.Call, err error) error {
	var corrupt *blobfs.CorruptError
	switch {
	case errors.Is(err, metaapi.ErrOutcomeUnknown):
	case errors.Is(err, metaapi.ErrNoSession), errors.Is(err, metaapi.ErrNotReady), errors.Is(err, context.DeadlineExceeded) && !c.Expired():
		return fmt.Errorf("%w: the lock service, which lists the blobs, does not answer: %v", api.ErrUnavailable, err)
	case errors.As(err, &corrupt):
	case errors.Is(err, blobfs.ErrNoBlob):
		return &api.CorruptError{Err: err}
	case errors.Is(err, blobapi.ErrUnreachable), errors.Is(err, blobfs.ErrClosed):
		return errors.Join(api.ErrUnavailable, err)
	}
	return err
}

// lookupTimeout bounds the reads of the lock service before the work begins.
const lookupTimeout = 10 * time.Second

func (bs *blobService) blobOpen(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	u, err := bs.uploads.open(ctx, bs.store.Load(), strings.ToValidUTF8(r.Name, "�"), authz.SubjectIn(ctx).Owner())
	if err != nil {
		return nil, err
	}
	return u.Append, nil
}

func (bs *blobService) blobWrite(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	u, release, err := bs.uploads.use(ctx, r.Upload, authz.SubjectIn(ctx).Owner())
	if err != nil {
		return nil, err
	}
	defer release()
	length, err := u.write(r.Offset, r.Data)
	if err != nil {
		return nil, err
	}
	return func(e *wire.Encoder) { e.Int(length) }, nil
}

func (bs *blobService) blobSeal(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	u, release, err := bs.uploads.use(ctx, r.Upload, authz.SubjectIn(ctx).Owner())
	if err != nil {
		return nil, err
	}
	defer release()
	info, err := bs.sealUpload(ctx, u, r.Length)
	if err != nil {
		return nil, err
	}
	return info.Append, nil
}

func (bs *blobService) blobAbort(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	_, release, err := bs.uploads.use(ctx, r.Upload, authz.SubjectIn(ctx).Owner())
	if errors.Is(err, api.ErrUploadExpired) {
		return nil, nil // aborting twice is not an error
	}
	if err != nil {
		return nil, err
	}
	defer release()
	bs.uploads.end(r.Upload)
	return nil, nil
}

// blobRead opens only the extents that it reads: a blob may have many.
func (bs *blobService) blobRead(c *rpc.Call) {
	r, ok := beginBlob(c, api.MethodBlobRead)
	if !ok {
		return
	}
	release, err := bs.results.Take(c.Context(), authz.SubjectOf(c).Owner(), int(r.Length))
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.OnSent(release)
	p, err := bs.readBlob(c.Context(), r)
	if err != nil {
		reply.Fail(c, blobError(c, err))
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bin(p) })
}

func (bs *blobService) readBlob(ctx context.Context, r *api.BlobRequest) ([]byte, error) {
	id, err := parseBlobID(r.ID)
	if err != nil {
		return nil, err
	}
	_, h, err := bs.findBlob(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Offset >= h.Length {
		return nil, nil
	}
	p := make([]byte, min(r.Length, h.Length-r.Offset))
	part, start := slice(h, r.Offset, int64(len(p)))
	blob, err := bs.store.Load().OpenBlob(ctx, part)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	_, err = blob.ReadAt(p, r.Offset-start)
	return p, err
}

// slice returns a handle with only the extents that hold length bytes at off, and their offset in the blob.
func slice(h blobfs.Handle, off, length int64) (part blobfs.Handle, start int64) {
	part.ID = h.ID
	at := int64(0)
	for _, x := range h.Extents {
		if at+x.Length > off && at < off+length {
			if len(part.Extents) == 0 {
				start = at
			}
			part.Extents = append(part.Extents, x)
			part.Length += x.Length
		}
		at += x.Length
	}
	return part, start
}

// findBlob locates a referenced blob: a stored file, or a file of a table.
func (bs *blobService) findBlob(ctx context.Context, id blobfs.ID) (api.BlobInfo, blobfs.Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	f, _, err := bs.refs.blobFile(ctx, id)
	if err == nil {
		return f.info(), f.handle, nil
	}
	if !errors.Is(err, api.ErrNoBlob) {
		return api.BlobInfo{}, blobfs.Handle{}, err
	}
	var info api.BlobInfo
	var h blobfs.Handle
	errRoots := bs.refs.tableFiles(ctx, func(x *tableFile) error {
		if x.handle.ID == id {
			info, h = x.info(), x.handle
			return errFound
		}
		return nil
	})
	if errors.Is(errRoots, errFound) {
		return info, h, nil
	}
	return info, h, errors.Join(errRoots, err)
}

var errFound = errors.New("found")

func (bs *blobService) blobStat(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	id, err := parseBlobID(r.ID)
	if err != nil {
		return nil, err
	}
	info, h, err := bs.findBlob(ctx, id)
	if errors.Is(err, api.ErrNoBlob) {
		info, h, err = bs.findUnnamed(ctx, id, err)
	}
	if err != nil {
		return nil, err
	}
	s := api.BlobStatus{BlobInfo: info}
	count := min(r.Count, api.BlobStatMax)
	if count == 0 {
		count = api.BlobStatCount
	}
	from := min(r.From, int64(len(h.Extents)))
	refs := h.Extents[from:min(from+count, int64(len(h.Extents)))]
	s.Parts = bs.extentInfos(bs.store.Load().Inspect(ctx, id, refs, r.Deep))
	for i := range s.Parts {
		if good := int64(s.Parts[i].Count(api.ReplicaGood)); i == 0 || good < s.Replicas {
			s.Replicas = good
		}
	}
	return s.Append, ctx.Err()
}

// findUnnamed locates a blob without references by what nodes hold of it.
func (bs *blobService) findUnnamed(ctx context.Context, id blobfs.ID, none error) (api.BlobInfo, blobfs.Handle, error) {
	store := bs.store.Load()
	before := id // the ID before it
	for i := len(before) - 1; i >= 0; i-- {
		before[i]--
		if before[i] != 0xff {
			break
		}
	}
	found, _, err := store.Holdings(ctx, before, 1)
	if err != nil {
		return api.BlobInfo{}, blobfs.Handle{}, err
	}
	if len(found) == 0 || found[0].ID != id {
		return api.BlobInfo{}, blobfs.Handle{}, none
	}
	h := blobfs.Handle{ID: id, Length: found[0].Bytes, Extents: found[0].Refs}
	for i := range h.Extents {
		if err := store.Identify(ctx, id, &h.Extents[i]); err != nil {
			bs.log.Debug("no replica returned its checksum", "blob", id.String(), "extent", i, "err", err)
		}
	}
	return holdingInfo(&found[0]), h, nil
}

func holdingInfo(x *blobfs.Holding) api.BlobInfo {
	return api.BlobInfo{
		ID: x.ID.String(), Kind: api.BlobUnnamed, Bytes: x.Bytes, Extents: int64(x.Extents), Replicas: int64(x.Replicas), Created: x.Created,
	}
}

var replicaStates = map[blobfs.ReplicaState]string{
	blobfs.ReplicaGood: api.ReplicaGood, blobfs.ReplicaMissing: api.ReplicaMissing,
	blobfs.ReplicaCorrupt: api.ReplicaCorrupt, blobfs.ReplicaUnreachable: api.ReplicaUnreachable,
}

func (bs *blobService) extentInfos(reports []blobfs.ExtentReport) []api.ExtentInfo {
	infos := make([]api.ExtentInfo, len(reports))
	for i, x := range reports {
		infos[i] = api.ExtentInfo{Index: int64(x.Index), Bytes: x.Length, ReplicationFactor: int64(x.Wanted)}
		for _, r := range x.Replicas {
			info := api.ReplicaInfo{Node: r.Node, Name: bs.nameOf(r.Node), State: replicaStates[r.State]}
			var corrupt *blobfs.CorruptError
			if errors.As(r.Err, &corrupt) {
				info.File, info.Offset = corrupt.File, corrupt.Offset
			}
			if r.Err != nil {
				info.Reason = r.Err.Error()
			}
			infos[i].Replicas = append(infos[i].Replicas, info)
		}
	}
	return infos
}

// nameOf returns the name of a node, or its id.
func (bs *blobService) nameOf(id string) string {
	if name := bs.members().Name(id); name != "" {
		return name
	}
	return id
}

func (bs *blobService) blobDelete(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	id, err := parseBlobID(r.ID)
	if err != nil {
		return nil, err
	}
	return nil, bs.deleteBlob(ctx, id)
}

// blobRevive restores a blob from quarantine.
func (bs *blobService) blobRevive(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	id, err := parseBlobID(r.ID)
	if err != nil {
		return nil, err
	}
	revived, err := bs.store.Load().GC().Revive(ctx, id)
	switch {
	case err == nil:
		return func(e *wire.Encoder) { e.Int(int64(revived)) }, nil
	case revived == 0 && errors.Is(err, blobfs.ErrNoBlob) && !errors.Is(err, blobapi.ErrUnreachable):
		return nil, fmt.Errorf("%w: %s is not in quarantine", api.ErrNoBlob, id)
	}
	return nil, err
}

// blobResumeSweep resumes garbage collection after an alarm.
func (bs *blobService) blobResumeSweep(ctx context.Context, _ *api.BlobRequest) (reply.Result, error) {
	return nil, bs.store.Load().GC().Resume(ctx)
}

func (bs *blobService) blobList(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	count := int(min(r.Count, api.BlobListMax))
	if count == 0 {
		count = api.BlobListCount
	}
	var after blobfs.ID
	if r.After != "" {
		var err error
		if after, err = blobfs.ParseID(r.After); err != nil {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "after: %v", err)
		}
	}
	list := bs.listStored
	if r.All {
		list = bs.listHeld
	}
	p, err := list(ctx, after, count)
	if err != nil {
		return nil, err
	}
	if len(p.Blobs) == count {
		p.Next = p.Blobs[count-1].ID
	}
	return p.Append, nil
}

// listStored lists the stored files.
func (bs *blobService) listStored(ctx context.Context, after blobfs.ID, count int) (p api.BlobPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	names, err := bs.catalog.List(ctx, blobsDir)
	if err != nil {
		return p, err
	}
	slices.Sort(names)
	for _, name := range names {
		id, err := blobfs.ParseID(name)
		if err != nil {
			return p, fmt.Errorf("%s/%s: %w", blobsDir, name, err)
		}
		if name <= after.String() && !after.IsZero() {
			continue
		}
		f, _, err := bs.refs.blobFile(ctx, id)
		if errors.Is(err, api.ErrNoBlob) { // deleted meanwhile
			continue
		}
		if err != nil {
			return p, err
		}
		if p.Blobs = append(p.Blobs, f.info()); len(p.Blobs) == count {
			break
		}
	}
	return p, nil
}

// listHeld lists all blobs that nodes hold parts of.
func (bs *blobService) listHeld(ctx context.Context, after blobfs.ID, count int) (p api.BlobPage, err error) {
	held, silent, err := bs.store.Load().Holdings(ctx, after, count)
	if err != nil {
		return p, err
	}
	for _, id := range silent {
		p.Silent = append(p.Silent, bs.nameOf(id))
	}
	named, err := bs.refs.namedBlobs(ctx)
	if err != nil {
		return p, err
	}
	for i := range held {
		info := holdingInfo(&held[i])
		if is, ok := named[held[i].ID]; ok {
			info.Kind, info.Name = is.kind, is.name
		}
		p.Blobs = append(p.Blobs, info)
	}
	return p, nil
}
