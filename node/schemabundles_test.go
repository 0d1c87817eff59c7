package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/schemabundles"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// descriptors returns descriptors of a file with that name, and so many bytes of comments beside it.
func descriptors(t *testing.T, name string, more int) []byte {
	t.Helper()
	comment := &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{{Span: []int32{0, 0, 0}, LeadingComments: proto.String(strings.Repeat("x", more))}}}
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{Name: &name, SourceCodeInfo: comment}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSchemaBundles (SB1, SB2): bundles are created, updated by etag and deleted, up to their limits. They stay with a table that is renamed, and dropped and
// restored, and end with it.
func TestSchemaBundles(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	c, ctx := f.client(0), within(t, 60*time.Second)
	schema, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	of := c.Tables().SchemaBundles
	expect := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	create := func(id string, descriptors []byte) (*client.SchemaBundle, error) {
		return of("t").Create(ctx, &client.SchemaBundle{ID: id, Descriptors: descriptors})
	}
	one, other := descriptors(t, "one", 0), descriptors(t, "other", 0)
	first, err := create("a", one)
	if err != nil {
		t.Fatal(err)
	}
	_, err = create("a", other)
	expect("create again", err, api.ErrSchemaBundleExists)
	_, err = create("a/b", one)
	expect("a path", err, table.ErrBadName)
	_, err = create("b", []byte("no descriptors"))
	expect("no descriptors", err, rpc.CodeBadRequest)
	_, err = of("none").Create(ctx, &client.SchemaBundle{ID: "a", Descriptors: one})
	expect("no table", err, client.ErrNoTable)
	_, err = of("METADATA").List(ctx)
	expect("METADATA", err, client.ErrSystemTable)
	second, err := of("t").Update(ctx, &client.SchemaBundle{ID: "a", Descriptors: other, Etag: first.Etag})
	if err != nil || second.Etag == first.Etag || !bytes.Equal(second.Descriptors, other) {
		t.Fatalf("update: %+v, %v", second, err)
	}
	_, err = of("t").Update(ctx, &client.SchemaBundle{ID: "a", Descriptors: one, Etag: first.Etag})
	expect("a former etag", err, api.ErrSchemaBundleChanged)
	expect("delete by a former etag", of("t").Delete(ctx, "a", first.Etag), api.ErrSchemaBundleChanged)
	_, err = of("t").Update(ctx, &client.SchemaBundle{ID: "b", Descriptors: one})
	expect("update of no bundle", err, api.ErrNoSchemaBundle)
	expect("delete no bundle", of("t").Delete(ctx, "b", ""), api.ErrNoSchemaBundle)

	half := descriptors(t, "half", api.SchemaBundleBytesMax/2)
	if _, err := create("half", half); err != nil {
		t.Fatal(err)
	}
	_, err = create("more", half)
	expect("more bytes than the limit", err, table.ErrLimit)
	_, err = of("t").Update(ctx, &client.SchemaBundle{ID: "a", Descriptors: half})
	expect("an update to more bytes than the limit", err, table.ErrLimit)
	for i := 2; i < api.SchemaBundlesMax; i++ {
		if _, err := create(fmt.Sprint("b", i), one); err != nil {
			t.Fatal(err)
		}
	}
	_, err = create("more", one)
	expect("more than the limit", err, table.ErrLimit)

	if _, err := c.Tables().Rename(ctx, "t", "u"); err != nil {
		t.Fatal(err)
	}
	if err := c.Tables().Drop(ctx, "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tables().Undrop(ctx, client.DroppedRef{Name: "u"}, "v"); err != nil {
		t.Fatal(err)
	}
	all, err := of("v").List(ctx)
	if err != nil || len(all) != api.SchemaBundlesMax || !bytes.Equal(all[0].Descriptors, other) || all[0].Etag != second.Etag {
		t.Errorf("%d bundles of the restored table, %v", len(all), err)
	}
	for i := range all {
		expect("delete "+all[i].ID, of("v").Delete(ctx, all[i].ID, all[i].Etag), nil)
	}
	if all, err = of("v").List(ctx); err != nil || len(all) != 0 {
		t.Errorf("bundles %v, %v", all, err)
	}

	if _, err := of("v").Create(ctx, &client.SchemaBundle{ID: "last", Descriptors: one}); err != nil {
		t.Fatal(err)
	}
	if err := c.Tables().Drop(ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if err := c.Tables().Purge(ctx, client.DroppedRef{Name: "v"}); err != nil {
		t.Fatal(err)
	}
	conn, err := rpc.Dial(ctx, f.addrs[0], rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _, err = metaapi.RemoteForNode(conn).Get(ctx, schemabundles.File(schema.ID), 0)
	expect("the file of a purged table", err, metaapi.ErrNotFound)
}
