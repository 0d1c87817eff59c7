package node

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/internal/rpcdoc"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// The page about the protocol names what is the cluster's own.
func TestDocHasSystemPaths(t *testing.T) {
	text := rpcdoc.Part(t, "### Methods of the lock service", "### Sessions")
	_, text, _ = strings.Cut(text, "What is below ")
	text, _, ok := strings.Cut(text, " is the cluster's own")
	var listed []string
	for _, m := range regexp.MustCompile("`(/[a-z]+)`").FindAllStringSubmatch(text, -1) {
		listed = append(listed, m[1])
	}
	if want := slices.Sorted(slices.Values(systemPaths)); !ok || !slices.Equal(listed, want) {
		t.Errorf("docs/rpc.md lists %v, the code has %v", listed, want)
	}
}

// Clients may not change what nodes keep in the lock service. A client that identifies itself as a node may.
func TestSystemFiles(t *testing.T) {
	n, err := Start(context.Background(), Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, node := metaapi.Remote(conn), metaapi.RemoteForNode(conn)
	id, _, err := client.OpenSession(ctx, "client", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	changes := func(s metaapi.Service, path string) map[string]error {
		_, set := s.Set(ctx, path, []byte("x"), metaapi.AnyGeneration, metaapi.SetOptions{})
		_, acquire := s.Acquire(ctx, id, path, metaapi.Exclusive, 0, 0)
		_, acl := s.SetACL(ctx, path, "nobody", metaapi.SetOptions{})
		return map[string]error{"set": set, "acquire": acquire, "set ACL": acl, "delete": s.Delete(ctx, path, metaapi.AnyGeneration, metaapi.SetOptions{Session: id})}
	}
	for _, path := range []string{
		"/cluster", "/ids", "/master", "/servers", "/servers/" + n.self.ID(), "/nodes/" + n.self.ID(), "/removed/x", "/tables/t", "/clusters/x",
		"/recovery/x", "/logs/x", "/root", gc.StatePath, "/nodes/a/b/c",
	} {
		for what, err := range changes(client, path) {
			var refused *metaapi.SystemFileError
			if !errors.As(err, &refused) || refused.Path != path {
				t.Errorf("%s of %s by a client: %v", what, path, err)
			}
		}
	}
	for _, o := range []metaapi.SetOptions{{From: "/ids", FromGeneration: 1}, {From: "/master", FromGeneration: 1}, {From: "/root", FromGeneration: 1}} {
		var refused *metaapi.SystemFileError
		if _, err := client.Set(ctx, "/renamed", nil, 0, o); !errors.As(err, &refused) || refused.Path != o.From {
			t.Errorf("rename of %s by a client: %v", o.From, err)
		}
	}
	if f, err := client.GetStale(ctx, namespace.ClusterPath); err != nil || len(f.Data) == 0 {
		t.Errorf("a client reads %q (%v)", f.Data, err)
	}
	for _, path := range []string{"/app", "/clusterx", "/dir/master", "/n"} {
		for what, err := range changes(client, path) {
			if err != nil {
				t.Errorf("%s of %s by a client: %v", what, path, err)
			}
		}
	}
	for what, err := range changes(node, "/removed/nobody") {
		if err != nil {
			t.Errorf("%s by a node: %v", what, err)
		}
	}
	if err := client.CloseSession(ctx, id); err != nil {
		t.Error(err)
	}
}
