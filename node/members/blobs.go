package members

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/rpc"
)

// Blobs implements blobfs.Membership: the registry lists the nodes, gossip has their state.
type Blobs struct {
	sv *Service
	// mu guards the fields in it. Never held across I/O, nor while a connection is closed: the calls that fail then may ask for members.
	mu struct {
		sync.Mutex
		registry []Node
		members  []blobfs.Member // replaced, never changed
		changed  chan struct{}
		remotes  map[string]*blobapi.Remote
		closed   bool
	}
}

// NewBlobs returns the membership for the block store. It has no members before the first Read.
func NewBlobs(sv *Service) *Blobs {
	f := &Blobs{sv: sv}
	f.mu.changed = make(chan struct{})
	f.mu.remotes = map[string]*blobapi.Remote{}
	return f
}

// readTimeout bounds one read of the registry.
const readTimeout = 3 * time.Second

// registryPeriod is the interval at which the registry is read: by one call, which answers with what has changed.
const (
	registryPeriod = 3 * time.Second
	// strangerPause is the first pause after gossip has reported a node that is not registered yet; it doubles each time.
	strangerPause = 200 * time.Millisecond
)

// Follow updates the members until the node closes.
func (f *Blobs) Follow() {
	sv := f.sv
	pause := strangerPause
	for sv.settle() {
		var changed <-chan struct{} // by gossip
		if sv.Ring() != nil {
			changed = sv.Ring().Changed()
		}
		f.update()
		if !f.strangers() {
			pause = registryPeriod
		}
		tick := time.NewTimer(pause)
		select {
		case <-changed:
			pause = strangerPause
		case <-tick.C:
			pause = min(2*pause, registryPeriod)
			ctx, cancel := context.WithTimeout(sv.Ctx, readTimeout)
			if err := f.Read(ctx); err != nil {
				sv.Log.Debug("registry of nodes not read; keeping the previous one", "err", err)
			}
			cancel()
		case <-sv.Ctx.Done():
			tick.Stop()
			return
		}
		tick.Stop()
	}
}

// strangers reports whether gossip knows a node that is not in the registry.
func (f *Blobs) strangers() bool {
	if f.sv.Ring() == nil {
		return false
	}
	registered := map[string]bool{}
	for _, m := range f.Members() {
		registered[m.ID] = true
	}
	return slices.ContainsFunc(f.sv.Ring().Members(), func(m gossip.Member) bool { return m.State == gossip.Alive && !registered[m.ID] })
}

// Read reads the registry.
func (f *Blobs) Read(ctx context.Context) error {
	all, err := f.sv.Nodes(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.mu.registry = all
	f.mu.Unlock()
	f.update()
	if slices.ContainsFunc(all, f.sv.lacksProgram) {
		return f.sv.Register(ctx)
	}
	return nil
}

// update rebuilds the list of members.
func (f *Blobs) update() {
	f.mu.Lock()
	registry := f.mu.registry
	f.mu.Unlock()
	members := make([]blobfs.Member, len(registry))
	for i, x := range registry {
		members[i] = f.member(x)
	}
	for _, r := range f.replace(members) {
		_ = r.Close()
	}
}

// replace replaces the members, and returns the connections to nodes that are members no longer.
func (f *Blobs) replace(members []blobfs.Member) (gone []*blobapi.Remote) {
	f.mu.Lock()
	defer f.mu.Unlock()
	same := slices.EqualFunc(members, f.mu.members, func(a, b blobfs.Member) bool {
		a.FreeBytes, b.FreeBytes = 0, 0
		return a == b
	})
	f.mu.members = members
	if same {
		return nil
	}
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
	for id, r := range f.mu.remotes {
		if !slices.ContainsFunc(members, func(m blobfs.Member) bool { return m.ID == id }) {
			delete(f.mu.remotes, id)
			gone = append(gone, r)
		}
	}
	return gone
}

func (f *Blobs) member(x Node) blobfs.Member {
	g, known := f.sv.member(x.ID)
	m := blobfs.Member{
		ID: x.ID, Zone: x.Record.Zone, CapacityBytes: g.CapacityBytes, FreeBytes: g.FreeBytes,
		Alive: known && g.State == gossip.Alive, Since: g.Since, Draining: x.Draining,
	}
	if m.Since.IsZero() { // no gossip since this node started
		m.Since = f.sv.Began
	}
	return m
}

// ReadSSTables returns nil if all nodes of the cluster read a version of SSTables. Otherwise the error names a node that does not. known is false as long
// as the nodes are unknown.
//
// A node that is down counts as it was registered. A node of an earlier version that was started since then has not changed that, but gossip has its version.
func (f *Blobs) ReadSSTables(version int) (known bool, err error) {
	f.mu.Lock()
	registry := f.mu.registry
	f.mu.Unlock()
	for _, x := range registry {
		g, gossiped := f.sv.member(x.ID)
		if x.SSTables < version || gossiped && g.State == gossip.Alive && g.Version != x.Program {
			return true, fmt.Errorf("node %s runs a version that does not read SSTables of version %d: update all nodes", x.Record.Name, version)
		}
	}
	return len(registry) > 0, nil
}

// Name returns a node's name, or "" if it is unknown.
func (f *Blobs) Name(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.mu.registry {
		if f.mu.registry[i].ID == id {
			return f.mu.registry[i].Record.Name
		}
	}
	return ""
}

// Members implements blobfs.Membership.
func (f *Blobs) Members() []blobfs.Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.members
}

// Changed implements blobfs.Membership.
func (f *Blobs) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.changed
}

// Self implements blobfs.Membership.
func (f *Blobs) Self() string { return f.sv.Self.ID() }

// Peer implements blobfs.Membership. It connects on the first call.
func (f *Blobs) Peer(_ context.Context, id string) (blobapi.Peer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return nil, blobfs.ErrClosed
	}
	if !slices.ContainsFunc(f.mu.members, func(m blobfs.Member) bool { return m.ID == id }) {
		return nil, fmt.Errorf("%s is not a node of the cluster", id)
	}
	r := f.mu.remotes[id]
	if r == nil {
		r = blobapi.NewRemote(func(ctx context.Context) (*rpc.Conn, error) { return f.sv.DialNode(ctx, id) })
		f.mu.remotes[id] = r
	}
	return r, nil
}

// Close closes the connections to the block stores of other nodes, and prevents new ones.
func (f *Blobs) Close() {
	f.mu.Lock()
	f.mu.closed = true
	remotes := f.mu.remotes
	f.mu.remotes = nil
	f.mu.Unlock()
	for _, r := range remotes {
		_ = r.Close()
	}
}
