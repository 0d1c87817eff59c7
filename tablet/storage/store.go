package storage

import (
	"context"
	"errors"

	"github.com/steledb/stele/blobfs"
)

// OnStore adapts store to Blobs for a tablet server whose logs are on this node only: for tests, and
// for the offline verification of SSTables.
func OnStore(store *blobfs.Store) Blobs { return onStore{store} }

type onStore struct{ *blobfs.Store }

func (s onStore) Create(ctx context.Context) (BlobWriter, error) {
	w, err := s.Store.Create(ctx)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s onStore) CreateHighPriority(ctx context.Context, bytes int64) (BlobWriter, error) {
	w, err := s.Store.CreateHighPriority(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s onStore) OpenBlob(ctx context.Context, h blobfs.Handle) (BlobReader, error) {
	r, err := s.Store.OpenBlob(ctx, h)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s onStore) Delete(ctx context.Context, id blobfs.ID) error {
	if err := s.Store.Delete(ctx, id); !errors.Is(err, blobfs.ErrNoBlob) {
		return err
	}
	return nil
}

func (s onStore) Logs(context.Context) ([]blobfs.ID, error) {
	var ids []blobfs.ID
	for _, l := range s.Store.Logs() {
		ids = append(ids, l.ID)
	}
	return ids, nil
}

func (s onStore) CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error) {
	w, err := s.Store.CreateLog(ctx, id)
	if err != nil {
		return nil, err
	}
	return localLog{w}, nil
}

func (s onStore) OpenLog(ctx context.Context, id blobfs.ID) (LogReader, error) {
	r, err := s.Store.OpenLog(ctx, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// localLog is a log on this node's disks, without replicas.
type localLog struct{ *blobfs.LogWriter }

func (localLog) Weak() int64 { return 0 }

// Unused implements LogWriter. A segment is left only when it is full.
func (localLog) Unused(int64) (int64, bool) { return 0, false }

// Extent implements LogWriter.
func (localLog) Extent() uint64 { return 0 }

// Slowest implements LogWriter. There is one disk.
func (localLog) Slowest() *string { return nil }

// Full implements LogWriter. An append that finds no space fails at once.
func (localLog) Full() error { return nil }

// OnReplicatedStore adapts store to Blobs for a tablet server whose logs are replicated on several
// nodes and listed under the server's name.
func OnReplicatedStore(store *blobfs.Store, server string) Blobs {
	return onReplicatedStore{onStore{store}, server}
}

type onReplicatedStore struct {
	onStore
	server string
}

func (s onReplicatedStore) Logs(ctx context.Context) ([]blobfs.ID, error) {
	return s.ReplicatedLogs().List(ctx, s.server)
}

func (s onReplicatedStore) CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error) {
	w, err := s.ReplicatedLogs().Create(ctx, s.server, id)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s onReplicatedStore) OpenLog(ctx context.Context, id blobfs.ID) (LogReader, error) {
	r, err := s.ReplicatedLogs().Open(ctx, s.server, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s onReplicatedStore) RemoveLog(ctx context.Context, id blobfs.ID) error {
	return s.ReplicatedLogs().Remove(ctx, s.server, id)
}

// OnHighPriorityStore is OnReplicatedStore for a server of high-priority tablets (Load.HighPriority), whose
// logs are high priority too.
func OnHighPriorityStore(store *blobfs.Store, server string) Blobs {
	return onHighPriorityStore{onReplicatedStore{onStore{store}, server}}
}

type onHighPriorityStore struct{ onReplicatedStore }

func (s onHighPriorityStore) CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error) {
	w, err := s.ReplicatedLogs().CreateHighPriority(ctx, s.server, id)
	if err != nil {
		return nil, err
	}
	return w, nil
}
