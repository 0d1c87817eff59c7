package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// TestRegistry (RG1, RG2, RG3): two secured clusters with authorities of their own; one shows the health of the other as the user of its credential
// sees it, and notices that the other is gone.
func TestRegistry(t *testing.T) {
	t.Parallel()
	here, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, here)
	there, _, _ := secureTestCluster(t, 1)
	other, _ := secureOne(t, there)
	cred := there.user(other, "watcher")
	secret := good(cred.PEM())
	spec := func(name string) *client.ClusterSpec {
		return &client.ClusterSpec{Name: name, Addrs: there.addrs, Secret: secret, Console: "https://there:7108"}
	}
	if err := admin.Clusters().Add(ctx, spec("there")); err == nil || errors.Is(err, client.ErrPermission) || !strings.Contains(err.Error(), "the other cluster") {
		t.Errorf("a credential without rights: %v", err)
	}
	if err := other.Grants().Add(ctx, client.Grant{Principal: "watcher", Rights: "monitor"}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Clusters().Add(ctx, spec("there")); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*client.ClusterSpec{
		"twice": spec("there"), "own": {Name: "own", Addrs: here.addrs, Secret: good(here.user(admin, "me").PEM())}, "no address": {Name: "x"},
		"a bad credential": {Name: "x", Addrs: there.addrs, Secret: []byte("stele-x")}, "a script": {Name: "x", Addrs: there.addrs, Secret: secret, Console: "javascript:alert(1)"},
		"no name": {Addrs: there.addrs, Secret: secret}, "a path": {Name: "x/y", Addrs: there.addrs, Secret: secret}, "another port": {Name: "x", Addrs: []string{"127.0.0.1:1"}},
	} {
		if what == "own" {
			if err := admin.Grants().Add(ctx, client.Grant{Principal: "me", Rights: "monitor"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Clusters().Add(ctx, s); err == nil || errors.Is(err, client.ErrAmbiguous) {
			t.Errorf("%s: added: %v", what, err)
		} else {
			t.Log(what, err)
		}
	}
	before := there.nodes[0].Requests(api.MethodStatus)
	var looks sync.WaitGroup
	for range 20 {
		looks.Go(func() {
			all := good(admin.Clusters().List(ctx))
			if len(all) != 1 {
				t.Errorf("%d clusters", len(all))
				return
			}
			x := all[0]
			if x.Name != "there" || x.State != health.Healthy || x.Nodes != 1 || x.NodesAlive != 1 || x.ID != there.nodes[0].ClusterID() || x.Console == "" || x.Tablets != -1 || x.DiskBytes == 0 {
				t.Errorf("%+v", x)
			}
		})
	}
	looks.Wait()
	if n := there.nodes[0].Requests(api.MethodStatus) - before; n != 1 {
		t.Errorf("20 users who look ask the cluster %d times", n)
	}
	watcher := here.user(admin, "ann")
	conn := here.dialAs(0, watcher)
	answer := func() (raw []byte, err error) {
		err = conn.Call(ctx, api.MethodListClusters, (&api.NamesRequest{}).Append, func(d *wire.Decoder) error {
			raw = append(raw, d.Raw()...)
			return nil
		})
		return raw, err
	}
	if _, err := answer(); !errors.Is(api.FromRPC(err), client.ErrPermission) {
		t.Errorf("a user without rights: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "monitor"}); err != nil {
		t.Fatal(err)
	}
	raw, err := answer()
	if err != nil || bytes.Contains(raw, []byte("PRIVATE KEY")) || bytes.Contains(raw, secret[:100]) || !bytes.Contains(raw, []byte("there")) {
		t.Errorf("the answer for a user with the right to monitor the cluster: %q, %v", raw, err)
	}
	there.stop(0)
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		x := good(admin.Clusters().List(ctx))[0]
		if x.State == api.ClusterUnreachable && x.Sentence != "" && x.NodesAlive == 0 && x.Name == "there" {
			t.Log(x.Sentence)
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a cluster that is gone: %+v", x)
		}
	}
	if err := admin.Clusters().Remove(ctx, "there"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"there", "x/y", "", ".."} {
		if err := admin.Clusters().Remove(ctx, name); !errors.Is(err, api.ErrNoCluster) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if all := good(admin.Clusters().List(ctx)); len(all) != 0 {
		t.Errorf("%+v after the removal", all)
	}
}

// relay passes connections on to a node until it is silent. Then it accepts them, and nothing answers.
type relay struct {
	net.Listener
	silent atomic.Bool
}

func newRelay(t *testing.T, to string) *relay {
	r := &relay{Listener: good(net.Listen("tcp", "127.0.0.1:0"))}
	t.Cleanup(func() { r.Close() })
	go func() {
		for {
			from, err := r.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { from.Close() })
			if r.silent.Load() {
				continue
			}
			node, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			go func() { defer node.Close(); _, _ = io.Copy(node, from) }()
			go func() { defer from.Close(); _, _ = io.Copy(from, node) }()
		}
	}()
	return r
}

// TestRegistryOfManyClusters (RG2): clusters that do not answer hold up neither each other nor those that do, and clusters have a limit.
func TestRegistryOfManyClusters(t *testing.T) {
	t.Parallel()
	here, there := newBackupCluster(t, 1), newBackupCluster(t, 1)
	r := newRelay(t, there.addrs[0])
	for i := range api.ClustersMax {
		addr := there.addrs[0]
		if i > 0 {
			addr = r.Addr().String()
		}
		if err := here.c.Clusters().Add(here.ctx, &client.ClusterSpec{Name: fmt.Sprintf("c%02d", i), Addrs: []string{addr}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := here.c.Clusters().Add(here.ctx, &client.ClusterSpec{Name: "more", Addrs: there.addrs}); !errors.Is(err, table.ErrLimit) {
		t.Errorf("one more than %d: %v", api.ClustersMax, err)
	}
	r.silent.Store(true)
	began := time.Now()
	all := good(here.c.Clusters().List(within(t, 30*time.Second)))
	t.Logf("%d clusters, of which one answers: %v", len(all), time.Since(began).Round(time.Millisecond))
	if len(all) != api.ClustersMax || all[0].State != health.Healthy || all[0].Tablets < 1 || time.Since(began) > 10*time.Second {
		t.Fatalf("%d clusters after %v: %+v", len(all), time.Since(began), all)
	}
	for _, x := range all[1:] {
		if x.State != api.ClusterUnreachable || x.Sentence == "" {
			t.Errorf("%+v", x)
		}
	}
}

// TestCancelOfBackup: the job of a backup is cancelled only while it is made: a backup that was completed meanwhile stays.
func TestCancelOfBackup(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 1)
	f.create("t")
	b := f.backup("t")
	if err := f.c.Backups().Cancel(f.ctx, b.ID); err == nil || !strings.Contains(err.Error(), `its state is "made"`) {
		t.Errorf("a backup that is made is cancelled: %v", err)
	}
	if all := good(f.c.Backups().List(f.ctx)); len(all) != 1 {
		t.Errorf("%d backups are left", len(all))
	}
	if err := f.c.Backups().Cancel(f.ctx, "20261127-194512-3f9a01"); !errors.Is(err, client.ErrNoBackup) {
		t.Error(err)
	}
}
