package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
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
		t.Errorf("the answer for a user who may monitor the cluster: %q, %v", raw, err)
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

// TestRegistryOfManyClusters: a cluster that does not answer holds up nothing but itself, and clusters have a limit.
func TestRegistryOfManyClusters(t *testing.T) {
	t.Parallel()
	here, there := newBackupCluster(t, 1), newBackupCluster(t, 1)
	for i := range api.ClustersMax {
		if err := here.c.Clusters().Add(here.ctx, &client.ClusterSpec{Name: fmt.Sprintf("c%02d", i), Addrs: there.addrs}); err != nil {
			t.Fatal(err)
		}
	}
	var limit *rpc.Error
	if err := here.c.Clusters().Add(here.ctx, &client.ClusterSpec{Name: "more", Addrs: there.addrs}); err == nil || errors.As(err, &limit) && limit.Code != api.CodeLimitExceeded {
		t.Errorf("one more than %d: %v", api.ClustersMax, err)
	}
	all := good(here.c.Clusters().List(here.ctx))
	if len(all) != api.ClustersMax {
		t.Fatalf("%d clusters", len(all))
	}
	for i, x := range all {
		if x.Name != fmt.Sprintf("c%02d", i) || x.State != health.Healthy || x.Tablets < 1 {
			t.Errorf("%+v", x)
		}
	}
}
