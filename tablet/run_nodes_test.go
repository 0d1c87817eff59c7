package tablet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/repair"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/vfs"
)

// runNodes are block stores connected to each other, and the lists of their logs.
type runNodes struct {
	stores []*blobfs.Store
	disks  []*vfs.Mem
	full   atomic.Bool // all report full disks

	// saved, if set, is called after a list was saved; its error is the answer.
	saved atomic.Pointer[func(ctx context.Context) error]

	reserve  int64         // of each disk
	measured atomic.Bool   // members report the free space above the reserve
	down     []atomic.Bool // unreachable nodes

	mu    sync.Mutex
	lists map[string][]byte
	gens  map[string]uint64
}

func newRunNodes(t testing.TB, n int, extent int64) *runNodes {
	return newReservedNodes(t, n, extent, -1)
}

// newReservedNodes is newRunNodes with a disk reserve.
func newReservedNodes(t testing.TB, n int, extent, reserve int64) *runNodes {
	c := &runNodes{lists: map[string][]byte{}, gens: map[string]uint64{}, reserve: reserve, down: make([]atomic.Bool, n)}
	for i := range n {
		fs := vfs.NewMem(vfs.MemOptions{})
		store, err := blobfs.OpenIn(blobfs.Cluster{
			Membership: runMembers{c, i, n}, Lists: c, Repair: repair.Config{Off: true},
			Logs: replog.Config{DeadlineMin: time.Second, Retry: 20 * time.Millisecond},
		}, blobfs.Config{FS: fs, Folders: []string{"/a"}, ExtentBytes: extent, ReserveBytes: reserve, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c.stores, c.disks = append(c.stores, store), append(c.disks, fs)
	}
	t.Cleanup(func() {
		for _, s := range c.stores {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// runMembers is the membership as one of them sees it.
type runMembers struct {
	*runNodes
	self, n int
}

func (f runMembers) Self() string             { return fmt.Sprint("n", f.self) }
func (f runMembers) Changed() <-chan struct{} { return nil }
func (f runMembers) Members() (all []blobfs.Member) {
	free := int64(1 << 40)
	if f.full.Load() {
		free = 0
	}
	for i := range f.n {
		m := blobfs.Member{ID: fmt.Sprint("n", i), CapacityBytes: 1 << 40, FreeBytes: free, Alive: !f.down[i].Load()}
		if f.measured.Load() {
			n, _ := f.disks[i].FreeBytes("/a")
			m.FreeBytes = max(0, n-f.reserve)
		}
		all = append(all, m)
	}
	return all
}

func (f runMembers) Peer(_ context.Context, id string) (api.Peer, error) {
	for i, s := range f.stores {
		if id == fmt.Sprint("n", i) && !f.down[i].Load() {
			return wirePeer{s.Peer()}, nil
		}
	}
	return nil, errors.New("no such node")
}

// wirePeer copies sent bytes, as a connection does: the sender reuses the buffer.
type wirePeer struct{ api.Peer }

func (p wirePeer) Piece(ctx context.Context, s api.StreamID, off int64, b []byte, done func(error)) {
	p.Peer.Piece(ctx, s, off, bytes.Clone(b), done)
}

func (c *runNodes) Load(_ context.Context, p string) ([]byte, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lists[p]), c.gens[p], nil
}

func (c *runNodes) Save(ctx context.Context, p string, data []byte, gen uint64) (uint64, error) {
	c.mu.Lock()
	if c.gens[p] != gen {
		c.mu.Unlock()
		return 0, errors.New("generation differs")
	}
	c.lists[p], c.gens[p] = slices.Clone(data), gen+1
	c.mu.Unlock()
	if f := c.saved.Load(); f != nil {
		if err := (*f)(ctx); err != nil {
			return 0, err
		}
	}
	return gen + 1, nil
}

func (c *runNodes) Delete(_ context.Context, p string, gen uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gens[p] != gen {
		return errors.New("generation differs")
	}
	delete(c.lists, p)
	delete(c.gens, p)
	return nil
}

func (c *runNodes) List(_ context.Context, dir string) (names []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.lists {
		if path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names, nil
}
