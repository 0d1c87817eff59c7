package members

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/rpc"
)

// service returns the service of node n1 with these folders, where the nodes in removed are removed.
func service(t *testing.T, removed map[string]bool) *Service {
	t.Helper()
	self := &identity.Self{Address: "h1:7106"}
	self.Open(&identity.Folders{Identity: identity.Identity{Node: "n1", Cluster: "c"}})
	return New(Config{Ctx: t.Context(), Log: slog.New(slog.DiscardHandler), Self: self, Removed: func(id string) bool { return removed[id] }})
}

// A removed node has no address, and gets none from later messages.
func TestAddresses(t *testing.T) {
	removed := map[string]bool{}
	sv := service(t, removed)
	service, err := formation.New(formation.Config{Self: formation.Peer{ID: "n1", Name: "n1", RPC: "h1:7106"}, Cluster: "c", Removed: sv.Removed,
		PeersFile: t.TempDir() + "/peers", Logger: sv.Log, Store: sv.Self})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	found := []formation.Peer{{ID: "n2", RPC: "h2:7106"}, {ID: "n3", RPC: "h3:7106"}}
	if err := sv.Start(service, found, gossip.Config{Bind: gossipOff}); err != nil {
		t.Fatal(err)
	}
	expect := func(id, addr string) {
		t.Helper()
		if got, known := sv.AddressOf(id); got != addr || known != (addr != "") {
			t.Errorf("%s is at %q, known %t, want %q", id, got, known, addr)
		}
		if got := sv.NodeAt(addr); addr != "" && got != id {
			t.Errorf("%s is at %s", got, addr)
		}
	}
	expect("n1", "h1:7106")
	expect("n2", "h2:7106")
	expect("n3", "h3:7106")
	expect("n4", "")
	if sv.NodeAt("") != "" || sv.NodeAt("h9:1") != "" || len(sv.Addresses()) != 2 {
		t.Errorf("addresses %v", sv.Addresses())
	}
	removed["n2"] = true
	sv.ForgetRemoved(removed)
	expect("n2", "")
	sv.known.set("n2", "h2:7106")
	expect("n2", "")
	expect("n3", "h3:7106")
	if err := sv.Leave(""); err != nil || sv.Ring() != nil {
		t.Errorf("without gossip: %v, %v", err, sv.Ring())
	}
}

// readThen is a lock service in which do runs after the first read of a file.
type readThen struct {
	namespace.Files
	path string
	do   func()
}

func (r *readThen) Get(ctx context.Context, path string) (metaapi.File, error) {
	f, err := r.Files.Get(ctx, path)
	if do := r.do; do != nil && path == r.path {
		r.do = nil
		do()
	}
	return f, err
}

// TestRegisterWhileRemoved: a node that is removed while it registers gets an error, and has no file afterwards, whatever it had read before.
func TestRegisterWhileRemoved(t *testing.T) {
	for _, x := range []struct {
		name  string
		known bool // the node has a file, of another address
		after string
	}{
		{"known, after its file was read", true, namespace.NodePath("n1")},
		{"new, after its file was read", false, namespace.NodePath("n1")},
		{"known, after it has looked for a mark", true, namespace.RemovedPath("n1")},
		{"new, after it has looked for a mark", false, namespace.RemovedPath("n1")},
	} {
		meta := &namespace.Access{Client: sessiontest.NewClient(t)}
		catalog := &namespace.Catalog{Meta: meta}
		sv := service(t, nil)
		sv.Meta, sv.Catalog = meta, catalog
		if x.known {
			if err := sv.Register(t.Context()); err != nil {
				t.Fatal(err)
			}
			sv.Self.Address = "h2:7106"
		}
		operator := removal.New(removal.Config{Meta: meta, Catalog: catalog})
		sv.Catalog = &namespace.Catalog{Meta: &readThen{Files: meta, path: x.after, do: func() {
			if err := operator.Mark(t.Context(), "n1", ""); err != nil {
				t.Error(err)
			}
		}}}
		for range 2 { // it may start again
			if err := sv.Register(t.Context()); !errors.Is(err, removal.ErrRemoved) {
				t.Errorf("%s: %v", x.name, err)
			}
			if _, err := meta.Get(t.Context(), namespace.NodePath("n1")); !errors.Is(err, metaapi.ErrNotFound) {
				t.Errorf("%s: the node has a file: %v", x.name, err)
			}
		}
	}
}

// registryFiles is a lock service that only has the files of nodes.
type registryFiles struct {
	metaapi.Service
	files []metaapi.File
}

func (s registryFiles) ReadDirectory(context.Context, string, metaapi.DirectoryOptions) (metaapi.DirectoryPage, error) {
	return metaapi.DirectoryPage{Index: 9, Whole: true, Files: s.files}, nil
}

func (s registryFiles) Dial(context.Context, string) (session.Peer, error) {
	return session.Peer{Service: s}, nil
}

// A node that gossip does not know yet has the address in its record, so that it can be called; what is known otherwise is newer.
func TestAddressesOfTheRegistry(t *testing.T) {
	sv := service(t, map[string]bool{"n4": true})
	sv.known.set("n2", "h2:7106")
	var files registryFiles
	for _, id := range []string{"n2", "n3", "n4"} {
		stat := metaapi.Stat{Path: namespace.NodePath(id), Generation: 5}
		files.files = append(files.files, metaapi.File{Stat: stat, Data: []byte(`{"name":"` + id + `","rpc":"old-` + id + `:7106"}`)})
	}
	c, err := session.NewClient(session.Config{Locator: session.Addresses{"a"}, Dialer: files, Logger: sv.Log})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sv.Meta = &namespace.Access{Client: c}
	if all, err := sv.Nodes(t.Context()); err != nil || len(all) != 3 || all[1].Name != "n3" {
		t.Fatalf("%v, %v", all, err)
	}
	for id, want := range map[string]string{"n1": "h1:7106", "n2": "h2:7106", "n3": "old-n3:7106", "n4": ""} {
		if got, _ := sv.AddressOf(id); got != want {
			t.Errorf("%s is at %q, want %q", id, got, want)
		}
	}
}

// All nodes together publish their free space less than twice a second, since each node gets and repeats all of that.
func TestPublishEvery(t *testing.T) {
	for _, nodes := range []int{1, 30, 31, 100, 600, 1000} {
		if every := publishEvery(nodes); every < publishPeriod || float64(nodes)/every.Seconds() > 2 {
			t.Errorf("%d nodes publish every %v", nodes, every)
		}
	}
}

// When gossip changes often, all members are looked at only once in settlePause.
func TestManyChangesOneLook(t *testing.T) {
	sv := service(t, nil)
	var looks atomic.Int64
	sv.Look = func([]gossip.Member) { looks.Add(1) }
	sv.HTTP, sv.DiskSpace, sv.DiskGrowth, sv.Background = func() string { return "" }, func() (total, free int64) { return 100, 40 }, growth, &sync.WaitGroup{}
	fm, err := formation.New(formation.Config{Self: formation.Peer{ID: "n1", RPC: "h1:7106"}, Cluster: "c", Logger: sv.Log, Store: sv.Self})
	if err != nil {
		t.Fatal(err)
	}
	defer fm.Close()
	if err := sv.Start(fm, nil, gossip.Config{Bind: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sv.Leave("") }()
	began := time.Now()
	for i := range 200 {
		changed := sv.Ring().Changed()
		if err := sv.Ring().UpdateMeta(func(m *gossip.Meta) { m.FreeBytes = int64(i + 1) }); err != nil {
			t.Fatal(err)
		}
		<-changed
	}
	if got, most := looks.Load(), int64(time.Since(began)/settlePause)+2; got > most {
		t.Errorf("%d looks for 200 changes in %v, want %d at most", got, time.Since(began), most)
	}
}

// The block store gets the nodes of the registry with their state by gossip, learns of changes, and connects only to members.
func TestBlobs(t *testing.T) {
	sv := service(t, nil)
	sv.HTTP, sv.DiskSpace, sv.DiskGrowth = func() string { return "" }, func() (total, free int64) { return 100, 40 }, growth
	b := NewBlobs(sv)
	defer b.Close()
	changed := b.Changed()
	b.mu.registry = []Node{{ID: "n1", Record: Record{Name: "one", Zone: "z"}}, {ID: "n2", Record: Record{Name: "two", Draining: true}}}
	b.update()
	select {
	case <-changed:
	default:
		t.Error("no change of the members")
	}
	all := b.Members()
	if len(all) != 2 || !all[0].Alive || all[0].Zone != "z" || all[0].FreeBytes != 40 || all[1].Alive || !all[1].Draining {
		t.Errorf("members %+v", all)
	}
	if b.Name("n2") != "two" || b.Name("n9") != "" || b.Self() != "n1" {
		t.Errorf("names %q and %q, self %q", b.Name("n2"), b.Name("n9"), b.Self())
	}
	changed = b.Changed()
	sv.DiskSpace = func() (total, free int64) { return 100, 30 } // changes all the time
	b.update()
	select {
	case <-changed:
		t.Error("free space alone is a change")
	default:
	}
	ctx := context.Background()
	if _, err := b.Peer(ctx, "n9"); err == nil {
		t.Error("connects to a node that is no member")
	}
	first, err := b.Peer(ctx, "n2")
	if again, _ := b.Peer(ctx, "n2"); err != nil || again != first {
		t.Errorf("a connection for each call: %v", err)
	}
	b.Close()
	if _, err := b.Peer(ctx, "n2"); !errors.Is(err, blobfs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// When a node is removed, and when the node closes, calls to other nodes fail. Their callers may ask for the members at once, as a
// commit log does that replaces a replica.
func TestFailedCallsAskForMembers(t *testing.T) {
	for name, end := range map[string]func(b *Blobs){
		"removed": func(b *Blobs) { b.mu.registry = b.mu.registry[:1]; b.update() },
		"closed":  (*Blobs).Close,
	} {
		t.Run(name, func(t *testing.T) {
			server, err := rpc.NewServer(rpc.ServerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			called := make(chan struct{})
			server.Handle(blobapi.MethodLogAppend, rpc.Spawned, func(*rpc.Call) { close(called); <-t.Context().Done() })
			sv := service(t, nil)
			sv.HTTP, sv.DiskSpace, sv.DiskGrowth = func() string { return "" }, func() (total, free int64) { return 100, 40 }, growth
			sv.DialNode = func(ctx context.Context, id string) (*rpc.Conn, error) {
				ours, theirs := net.Pipe()
				go server.ServeConn(theirs)
				return rpc.NewConn(ctx, ours, rpc.ConnConfig{})
			}
			b := NewBlobs(sv)
			b.mu.registry = []Node{{ID: "n1"}, {ID: "n2"}}
			b.update()
			p, err := b.Peer(t.Context(), "n2")
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan int, 1)
			p.AppendLog(t.Context(), local.LogAppend{}, func(int64, error) { failed <- len(b.Members()) })
			<-called
			ended := make(chan struct{})
			go func() { end(b); close(ended) }()
			for range 2 {
				select {
				case <-failed:
				case <-ended:
				case <-time.After(10 * time.Second):
					t.Fatal("the call has not failed, or the members are locked")
				}
			}
		})
	}
}

// growth is the DiskGrowth of a node that has just started.
func growth() (perDay int64, over time.Duration) { return 0, 0 }

// TestReadSSTables: all nodes must be registered by a program that reads the version, and those that are alive must run it. A node restores what an earlier
// version has removed from its own record.
func TestReadSSTables(t *testing.T) {
	sv := service(t, nil)
	sv.Name, sv.Version = "one", "v2"
	sv.HTTP, sv.DiskSpace, sv.DiskGrowth = func() string { return "" }, func() (total, free int64) { return 100, 40 }, growth
	sv.Meta = &namespace.Access{Client: sessiontest.NewClient(t)}
	sv.Catalog = &namespace.Catalog{Meta: sv.Meta}
	b := NewBlobs(sv)
	defer b.Close()
	if known, err := b.ReadSSTables(3); known || err != nil {
		t.Errorf("before the registry was read: %v, %v", known, err)
	}
	write := func(id, record string) {
		t.Helper()
		if _, err := sv.Meta.Set(t.Context(), namespace.NodePath(id), []byte(record), metaapi.AnyGeneration); err != nil {
			t.Fatal(err)
		}
	}
	read := func() error {
		t.Helper()
		if err := b.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		known, err := b.ReadSSTables(3)
		if !known {
			t.Error("the nodes are not known")
		}
		return err
	}
	if err := sv.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Errorf("one node: %v", err)
	}
	if _, err := b.ReadSSTables(4); err == nil {
		t.Error("the node reads a later version")
	}
	write("n1", `{"name":"one","rpc":"h1:7106"}`)
	_ = read() // restores it
	if err := read(); err != nil {
		t.Errorf("after an earlier version has changed the record: %v", err)
	}
	write("n2", `{"name":"two","rpc":"h2:7106"}`)
	if err := read(); err == nil || !strings.Contains(err.Error(), "node two") || !strings.Contains(err.Error(), "update all nodes") {
		t.Errorf("a node of an earlier version: %v", err)
	}
	write("n2", `{"name":"two","rpc":"h2:7106","sstables":3,"program":"v2"}`)
	if err := read(); err != nil {
		t.Errorf("an updated node that is down: %v", err)
	}
	sv.Version = "v1" // by gossip
	if _, err := b.ReadSSTables(3); err == nil {
		t.Error("a node that was started with another version since it registered counts as updated")
	}
}
