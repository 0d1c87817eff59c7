package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// blobsDir has a file for each blob that somebody stored: with it the blob is there, and needed.
const blobsDir = "/blobs"

func blobPath(id blobfs.ID) string { return blobsDir + "/" + id.String() }

// blobFile is what the file of a blob says, as the MessagePack array
//
//	[1, name, created in ms since 1970, handle]
//
// Later versions append; readers pass over what they do not know.
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
		return f, fmt.Errorf("file of a blob: %d of %d bytes are a message: %v", n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if v := d.Uint(); d.Err() == nil && (v != blobFileVersion || n < blobFileValues) {
		return f, fmt.Errorf("file of a blob: %d values of version %d, want at least %d of version %d", n, v, blobFileValues, blobFileVersion)
	}
	f.name, f.created = d.Str(), time.UnixMilli(d.Int())
	f.handle = blobfs.DecodeHandle(&d)
	for range n - blobFileValues {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return blobFile{}, fmt.Errorf("file of a blob: %w", err)
	}
	return f, nil
}

func (f *blobFile) info() api.BlobInfo {
	return api.BlobInfo{
		ID: f.handle.ID.String(), Kind: api.BlobOfPerson, Name: f.name, Created: f.created,
		Bytes: f.handle.Length, Extents: int64(len(f.handle.Extents)),
	}
}

// parseBlobID reads an id as people give it. What is none names no blob.
func parseBlobID(s string) (blobfs.ID, error) {
	id, err := blobfs.ParseID(s)
	if err != nil || id.IsZero() {
		return id, fmt.Errorf("%w: an id is 32 hexadecimal digits, not all 0, and not %.80q", api.ErrNoBlob, s)
	}
	return id, nil
}

// blobFile reads the file of a blob, and its generation. ErrNoBlob.
func (n *Node) blobFile(ctx context.Context, id blobfs.ID) (blobFile, uint64, error) {
	f, err := n.meta.current().Get(ctx, blobPath(id))
	if errors.Is(err, metaapi.ErrNotFound) {
		return blobFile{}, 0, fmt.Errorf("blob %s: %w", id, api.ErrNoBlob)
	}
	if err != nil {
		return blobFile{}, 0, err
	}
	b, err := decodeBlobFile(f.Data)
	if err == nil && b.handle.ID != id {
		err = fmt.Errorf("%s is about blob %s", blobPath(id), b.handle.ID)
	}
	return b, f.Generation, err
}

// nameBlob makes a sealed blob one that is needed: it is there when this returns nil. After
// an error it is not, unless that is metaapi.ErrOutcomeUnknown. The blob's file counts in the share of its owner.
func (n *Node) nameBlob(ctx context.Context, f *blobFile, owner string) error {
	if owner == "" && n.security == nil {
		owner = openClients
	}
	_, err := n.catalog.setFor(ctx, owner, blobPath(f.handle.ID), f.encode(), 0)
	var large *metaapi.TooLargeError
	if errors.As(err, &large) {
		what := large.What + " with the blob's name (delete blobs or files below " + locksDir + ", or give the voters more --memory)"
		return &table.LimitError{What: what, Limit: large.Limit, Got: large.Got}
	}
	return err
}

// deleteBlob takes a blob's name, and then its bytes: those that are left behind on nodes that do not
// answer are garbage for the sweep. ErrNoBlob.
func (n *Node) deleteBlob(ctx context.Context, id blobfs.ID) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if _, _, err := n.blobFile(ctx, id); err != nil && errors.Is(err, api.ErrNoBlob) {
		return err
	}
	err := n.catalog.remove(ctx, blobPath(id), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return fmt.Errorf("blob %s: %w", id, api.ErrNoBlob)
	}
	if err != nil {
		return err
	}
	if err := n.store.Load().Delete(ctx, id); err != nil && !errors.Is(err, blobfs.ErrNoBlob) {
		n.log.Warn("bytes of a deleted blob are left to the sweep", "blob", id.String(), "error", err)
	}
	return nil
}
