package node

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/assign"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/tabletserver"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
	"github.com/steledb/stele/tablet"
)

// File returns what a file of the lock service holds.
func (n *Node) File(ctx context.Context, path string) ([]byte, error) {
	f, err := n.meta.Get(ctx, path)
	return f.Data, err
}

// LogHolders returns the number of nodes that report to the master that they have a log of the lock service's group.
func (n *Node) LogHolders(ctx context.Context) (count int, err error) {
	all, err := n.members.Servers(ctx)
	for _, s := range all {
		if s.Alive && s.HasLog {
			count++
		}
	}
	return count, err
}

// BlobsAbove returns how many blobs of at least some bytes the nodes have, of files that exist or not.
func (n *Node) BlobsAbove(ctx context.Context, bytes int64) (count int, err error) {
	for after := (blobfs.ID{}); ; {
		all, silent, err := n.blockStore.Store().Holdings(ctx, after, 1000)
		if err == nil && len(silent) > 0 {
			err = errors.New("nodes do not answer")
		}
		if err != nil || len(all) == 0 {
			return count, err
		}
		for _, b := range all {
			if b.Bytes >= bytes {
				count++
			}
			after = b.ID
		}
	}
}

// MetadataTablets returns METADATA's tablets that the node serves.
func (n *Node) MetadataTablets() []tablet.TabletStats {
	all, err := n.tabletServer.Of(metadata.Name).TabletStats(metadata.Name)
	if err != nil {
		return nil
	}
	return all
}

// SplitMetadata splits the largest of METADATA's tablets here, the root tablet aside, in the middle; false if
// there is none that can be.
func (n *Node) SplitMetadata(ctx context.Context) (bool, error) {
	s := n.tabletServer.Current()
	var largest *tablet.Loaded
	for _, t := range s.Metadata.Served().Loaded() {
		if t.Ref() != tabletserver.RootTablet && (largest == nil || t.Bytes > largest.Bytes) {
			largest = &t
		}
	}
	if largest == nil {
		return false, nil
	}
	_, _, err := s.Metadata.Split(ctx, largest.Ref(), nil)
	if errors.Is(err, tablet.ErrNoSplitRow) || errors.Is(err, api.ErrNotServing) {
		return false, nil
	}
	return err == nil, err
}

// LoseLock ends the node's session: its tablet servers end, and it comes back as another one with nothing.
func (n *Node) LoseLock(ctx context.Context) error { return n.meta.Current().Close(ctx) }

// ServerName is what the node's tablet server for users' tables is called.
func (n *Node) ServerName() string { return n.tabletServer.Current().Name }

// DialWith has a node connect to others with dial.
func (c *Config) DialWith(dial func(ctx context.Context, addr string) (net.Conn, error)) {
	c.Network = dialNetwork{MachineNetwork(), dial}
}

type dialNetwork struct {
	Network
	dial func(ctx context.Context, addr string) (net.Conn, error)
}

func (n dialNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return n.dial(ctx, addr)
}

// Methods are those that the node answers.
func (n *Node) Methods() []string { return n.rpc.Methods() }

// KnownMethods returns all methods, which TestRequiredRights compares with those that nodes have.
func KnownMethods() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(requiredRights)), nodeMethods...)))
}

// Guarded returns the methods that have a guard.
func (n *Node) Guarded() []string { return slices.Sorted(maps.Keys(n.authz.Guards)) }

// MethodsForRows returns the methods of the API that check rights on their own.
func (n *Node) MethodsForRows() (all []string) {
	for _, m := range api.Methods() {
		if n.authz.Guards[m].To == authz.Own {
			all = append(all, m)
		}
	}
	return all
}

// GuardsOf looks up the guard of a method as its registration does.
func (n *Node) GuardsOf(method string) { n.authz.Admitter(method) }

// Lock reads a file of the lock service.
func (n *Node) Lock(ctx context.Context, path string) ([]byte, error) {
	f, err := n.meta.Get(ctx, path)
	return f.Data, err
}

// HoldResults takes all memory for results until release.
func (n *Node) HoldResults(ctx context.Context) (release func(), err error) {
	all := n.results.All
	return func() { n.results.Free.Release("", all) }, n.results.Free.Acquire(ctx, "", all)
}

// ResultsAreFree reports whether there is memory for one more answer of that many bytes.
func (n *Node) ResultsAreFree(bytes int64) bool {
	free := n.results.Free.Try("", bytes)
	if free {
		n.results.Free.Release("", bytes)
	}
	return free
}

// Look returns the status of a request for a page with a token as a bearer, from an address.
func (n *Node) Look(ctx context.Context, path, from, bearer string) (status int) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.RemoteAddr = from
	r.Header.Set("Authorization", "Bearer "+bearer)
	status, _ = n.monitor.Authorize(r, pki.Peer{})
	return status
}

// HoldChanges has changes of the catalog wait until release.
func (n *Node) HoldChanges() (release func()) {
	return n.changes.Hold()
}

// PutFile writes a file of the lock service, or takes it away.
func (n *Node) PutFile(ctx context.Context, path string, data []byte) error {
	if data == nil {
		return n.meta.Delete(ctx, path, metaapi.AnyGeneration)
	}
	_, err := n.meta.Set(ctx, path, data, metaapi.AnyGeneration)
	return err
}

// ChangeAsNode makes a change on behalf of a node: it writes a file through the catalog and one as changes of rights do, each after
// lost, and removes both. It does not check its mastership itself. It returns how each write ended.
func (n *Node) ChangeAsNode(ctx context.Context, lost func()) (all []error, err error) {
	err = n.changes.Do(ctx, authz.ChangeRequest{Caller: &authz.Subject{Peer: pki.Peer{Kind: pki.Node}}}, func(ctx context.Context) error {
		ctx = context.WithoutCancel(ctx)
		lost()
		_, set := n.meta.Set(ctx, "/x", []byte("x"), metaapi.AnyGeneration)
		_, asMaster := n.changes.SetAsMaster(ctx, "/y", []byte("y"), metaapi.AnyGeneration)
		all = []error{set, asMaster, n.meta.Delete(ctx, "/x", metaapi.AnyGeneration), n.changes.DeleteAsMaster(ctx, "/y")}
		return nil
	})
	return all, err
}

// ChangeForNobody makes a change without a subject.
func (n *Node) ChangeForNobody(ctx context.Context) error {
	return n.changes.Do(ctx, authz.ChangeRequest{}, func(context.Context) error { return nil })
}

// SweepTables takes away what is left over of tables.
func (n *Node) SweepTables(ctx context.Context) error { return n.tables.RemoveOrphansNow(ctx) }

// SweptTables reports whether orphaned table files were removed in this mastership.
func (n *Node) SweptTables() bool {
	return n.candidate.IsMaster() && n.tables.Swept() == n.candidate.Epoch()
}

// Files lists a folder of the lock service.
func (n *Node) Files(ctx context.Context, dir string) ([]string, error) {
	return n.catalog.List(ctx, dir)
}

// IsMaster reports whether the node is the master.
func (n *Node) IsMaster() bool { return n.candidate.IsMaster() }

// Abdicate has the node be the master no more, until the function that it returns is called.
func (n *Node) Abdicate(ctx context.Context) (again func()) {
	n.stopMaster(ctx)
	for n.candidate.IsMaster() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return n.candidate.Resume
}

// stopMaster ends the candidacy, and transfers leadership to another node.
func (n *Node) stopMaster(ctx context.Context) {
	n.candidate.Stop()
	n.voter.TransferLeadership(ctx)
}

// masterTablets returns a master's access to tablets, of which it has seen nothing yet.
func (n *Node) masterTablets() *assign.Tablets {
	cfg := n.tabletsForMaster()
	cfg.Sequencer = n.candidate.Master().Sequencer
	return assign.New(cfg)
}

// UnloadTable has the node serve the tablets of a table no more.
func (n *Node) UnloadTable(ctx context.Context, name string) error {
	s := n.tabletServer.Users()
	var err error
	for _, t := range s.Served().Loaded() {
		if t.Table == s.Served().Tables()[name] {
			err = errors.Join(err, s.Unload(ctx, t.Ref()))
		}
	}
	return err
}

// HasQuota reports whether a quota of a table is in force on the node.
func (n *Node) HasQuota(table string) bool {
	return n.quotas.Has(table)
}

// RolloverEvery has a node look that often at how far the replacement of the authority is.
func (c *Config) RolloverEvery(d time.Duration) { c.rolloverPeriod = d }

// Remembers returns where this node still has another one: the members of gossip, the peers of formation, or the known addresses. It
// is empty if nowhere.
func (n *Node) Remembers(id string) string {
	if _, ok := n.members.Ring().Member(id); ok {
		return "gossip"
	}
	if n.formation.Knows(id) {
		return "formation"
	}
	if _, ok := n.members.AddressOf(id); ok {
		return "addresses"
	}
	return ""
}

// KeysByHand has a node make no step of a rotation of the gossip key but by StepGossipKey.
func (c *Config) KeysByHand() { c.keysByHand = true }

// StepGossipKey makes one step of a rotation of the gossip key.
func (n *Node) StepGossipKey() error { return n.gossipKey.Step() }

// GossipKeys returns the node's gossip keys. The first encrypts.
func (n *Node) GossipKeys() [][]byte { return n.gossipKey.Keys() }

// SpareGossipKey has the node hold another gossip key, as a master does that ends before it has written of it.
func (n *Node) SpareGossipKey(key []byte) error {
	return n.gossipKey.Use(append(slices.Clone(n.gossipKey.Keys()), key))
}

// KeyRotation returns the record of the gossip key and its last rotation, nil if no master has written it yet.
func (n *Node) KeyRotation(ctx context.Context) (*rollover.KeyRecord, error) {
	rec, _, err := n.gossipKey.Record(ctx)
	return rec, err
}

// GiveGossipKey answers a node of that id that asks for a gossip key.
func (n *Node) GiveGossipKey(ctx context.Context, id string, key rollover.KeyID) ([]byte, error) {
	return n.gossipKey.KeyFor(ctx, pki.Peer{Kind: pki.Node, Name: id}, key)
}

// GossipAddress returns where others reach the node's gossip.
func (n *Node) GossipAddress() string { return n.members.Ring().Address() }

// Sees reports whether gossip sees all of these nodes alive, and no other.
func (n *Node) Sees(ids ...string) bool {
	alive := map[string]bool{}
	for _, m := range n.members.Ring().Members() {
		if m.State == gossip.Alive {
			alive[m.ID] = true
		}
	}
	return len(alive) == len(ids) && !slices.ContainsFunc(ids, func(id string) bool { return !alive[id] })
}

// TurnsAwaited reports whether requests wait for turns to work for filters.
func (n *Node) TurnsAwaited() bool { return n.data.Costly.Awaited() }

// MarkRoots reads what garbage collection must keep, and returns how many blobs that are.
func (n *Node) MarkRoots(ctx context.Context) (blobs int, err error) {
	err = n.roots.Mark(ctx, func(blobfs.ID) { blobs++ })
	return blobs, err
}

// InFlight returns the number of requests at the node's port that are not answered yet.
func (n *Node) InFlight() int64 { return n.rpc.Stats().InFlight }

// Requests returns the number of requests of a method that the node has answered.
func (n *Node) Requests(method string) uint64 {
	for _, m := range n.rpc.Stats().Methods {
		if m.Method == method {
			return m.Requests
		}
	}
	return 0
}

// Gauge returns the values of a metric, by those of its labels, separated by spaces.
func (n *Node) Gauge(name string) (map[string]float64, error) {
	families, err := n.monitor.Registry().Gather()
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if f.GetName() == name {
				all[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return all, err
}
