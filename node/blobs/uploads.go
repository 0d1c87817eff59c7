package blobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/roots"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// uploads are the blobs that clients are writing. A sealed upload is kept as long as an idle one, so that a client whose answer was lost may
// repeat the request.
type uploads struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		open   map[uint64]*upload
		stop   chan struct{}
		closed bool
		// refused counts uploads refused because of others.
		refused int64
	}
}

// upload is a blob being written.
type upload struct {
	// busy is a semaphore: calls for one upload run one after the other.
	busy chan struct{}
	used time.Time // guarded by the mu of uploads
	// owner is the user who stores the blob; empty for nodes and on an open cluster.
	owner string

	// The following fields belong to the holder of busy.
	file   roots.StoredFile // the handle is empty until it is sealed
	w      *blobfs.Writer
	length int64
	most   int64 // limit of length
	err    error // the failure that ended it
	sealed bool
}

// open begins an upload. Errors: *api.OverloadedError, the store's.
func (us *uploads) open(ctx context.Context, store *blobfs.Store, file roots.StoredFile, owner string) (api.BlobUpload, error) {
	u := &upload{busy: make(chan struct{}, 1), file: file, owner: owner}
	u.most = min(api.BlobBytesMax, api.BlobExtentsMax*store.ExtentBytes())
	u.busy <- struct{}{}
	id, err := us.add(u)
	if err != nil {
		return api.BlobUpload{}, err
	}
	// The writer outlives the call.
	if u.w, err = store.Create(context.WithoutCancel(ctx)); err != nil {
		u.err = err
		us.end(id)
		return api.BlobUpload{}, err
	}
	<-u.busy
	return api.BlobUpload{Upload: id, ID: u.w.ID().String()}, nil
}

func (us *uploads) add(u *upload) (id uint64, err error) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.mu.closed {
		return 0, api.ErrUnavailable
	}
	if err := us.checkLocked(u.owner); err != nil {
		us.mu.refused++
		return 0, err
	}
	for id == 0 || us.mu.open[id] != nil {
		id = rand.Uint64N(wire.SafeIntegerMax + 1) // random, so that a client cannot guess another's by counting
	}
	if us.mu.open == nil {
		us.mu.open = map[uint64]*upload{}
	}
	u.used = time.Now()
	us.mu.open[id] = u
	return id, nil
}

// sealedMax bounds the sealed uploads that are kept for repeated requests.
const sealedMax = 63 * api.UploadsMax

// checkLocked returns an *api.OverloadedError if no upload is free for owner. A user may have as many as are then left for others: alone half
// of them. If too many sealed ones are kept, the oldest of the user with the most is dropped.
func (us *uploads) checkLocked(owner string) error {
	open, own := 0, 0
	sealed := map[string][]uint64{}
	for id, o := range us.mu.open {
		switch {
		case o.done():
			sealed[o.owner] = append(sealed[o.owner], id)
			continue
		case o.owner == owner:
			own++
		}
		open++
	}
	free, reason := api.UploadsMax-open, ""
	switch {
	case free <= 0:
		reason = fmt.Sprintf("%d of %d uploads to this node are under way: seal or abort one, or use another node", open, api.UploadsMax)
	case owner != "" && own >= max(1, free):
		reason = fmt.Sprintf("user %s has %d uploads to this node under way, and the %d free ones are for others: seal or abort one, or use another node",
			owner, own, free)
	}
	if reason != "" {
		return &api.OverloadedError{Reason: reason, RetryAfter: time.Second}
	}
	if len(us.mu.open)-open >= sealedMax {
		us.forgetLocked(sealed)
	}
	return nil
}

// forgetLocked drops the least recently used sealed upload of the owner with the most.
func (us *uploads) forgetLocked(sealed map[string][]uint64) {
	var most []uint64
	for _, ids := range sealed {
		if len(ids) > len(most) {
			most = ids
		}
	}
	delete(us.mu.open, slices.MinFunc(most, func(a, b uint64) int { return us.mu.open[a].used.Compare(us.mu.open[b].used) }))
}

// done reports whether an idle upload was sealed.
func (u *upload) done() bool {
	select {
	case u.busy <- struct{}{}:
		defer func() { <-u.busy }()
		return u.sealed
	default:
		return false
	}
}

// use reserves an upload of owner until release. The error is api.ErrUploadExpired, or ctx's.
func (us *uploads) use(ctx context.Context, id uint64, owner string) (u *upload, release func(), err error) {
	us.mu.Lock()
	u = us.mu.open[id]
	us.mu.Unlock()
	if u == nil || u.owner != owner {
		return nil, nil, api.ErrUploadExpired
	}
	select {
	case u.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	us.mu.Lock()
	u.used = time.Now()
	gone := us.mu.open[id] != u
	us.mu.Unlock()
	if gone {
		<-u.busy
		return nil, nil, api.ErrUploadExpired
	}
	return u, func() {
		us.mu.Lock()
		u.used = time.Now()
		us.mu.Unlock()
		<-u.busy
	}, nil
}

// write appends bytes at an offset; bytes that were written already are skipped. It returns the length.
func (u *upload) write(offset int64, p []byte) (int64, error) {
	switch end := offset + int64(len(p)); {
	case u.err != nil:
		return 0, u.err
	case u.sealed:
		return 0, rpc.Errorf(rpc.CodeBadRequest, "the blob is sealed")
	case offset > u.length:
		return 0, rpc.Errorf(rpc.CodeBadRequest, "offset %d leaves a gap after the %d bytes written so far", offset, u.length)
	case end > u.most:
		return 0, &table.LimitError{What: api.BlobBytes, Limit: u.most, Got: end}
	case end <= u.length:
		return u.length, nil
	}
	p = p[u.length-offset:]
	n, err := u.w.Write(p)
	u.length += int64(n)
	u.err = err
	return u.length, err
}

// end removes an upload. The caller holds it.
func (us *uploads) end(id uint64) {
	us.mu.Lock()
	u := us.mu.open[id]
	delete(us.mu.open, id)
	us.mu.Unlock()
	if u != nil && u.w != nil && !u.sealed {
		u.w.Abort()
	}
}

// uploadSweep is the interval at which idle uploads are ended.
const uploadSweep = api.UploadIdle / 6

// sweep ends idle uploads until close.
func (us *uploads) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(uploadSweep)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			us.endThose(func(u *upload) bool { return now.Sub(u.used) > api.UploadIdle })
		}
	}
}

// endThose ends the uploads that are not in use and for which idle returns true.
func (us *uploads) endThose(idle func(*upload) bool) {
	us.mu.Lock()
	var ended []*upload
	for id, u := range us.mu.open {
		if !idle(u) {
			continue
		}
		select {
		case u.busy <- struct{}{}:
			delete(us.mu.open, id)
			ended = append(ended, u)
		default:
		}
	}
	us.mu.Unlock()
	for _, u := range ended {
		if u.w != nil && !u.sealed {
			u.w.Abort()
		}
		<-u.busy
	}
}

// stats returns the number of uploads in progress, and of those refused.
func (us *uploads) stats() (open int, refused int64) {
	us.mu.Lock()
	defer us.mu.Unlock()
	for _, u := range us.mu.open {
		if !u.done() {
			open++
		}
	}
	return open, us.mu.refused
}

// start returns a channel that close closes.
func (us *uploads) start() <-chan struct{} {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.mu.stop = make(chan struct{})
	return us.mu.stop
}

// close ends all uploads, after all calls.
func (us *uploads) close() {
	us.mu.Lock()
	if us.mu.closed || us.mu.stop == nil {
		us.mu.Unlock()
		return
	}
	us.mu.closed = true
	close(us.mu.stop)
	us.mu.Unlock()
	us.endThose(func(*upload) bool { return true })
}

// Start starts ending idle uploads, until Close.
func (bs *Service) Start() {
	stop := bs.uploads.start()
	bs.Background.Go(func() { bs.uploads.sweep(stop) })
}

// Close ends all uploads. No call may be in progress.
func (bs *Service) Close() { bs.uploads.close() }

// Uploads returns the number of uploads in progress, and of those refused.
func (bs *Service) Uploads() (open int, refused int64) { return bs.uploads.stats() }

// sealUpload makes an upload a blob.
func (bs *Service) sealUpload(ctx context.Context, u *upload, length int64) (info api.BlobInfo, err error) {
	switch {
	case u.sealed:
	case u.err != nil:
		return info, u.err
	case length != u.length:
		return info, rpc.Errorf(rpc.CodeBadRequest, "%d bytes were written, not %d", u.length, length)
	default:
		if u.err = bs.sealWriter(ctx, u); u.err != nil {
			return info, u.err
		}
		u.sealed = true
	}
	return u.file.Info(), nil
}

// sealTimeout bounds a seal. It continues when the caller has left: it may repeat the request.
const sealTimeout = 2 * time.Minute

// sealWriter makes an upload durable and writes its file.
func (bs *Service) sealWriter(ctx context.Context, u *upload) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTimeout)
	defer cancel()
	f := &u.file
	if f.Handle, err = u.w.Seal(ctx); err != nil {
		return err
	}
	f.Created = time.Now().Truncate(time.Millisecond)
	if len(f.Handle.Extents) > api.BlobExtentsMax {
		err = &table.LimitError{What: "blob extents", Limit: api.BlobExtentsMax, Got: int64(len(f.Handle.Extents))}
	} else {
		err = bs.nameBlob(ctx, f, u.owner)
	}
	if err == nil {
		bs.Store().Release(f.Handle.ID) // garbage collection finds it by its file
	}
	// If the file may yet appear, the bytes stay.
	if err != nil && !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		_ = bs.Store().Delete(bs.Ctx, f.Handle.ID)
	}
	return err
}

// nameBlob writes the file of a sealed blob, which makes it exist. After an error it does not exist, unless the error is
// metaapi.ErrOutcomeUnknown. The file counts for its owner.
func (bs *Service) nameBlob(ctx context.Context, f *roots.StoredFile, owner string) error {
	if owner == "" && bs.Authz.Open {
		owner = authz.OpenClients
	}
	_, err := bs.Catalog.SetFor(ctx, owner, roots.StoredPath(f.Handle.ID), f.Encode(), 0)
	var large *metaapi.TooLargeError
	if errors.As(err, &large) {
		what := large.What + " with the blob's name (delete blobs or files below " + namespace.LocksDir + ", or give the voters more --memory)"
		return &table.LimitError{What: what, Limit: large.Limit, Got: large.Got}
	}
	return err
}
