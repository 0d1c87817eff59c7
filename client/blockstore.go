package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Types of the results about the block store.
type (
	// FsckStep is the result of one step of a check of the whole block store.
	FsckStep = api.FsckStep
	// StoreStatus is the block store, as reported by its nodes.
	StoreStatus = api.StoreStatus
	// NodeStore is a node's part of the block store.
	NodeStore = api.NodeStore
)

// BlockStore checks and repairs the block store, which holds the blobs of users and the files of
// tables.
type BlockStore struct{ calls *caller }

// BlockStore returns the maintenance of the block store.
func (c *Client) BlockStore() BlockStore { return BlockStore{&c.calls} }

// Fsck makes one step of a check of the block store: of all blobs of tables, users and commit logs,
// and of blobs on nodes that nothing refers to. after is the Next of the previous step. It is empty
// for the first step, and Next is empty after the last. With deep, nodes read all bytes of all
// replicas. Errors: those of a node that cannot be reached; ctx's.
func (b BlockStore) Fsck(ctx context.Context, after string, deep bool) (*FsckStep, error) {
	s := &api.FsckStep{}
	return s, b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobFsck, After: after, Deep: deep}, false, s.Decode)
}

// Status returns the state of the block store on all nodes. Errors: those of a node that cannot be
// reached; ctx's.
func (b BlockStore) Status(ctx context.Context) (*StoreStatus, error) {
	s := &api.StoreStatus{}
	return s, b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobStatus}, false, s.Decode)
}

// Revive takes the extents of a blob, of any owner, out of the quarantine of the garbage sweep, and
// returns the number of replicas found. If nothing refers to the blob, a later sweep quarantines it
// again. Errors: ErrNoBlob if none of its extents exists; ErrUnavailable if a node does not answer,
// after the others have revived theirs; those of a node that cannot be reached; ctx's.
func (b BlockStore) Revive(ctx context.Context, id string) (replicas int64, err error) {
	err = b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobRevive, ID: id}, false, func(d *wire.Decoder) error {
		replicas = d.Int()
		return d.Err()
	})
	return replicas, err
}

// ResumeSweep resumes the garbage sweep, which stops when a quarantined blob turns out to be
// needed. Errors: ErrUnavailable if a node cannot be reached, whose alarm stops the next round
// again; those of a node that cannot be reached; ctx's.
func (b BlockStore) ResumeSweep(ctx context.Context) error {
	return b.calls.blob(ctx, api.BlobRequest{Method: api.MethodBlobResumeSweep}, false, nil)
}
