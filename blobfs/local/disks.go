package local

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// disks are the data folders of a node, and the calls that use them.
type disks struct {
	cfg     Config
	folders []*folder
	spares  sparePool
	// evict frees space in a folder until enough returns true or nothing more can be removed.
	evict func(f *folder, enough func() bool)

	// round is the current round of the sweep. It dates extents and replicas: see SetRound.
	round atomic.Uint64

	// placing guards folder.credit. Never held across I/O.
	placing sync.Mutex

	// running is read-locked by calls that write and locked by Close, so that nothing is written
	// after the folders are unlocked. It is acquired before any other lock.
	running sync.RWMutex
	closed  bool // guarded by running
}

func newDisks(cfg Config) *disks {
	s := &disks{cfg: cfg}
	s.cfg.Folders = slices.Clone(cfg.Folders)
	s.spares.init(s)
	return s
}

// ExtentBytes returns the maximum length of an extent in this store.
func (s *disks) ExtentBytes() int64 { return s.cfg.ExtentBytes }

// Node returns the name of this node in handles.
func (s *disks) Node() string { return s.cfg.Node }

// begin starts a call that writes. If it returns nil, the caller must call end.
func (s *disks) begin(ctx context.Context) error {
	if s.cfg.ReadOnly {
		return ErrReadOnly
	}
	return s.beginReadOnly(ctx)
}

// beginReadOnly is begin for a call that is also allowed in a read-only store.
func (s *disks) beginReadOnly(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.running.RLock()
	if s.closed {
		s.running.RUnlock()
		return ErrClosed
	}
	return nil
}

func (s *disks) end() { s.running.RUnlock() }
