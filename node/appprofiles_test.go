package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/appprofiles"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestAppProfiles (PF1, PF2, PF3): profiles are created, updated by etag and deleted, up to their limits. A damaged one hides no others.
func TestAppProfiles(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	c, ctx := f.client(0), within(t, 60*time.Second)
	admin := c.AppProfiles()
	ids := func() string {
		all, err := admin.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, p := range all {
			ids = append(ids, p.ID)
		}
		return strings.Join(ids, " ")
	}
	profile := func(id string) *client.AppProfile {
		return &client.AppProfile{ID: id, Routing: api.RoutingSingle, Priority: api.PriorityLow}
	}
	expect := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	first, err := admin.Create(ctx, profile("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.Create(ctx, profile("a"))
	expect("create again", err, api.ErrAppProfileExists)
	_, err = admin.Create(ctx, profile("default"))
	expect("create the default one", err, api.ErrAppProfileExists)
	_, err = admin.Create(ctx, profile("a/b"))
	expect("a path", err, table.ErrBadName)
	changed := *first
	changed.Description = "d"
	second, err := admin.Update(ctx, &changed)
	if err != nil || second.Etag == first.Etag || second.Description != "d" {
		t.Fatalf("update: %+v, %v", second, err)
	}
	_, err = admin.Update(ctx, &changed)
	expect("a former etag", err, api.ErrAppProfileChanged)
	_, err = admin.Update(ctx, profile("b"))
	expect("update of no profile", err, api.ErrNoAppProfile)
	stale := profile("default")
	stale.Etag = first.Etag
	_, err = admin.Update(ctx, stale)
	expect("another etag of the default one", err, api.ErrAppProfileChanged)
	all, err := admin.List(ctx)
	if err != nil || len(all) != 2 || all[0] != *second || !all[1].Transactional {
		t.Errorf("profiles %+v, %v", all, err)
	}
	if _, err := admin.Update(ctx, &all[1]); err != nil { // with its etag, though it has no file
		t.Error(err)
	}
	expect("delete the default one", admin.Delete(ctx, "default"), rpc.CodeBadRequest)
	for _, id := range []string{"b", "a/b", "..", ""} {
		expect("delete "+id, admin.Delete(ctx, id), api.ErrNoAppProfile)
	}
	for i := 1; i < api.AppProfilesMax; i++ {
		if _, err := admin.Create(ctx, profile(fmt.Sprint("p", i))); err != nil {
			t.Fatal(err)
		}
	}
	_, err = admin.Create(ctx, profile("more"))
	expect("more than the limit", err, table.ErrLimit)
	if err := admin.Delete(ctx, "p1"); err != nil {
		t.Error(err)
	}
	if _, err := admin.Create(ctx, profile("more")); err != nil {
		t.Error(err)
	}
	if n := len(strings.Fields(ids())); n != api.AppProfilesMax+1 {
		t.Errorf("%d profiles", n)
	}
	conn, err := rpc.Dial(ctx, f.addrs[0], rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	meta := metaapi.RemoteForNode(conn)
	if _, err := meta.Set(ctx, appprofiles.Dir+"/a", []byte("damaged"), metaapi.AnyGeneration, metaapi.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := ids(); strings.HasPrefix(got, "a ") || len(strings.Fields(got)) != api.AppProfilesMax {
		t.Errorf("with a damaged one: %s", got)
	}
	expect("delete a damaged one", admin.Delete(ctx, "a"), nil)
}
