package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// blobsDir has a file for each stored blob: the blob exists, and is kept, while its file exists.
const blobsDir = "/blobs"

func blobPath(id blobfs.ID) string { return blobsDir + "/" + id.String() }

// blobFile is the content of a blob's file, the MessagePack array
//
//	[1, name, created in ms since 1970, handle]
//
// Later versions append values; readers skip those that they do not know.
type blobFile struct {
	name    string
	created time.Time
	handle  blobfs.Handle
}

const (
	blobFileVersion = 1
	blobFileValues  = 4
)

func (f *blobFile) encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(blobFileValues)
	e.Uint(blobFileVersion)
	e.Str(f.name)
	e.Int(f.created.UnixMilli())
	blobfs.AppendHandle(e, f.handle)
	return append([]byte(nil), e.Bytes()...)
}

func decodeBlobFile(b []byte) (f blobFile, err error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return f, fmt.Errorf("blob file: %d of %d bytes are a message: %v", n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if v := d.Uint(); d.Err() == nil && (v != blobFileVersion || n < blobFileValues) {
		return f, fmt.Errorf("blob file: %d values of version %d, want at least %d of version %d", n, v, blobFileValues, blobFileVersion)
	}
	f.name, f.created = d.Str(), time.UnixMilli(d.Int())
	f.handle = blobfs.DecodeHandle(&d)
	for range n - blobFileValues {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return blobFile{}, fmt.Errorf("blob file: %w", err)
	}
	return f, nil
}

func (f *blobFile) info() api.BlobInfo {
	return api.BlobInfo{
		ID: f.handle.ID.String(), Kind: api.BlobOfUser, Name: f.name, Created: f.created,
		Bytes: f.handle.Length, Extents: int64(len(f.handle.Extents)),
	}
}

// parseBlobID parses an id. An invalid id is an api.ErrNoBlob.
func parseBlobID(s string) (blobfs.ID, error) {
	id, err := blobfs.ParseID(s)
	if err != nil || id.IsZero() {
		return id, fmt.Errorf("%w: %.80q is not an id, which has 32 hexadecimal digits and is not 0", api.ErrNoBlob, s)
	}
	return id, nil
}

// blobFile returns a blob's file and its generation. The error is api.ErrNoBlob, or that of the lock service.
func (rf *blobRefs) blobFile(ctx context.Context, id blobfs.ID) (blobFile, uint64, error) {
	f, err := rf.meta.Current().Get(ctx, blobPath(id))
	if errors.Is(err, metaapi.ErrNotFound) {
		return blobFile{}, 0, fmt.Errorf("blob %s: %w", id, api.ErrNoBlob)
	}
	if err != nil {
		return blobFile{}, 0, err
	}
	b, err := decodeBlobFile(f.Data)
	if err == nil && b.handle.ID != id {
		err = fmt.Errorf("%s describes blob %s", blobPath(id), b.handle.ID)
	}
	return b, f.Generation, err
}

// nameBlob writes the file of a sealed blob, which makes it exist. After an error it does not exist, unless the error is
// metaapi.ErrOutcomeUnknown. The file counts for its owner.
func (bs *blobService) nameBlob(ctx context.Context, f *blobFile, owner string) error {
	if owner == "" && bs.authz.Open {
		owner = authz.OpenClients
	}
	_, err := bs.catalog.SetFor(ctx, owner, blobPath(f.handle.ID), f.encode(), 0)
	var large *metaapi.TooLargeError
	if errors.As(err, &large) {
		what := large.What + " with the blob's name (delete blobs or files below " + namespace.LocksDir + ", or give the voters more --memory)"
		return &table.LimitError{What: what, Limit: large.Limit, Got: large.Got}
	}
	return err
}

// deleteBlob deletes a blob's file and then its bytes. Bytes on nodes that do not answer are left to garbage collection. The error is
// api.ErrNoBlob, or that of the lock service.
func (bs *blobService) deleteBlob(ctx context.Context, id blobfs.ID) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if _, _, err := bs.refs.blobFile(ctx, id); err != nil && errors.Is(err, api.ErrNoBlob) {
		return err
	}
	err := bs.catalog.Remove(ctx, blobPath(id), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return fmt.Errorf("blob %s: %w", id, api.ErrNoBlob)
	}
	if err != nil {
		return err
	}
	if err := bs.store.Load().Delete(ctx, id); err != nil && !errors.Is(err, blobfs.ErrNoBlob) {
		bs.log.Warn("deleted blob left to garbage collection", "blob", id.String(), "err", err)
	}
	return nil
}
