package blobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/peers"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/node/roots"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// Config is what the service needs.
type Config struct {
	Ctx         context.Context // of the node
	Background  *sync.WaitGroup
	Log         *slog.Logger
	FS          vfs.FS // of the data directories
	NodeName    string
	ID          func() string // of the node
	Catalog     *namespace.Catalog
	Meta        *namespace.Access
	Authz       *authz.Authorizer
	Peers       *peers.Set
	Results     *results.Memory
	Store       func() *blobfs.Store // nil until it is open
	Members     func() *members.Blobs
	MasterEpoch func() uint64 // 0 unless the node is the master
	Roots       *roots.Reader
	// SweepDelay is the time between becoming master and the first garbage collection, which is less urgent than other work. Zero means 10 min.
	SweepDelay time.Duration
	// LogTimes returns the times of log replicas, as this node's commit logs saw them.
	LogTimes func() []api.ReplicaTimes
	// Pauses returns how often the process did not run in the last minutes, and for how long at most.
	Pauses func() (n int64, longest time.Duration)
}

// Service stores files for users, checks and reports the block store, and on the master collects its garbage.
type Service struct {
	Config
	uploads uploads
}

// New creates a service.
func New(cfg Config) *Service { return &Service{Config: cfg} }

// Register registers the methods for blobs.
func (bs *Service) Register(r method.Registrar) {
	read, write, monitor := authz.Guard{To: authz.Right, Right: acl.Read}, authz.Guard{To: authz.Right, Right: acl.Write}, authz.Guard{To: authz.Right, Right: acl.Monitor}
	admin := func(about func(*rpc.Call) string) authz.Guard {
		return authz.Guard{To: authz.Right, Right: acl.Admin, About: about}
	}
	bs.handle(r, api.MethodBlobOpen, write, bs.open)
	bs.handle(r, api.MethodBlobWrite, write, bs.write)
	bs.handle(r, api.MethodBlobSeal, write, bs.seal)
	bs.handle(r, api.MethodBlobAbort, write, bs.abort)
	bs.handle(r, api.MethodBlobStat, read, bs.stat)
	bs.handle(r, api.MethodBlobList, read, bs.list)
	bs.handle(r, api.MethodBlobStatus, monitor, bs.status)
	bs.handle(r, api.MethodBlobDelete, admin(authz.Named("blob")), bs.delete)
	bs.handle(r, api.MethodBlobFsck, admin(authz.Always("all blobs")), bs.check)
	bs.handle(r, api.MethodBlobRevive, admin(authz.Named("blob")), bs.revive)
	bs.handle(r, api.MethodBlobResumeSweep, admin(authz.Always("the sweep")), bs.resumeSweep)
	r.Handle(api.MethodBlobRead, rpc.Spawned, read, bs.read)
}

func (bs *Service) handle(r method.Registrar, method string, guard authz.Guard, h func(ctx context.Context, r *api.BlobRequest) (reply.Result, error)) {
	r.Handle(method, rpc.Spawned, guard, func(c *rpc.Call) {
		r, ok := begin(c, method)
		if !ok {
			return
		}
		result, err := h(authz.WithSubject(c.Context(), authz.SubjectOf(c)), r)
		if err != nil {
			reply.Fail(c, toAPI(c, err))
			return
		}
		c.Reply(result)
	})
}

func begin(c *rpc.Call, method string) (*api.BlobRequest, bool) {
	r := &api.BlobRequest{Method: method}
	return r, reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options)
}

// toAPI converts errors of the block store to their API form. A blob that has a name but no bytes is corrupt.
func toAPI(c *rpc.Call, err error) error {
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

func (bs *Service) open(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	u, err := bs.uploads.open(ctx, bs.Store(), roots.StoredFile{Name: strings.ToValidUTF8(r.Name, "�"), Staged: r.Staged}, authz.SubjectIn(ctx).Owner())
	if err != nil {
		return nil, err
	}
	return u.Append, nil
}

func (bs *Service) write(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
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

func (bs *Service) seal(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
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

func (bs *Service) abort(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
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

// read opens only the extents that it reads: a blob may have many.
func (bs *Service) read(c *rpc.Call) {
	r, ok := begin(c, api.MethodBlobRead)
	if !ok {
		return
	}
	release, err := bs.Results.Take(c.Context(), authz.SubjectOf(c).Owner(), int(r.Length))
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.OnSent(release)
	p, err := bs.readBlob(c.Context(), r)
	if err != nil {
		reply.Fail(c, toAPI(c, err))
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bin(p) })
}

func (bs *Service) readBlob(ctx context.Context, r *api.BlobRequest) ([]byte, error) {
	id, err := parseID(r.ID)
	if err != nil {
		return nil, err
	}
	_, h, err := bs.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Offset >= h.Length {
		return nil, nil
	}
	p := make([]byte, min(r.Length, h.Length-r.Offset))
	part, start := slice(h, r.Offset, int64(len(p)))
	blob, err := bs.Store().OpenBlob(ctx, part)
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

// find locates a referenced blob: a stored file, or a file of a table.
func (bs *Service) find(ctx context.Context, id blobfs.ID) (api.BlobInfo, blobfs.Handle, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	f, _, err := bs.Roots.Stored(ctx, id)
	if err == nil {
		return f.Info(), f.Handle, nil
	}
	if !errors.Is(err, api.ErrNoBlob) {
		return api.BlobInfo{}, blobfs.Handle{}, err
	}
	var info api.BlobInfo
	var h blobfs.Handle
	errRoots := bs.Roots.TableFiles(ctx, func(x *roots.TableFile) error {
		if x.Handle.ID == id {
			info, h = x.Info(), x.Handle
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

func (bs *Service) stat(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	id, err := parseID(r.ID)
	if err != nil {
		return nil, err
	}
	info, h, err := bs.find(ctx, id)
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
	s.Parts = bs.extentInfos(bs.Store().Inspect(ctx, id, refs, r.Deep))
	for i := range s.Parts {
		if good := int64(s.Parts[i].Count(api.ReplicaGood)); i == 0 || good < s.Replicas {
			s.Replicas = good
		}
	}
	return s.Append, ctx.Err()
}

// findUnnamed locates a blob without references by what nodes hold of it.
func (bs *Service) findUnnamed(ctx context.Context, id blobfs.ID, none error) (api.BlobInfo, blobfs.Handle, error) {
	store := bs.Store()
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
			bs.Log.Debug("no replica returned its checksum", "blob", id.String(), "extent", i, "err", err)
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

func (bs *Service) extentInfos(reports []blobfs.ExtentReport) []api.ExtentInfo {
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
func (bs *Service) nameOf(id string) string {
	if name := bs.Members().Name(id); name != "" {
		return name
	}
	return id
}

func (bs *Service) delete(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	id, err := parseID(r.ID)
	if err != nil {
		return nil, err
	}
	return nil, bs.deleteBlob(ctx, id)
}

// revive restores a blob from quarantine.
func (bs *Service) revive(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
	id, err := parseID(r.ID)
	if err != nil {
		return nil, err
	}
	revived, err := bs.Store().GC().Revive(ctx, id)
	switch {
	case err == nil:
		return func(e *wire.Encoder) { e.Int(int64(revived)) }, nil
	case revived == 0 && errors.Is(err, blobfs.ErrNoBlob) && !errors.Is(err, blobapi.ErrUnreachable):
		return nil, fmt.Errorf("%w: %s is not in quarantine", api.ErrNoBlob, id)
	}
	return nil, err
}

// resumeSweep resumes garbage collection after an alarm.
func (bs *Service) resumeSweep(ctx context.Context, _ *api.BlobRequest) (reply.Result, error) {
	return nil, bs.Store().GC().Resume(ctx)
}

func (bs *Service) list(ctx context.Context, r *api.BlobRequest) (reply.Result, error) {
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
func (bs *Service) listStored(ctx context.Context, after blobfs.ID, count int) (p api.BlobPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	names, err := bs.Catalog.List(ctx, namespace.BlobsDir)
	if err != nil {
		return p, err
	}
	slices.Sort(names)
	for _, name := range names {
		id, err := blobfs.ParseID(name)
		if err != nil {
			return p, fmt.Errorf("%s/%s: %w", namespace.BlobsDir, name, err)
		}
		if name <= after.String() && !after.IsZero() {
			continue
		}
		f, _, err := bs.Roots.Stored(ctx, id)
		if errors.Is(err, api.ErrNoBlob) { // deleted meanwhile
			continue
		}
		if err != nil {
			return p, err
		}
		if p.Blobs = append(p.Blobs, f.Info()); len(p.Blobs) == count {
			break
		}
	}
	return p, nil
}

// listHeld lists all blobs that nodes hold parts of.
func (bs *Service) listHeld(ctx context.Context, after blobfs.ID, count int) (p api.BlobPage, err error) {
	held, silent, err := bs.Store().Holdings(ctx, after, count)
	if err != nil {
		return p, err
	}
	for _, id := range silent {
		p.Silent = append(p.Silent, bs.nameOf(id))
	}
	named, err := bs.Roots.Named(ctx)
	if err != nil {
		return p, err
	}
	for i := range held {
		info := holdingInfo(&held[i])
		if is, ok := named[held[i].ID]; ok {
			info.Kind, info.Name = is.Kind, is.Name
		}
		p.Blobs = append(p.Blobs, info)
	}
	return p, nil
}

// parseID parses an id. An invalid id is an api.ErrNoBlob.
func parseID(s string) (blobfs.ID, error) {
	id, err := blobfs.ParseID(s)
	if err != nil || id.IsZero() {
		return id, fmt.Errorf("%w: %.80q is not an id, which has 32 hexadecimal digits and is not 0", api.ErrNoBlob, s)
	}
	return id, nil
}

// deleteBlob deletes a blob's file and then its bytes. Bytes that a backup may name, and those on nodes that do not answer, are left to
// garbage collection. The error is api.ErrNoBlob, or that of the lock service.
func (bs *Service) deleteBlob(ctx context.Context, id blobfs.ID) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	unshared, err := bs.removeFile(ctx, id)
	if errors.Is(err, metaapi.ErrNotFound) {
		return fmt.Errorf("blob %s: %w", id, api.ErrNoBlob)
	}
	if err != nil || !unshared {
		return err
	}
	if err := bs.Store().Delete(ctx, id); err != nil && !errors.Is(err, blobfs.ErrNoBlob) {
		bs.Log.Warn("deleted blob left to garbage collection", "blob", id.String(), "err", err)
	}
	return nil
}

// removeFile removes a blob's file. unshared means that exactly the removed file proves that nothing else names the bytes: it was
// decoded, and is not staged. The error is that of the lock service.
func (bs *Service) removeFile(ctx context.Context, id blobfs.ID) (unshared bool, err error) {
	for {
		f, err := bs.Catalog.Meta.Get(ctx, roots.StoredPath(id))
		if err != nil {
			return false, err
		}
		file, errFile := roots.DecodeStored(f.Data)
		err = bs.Catalog.Remove(ctx, f.Path, f.Generation)
		if errors.Is(err, metaapi.ErrGeneration) && !errors.Is(err, metaapi.ErrOutcomeUnknown) {
			continue // it was written meanwhile
		}
		if errFile != nil && err == nil {
			bs.Log.Warn("blob with an unreadable file left to garbage collection", "blob", id.String(), "err", errFile)
		}
		return err == nil && errFile == nil && file.Handle.ID == id && !file.Staged, err
	}
}
