package blockstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/budget"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// Config is what the package needs.
type Config struct {
	Background  *sync.WaitGroup
	Log         *slog.Logger
	FS          vfs.FS
	DataDirs    []string
	ExtentBytes int64         // 0 is the default
	Repair      repair.Config // without Workers, which are those of Budget
	GC          gc.Config
	Reserve     func() int64
	Budget      budget.Budget
	Locks       Locks
	Meta        *namespace.Access
	Catalog     *namespace.Catalog
	Members     *members.Blobs
	Unready     func() string // why the node does not serve
}

// Locks is the node's session with the lock service.
type Locks interface {
	// UntilLeader repeats do until the lock service has a leader.
	UntilLeader(ctx context.Context, do func(context.Context) error) error
	// Hold acquires another lock after the current one is lost.
	Hold(ctx context.Context) error
	// Guard makes a change fail unless the node holds its lock.
	Guard() metaapi.SetOptions
}

// Service has the node's part of the block store.
type Service struct {
	Config
	store atomic.Pointer[blobfs.Store]
}

// New creates a service. Nothing is open before Open.
func New(cfg Config) *Service { return &Service{Config: cfg} }

// Open opens the node's part of the block store. Its files are encrypted if there are master keys.
func (s *Service) Open(ctx context.Context, masterKeys []blobfs.MasterKey) error {
	for {
		err := s.Locks.UntilLeader(ctx, s.Members.Read)
		if err == nil {
			break
		}
		if ctx.Err() != nil || s.Meta.Current().Err() == nil {
			return err
		}
		s.Log.Warn("lock service session lost while opening the block store; opening another", "err", err)
		if err := s.Locks.Hold(ctx); err != nil {
			return err
		}
	}
	repairs := s.Repair
	repairs.Workers = s.Budget.Copies
	store, err := blobfs.OpenIn(blobfs.Cluster{Membership: s.Members, Lists: lists{s}, Logs: replog.Config{WindowBytes: int(s.Budget.LogWindow)},
		Repair: repairs, GC: s.GC, WindowBytes: s.Budget.BlobWindow}, blobfs.Config{
		FS: s.FS, Folders: identity.BlobFolders(s.DataDirs), Logger: s.Log.With("part", "blobfs"), ReserveBytes: s.Reserve(), ExtentBytes: s.ExtentBytes,
		MasterKeys: masterKeys,
	})
	if err != nil {
		return err
	}
	s.store.Store(store)
	s.Background.Go(s.Members.Follow)
	return nil
}

// Store returns the block store; nil until it is open.
func (s *Service) Store() *blobfs.Store { return s.store.Load() }

// Close closes the block store, if it is open.
func (s *Service) Close() (err error) {
	if store := s.Store(); store != nil {
		err = store.Close()
	}
	s.Members.Close()
	return err
}

// Peer returns the part of the block store that this node offers to others.
func (s *Service) Peer() (blobapi.Peer, error) {
	if store := s.Store(); store != nil {
		return store.Peer(), nil
	}
	return nil, fmt.Errorf("%w: %s", blobapi.ErrUnreachable, s.Unready())
}

// Retired returns the errors that retired the store's directories; nil for those that work.
func (s *Service) Retired() map[string]error {
	retired := map[string]error{}
	if store := s.Store(); store != nil {
		for _, f := range store.Stats().Folders {
			retired[f.Path] = f.Retired
		}
	}
	return retired
}

// Report retires a directory after an error of its disk.
func (s *Service) Report(folder string, err error) {
	if store := s.Store(); store != nil {
		store.FolderFailed(folder, err)
	}
}
