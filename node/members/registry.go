package members

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/tablet/sstable"
)

// Record is the content of a node's file. It is JSON because people read it.
type Record struct {
	Name string `json:"name"`
	Zone string `json:"zone,omitempty"`
	RPC  string `json:"rpc"`
	// Draining: the node shall have no vote and take no new data.
	Draining bool `json:"draining,omitempty"`
	// SSTables is the highest version of SSTables that the node reads, and Program the version of the program that wrote that here. Programs that read no
	// version above 2 do not know them: when they register, both stay as they are, and when they change Draining, both are lost.
	SSTables int    `json:"sstables,omitempty"`
	Program  string `json:"program,omitempty"`
}

// Register writes this node's file, and keeps the operators' settings in it. The error is a removal.ErrRemoved if the node was removed, also while it
// registered: it has no file then.
func (sv *Service) Register(ctx context.Context) error {
	for registered := false; ; registered = true {
		err := removal.Check(ctx, sv.Catalog.Meta, sv.Self.ID())
		if errors.Is(err, removal.ErrRemoved) { // after the file was deleted, if it was written since
			return cmp.Or(sv.unregister(ctx), err)
		}
		if err != nil || registered {
			return err
		}
		if err := sv.writeRecord(ctx); err != nil {
			return err
		}
	}
}

// unregister deletes this node's file.
func (sv *Service) unregister(ctx context.Context) error {
	err := sv.Catalog.Remove(ctx, namespace.NodePath(sv.Self.ID()), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// writeRecord writes this node's file.
func (sv *Service) writeRecord(ctx context.Context) error {
	for {
		var r Record
		f, err := sv.Catalog.Meta.Get(ctx, namespace.NodePath(sv.Self.ID()))
		gen := uint64(0)
		switch {
		case err == nil:
			gen = f.Generation
			if err := json.Unmarshal(f.Data, &r); err != nil {
				return fmt.Errorf("read %s: %w", namespace.NodePath(sv.Self.ID()), err)
			}
		case !errors.Is(err, metaapi.ErrNotFound):
			return err
		}
		want := Record{Name: sv.Name, Zone: sv.Zone, RPC: sv.Self.Address, Draining: r.Draining, SSTables: sstable.VersionMax, Program: sv.Version}
		if err == nil && r == want {
			return nil
		}
		b, err := json.Marshal(want)
		if err != nil {
			return err
		}
		_, err = sv.Catalog.Set(ctx, namespace.NodePath(sv.Self.ID()), b, gen)
		if !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
	}
}

// lacksProgram reports whether x is this node without what its program reads: a node of an earlier version, which has changed its draining, has removed that.
func (sv *Service) lacksProgram(x Node) bool {
	return x.ID == sv.Self.ID() && (x.SSTables != sstable.VersionMax || x.Program != sv.Version)
}

// Node is a node as the registry and gossip know it.
type Node struct {
	ID string
	Record
	gossip.Member // State is 0 if gossip does not know the node
}

// registry is the copy of the nodes' files.
type registry struct {
	mu      sync.Mutex // guards the fields below; never held across I/O
	files   *session.Directory
	records map[string]parsedRecord // by id
}

// parsedRecord is the record in a file of a generation.
type parsedRecord struct {
	generation uint64
	Record
}

// directory returns the directory of the nodes' files.
func (g *registry) directory(c *session.Client) *session.Directory {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.files == nil {
		g.files, g.records = c.Directory(namespace.NodesDir), map[string]parsedRecord{}
	}
	return g.files
}

// parse returns the records of files by id, and calls damaged for those that it cannot read.
func (g *registry) parse(files []metaapi.File, damaged func(file string, err error)) map[string]parsedRecord {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]parsedRecord, len(files))
	for i := range files {
		f := &files[i]
		id := path.Base(f.Path)
		r, ok := g.records[id]
		if !ok || r.generation != f.Generation {
			r = parsedRecord{generation: f.Generation}
			if err := json.Unmarshal(f.Data, &r.Record); err != nil {
				damaged(f.Path, err)
				continue
			}
		}
		all[id] = r
	}
	g.records = all
	return all
}

// Nodes returns all nodes of the cluster, ordered by id. It takes one call, whose answer has only the files that have changed since the
// call before.
func (sv *Service) Nodes(ctx context.Context) ([]Node, error) {
	files, err := sv.registry.directory(sv.Meta.Client).Read(ctx)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return nil, err
	}
	records := sv.registry.parse(files, func(file string, err error) {
		sv.damaged.WarnError(sv.Log, "node skipped: its record is damaged", err, "file", file)
	})
	all := make([]Node, 0, len(records))
	for id, r := range records {
		x := Node{ID: id, Record: r.Record}
		x.Member, _ = sv.member(id)
		if id != sv.Self.ID() { // gossip does not know it yet, when many nodes start at once
			sv.known.learn(id, r.RPC)
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// IDs returns the ids of all nodes of the cluster. Errors: those of Nodes.
func (sv *Service) IDs(ctx context.Context) (ids []string, err error) {
	all, err := sv.Nodes(ctx)
	for _, x := range all {
		ids = append(ids, x.ID)
	}
	return ids, err
}

// member returns the gossip state of a node.
func (sv *Service) member(id string) (gossip.Member, bool) {
	if ring := sv.Ring(); ring != nil {
		return ring.Member(id)
	}
	if id == sv.Self.ID() {
		return gossip.Member{Meta: sv.selfMeta(), State: gossip.Alive, Since: sv.Began, Self: true}, true
	}
	return gossip.Member{}, false
}

// Servers returns the nodes in the form that the master plans with.
func (sv *Service) Servers(ctx context.Context) ([]master.Server, error) {
	all, err := sv.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var servers []master.Server
	for _, x := range all {
		since := x.Since
		if x.State == 0 { // no gossip since this node started
			since = sv.Began
		}
		servers = append(servers, master.Server{
			ID: x.ID, Zone: x.Record.Zone, Alive: x.State == gossip.Alive, Since: time.Since(since), Draining: x.Draining,
			HasLog: x.Voter && x.RaftEpoch == sv.Self.RaftEpoch(), Full: sv.full(x),
		})
	}
	return servers, nil
}

// full reports whether a node's disk has no space left.
func (sv *Service) full(x Node) bool {
	if x.ID == sv.Self.ID() {
		if full, votes := sv.LogDiskFull(); votes {
			return full
		}
	}
	return x.State == gossip.Alive && x.FreeBytes == 0 && x.CapacityBytes > 0
}

// Find returns the node with that id or name. The error is api.ErrNodeNotFound, also for a name of several nodes.
func (sv *Service) Find(ctx context.Context, name string) (Node, error) {
	all, err := sv.Nodes(ctx)
	if err != nil {
		return Node{}, err
	}
	var found []Node
	for _, x := range all {
		if x.ID == name {
			return x, nil
		}
		if x.Record.Name == name {
			found = append(found, x)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Node{}, fmt.Errorf("node %q: %w", name, api.ErrNodeNotFound)
	}
	return Node{}, fmt.Errorf("%d nodes are named %q, give an id: %w", len(found), name, api.ErrNodeNotFound)
}

// SetDraining marks a node as draining, or not.
func (sv *Service) SetDraining(ctx context.Context, name string, draining bool) error {
	x, err := sv.Find(ctx, name)
	if err != nil {
		return err
	}
	for {
		f, err := sv.Catalog.Meta.Get(ctx, namespace.NodePath(x.ID))
		if err != nil {
			return err
		}
		var r Record
		if err := json.Unmarshal(f.Data, &r); err != nil {
			return err
		}
		if r.Draining == draining {
			return nil
		}
		r.Draining = draining
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err = sv.Catalog.Set(ctx, namespace.NodePath(x.ID), b, f.Generation); !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
	}
}
