package roots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// StoredPath returns the path of a stored file.
func StoredPath(id blobfs.ID) string { return namespace.BlobsDir + "/" + id.String() }

// StoredFile is the content of a blob's file, the MessagePack array
//
//	[1, name, created in ms since 1970, handle, staged]
//
// Later versions append values; readers skip those that they do not know.
type StoredFile struct {
	Name    string
	Created time.Time
	Handle  blobfs.Handle
	// Staged means that a backup may come to name the blob, so that only garbage collection may delete its bytes.
	Staged bool
}

const (
	storedVersion = 1
	storedValues  = 4 // of the first version without staged
)

// Encode encodes the content of the file.
func (f *StoredFile) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	n := storedValues
	if f.Staged {
		n++
	}
	e.Array(n)
	e.Uint(storedVersion)
	e.Str(f.Name)
	e.Int(f.Created.UnixMilli())
	blobfs.AppendHandle(e, f.Handle)
	if f.Staged {
		e.Bool(true)
	}
	return append([]byte(nil), e.Bytes()...)
}

// DecodeStored decodes the content of a file.
func DecodeStored(b []byte) (f StoredFile, err error) {
	d, more, err := wire.BeginRecord(b, "blob file", storedVersion, storedValues)
	if err != nil {
		return f, err
	}
	f.Name, f.Created = d.Str(), time.UnixMilli(d.Int())
	f.Handle = blobfs.DecodeHandle(&d)
	if more > 0 {
		f.Staged = d.Bool()
	}
	for range more - 1 {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return StoredFile{}, fmt.Errorf("blob file: %w", err)
	}
	return f, nil
}

// Info describes the blob for clients.
func (f *StoredFile) Info() api.BlobInfo {
	return api.BlobInfo{
		ID: f.Handle.ID.String(), Kind: api.BlobOfUser, Name: f.Name, Created: f.Created,
		Bytes: f.Handle.Length, Extents: int64(len(f.Handle.Extents)),
	}
}

// Stored returns a blob's file and its generation. The error is api.ErrNoBlob, or that of the lock service.
func (r *Reader) Stored(ctx context.Context, id blobfs.ID) (StoredFile, uint64, error) {
	f, err := r.Meta.Current().Get(ctx, StoredPath(id))
	if errors.Is(err, metaapi.ErrNotFound) {
		return StoredFile{}, 0, fmt.Errorf("blob %s: %w", id, api.ErrNoBlob)
	}
	if err != nil {
		return StoredFile{}, 0, err
	}
	b, err := DecodeStored(f.Data)
	if err == nil && b.Handle.ID != id {
		err = fmt.Errorf("%s describes blob %s", StoredPath(id), b.Handle.ID)
	}
	return b, f.Generation, err
}

// StagedFiles calls each for the blobs that are staged for an import, and stops at its error.
func (r *Reader) StagedFiles(ctx context.Context, each func(f *StoredFile, generation uint64) error) error {
	var ids []blobfs.ID
	if err := r.storedFiles(ctx, func(id blobfs.ID, _ Use) { ids = append(ids, id) }); err != nil {
		return err
	}
	for _, id := range ids {
		f, generation, err := r.Stored(ctx, id)
		if errors.Is(err, api.ErrNoBlob) || err == nil && !f.Staged {
			continue
		}
		if err == nil {
			err = each(&f, generation)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
