package bigtable

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/steledb/stele/client/api"
)

// eventDescriptors returns descriptors of a message with so many text fields.
func eventDescriptors(t *testing.T, fields int32) []byte {
	t.Helper()
	m := &descriptorpb.DescriptorProto{Name: proto.String("Event")}
	for i := range fields {
		m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String("f" + string('a'+i)), Number: proto.Int32(i + 1),
			Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()})
	}
	b, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{Name: proto.String("event.proto"), MessageType: []*descriptorpb.DescriptorProto{m}}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func bundleConf(id string, descriptors []byte) bigtable.SchemaBundleConf {
	return bigtable.SchemaBundleConf{TableID: table, SchemaBundleID: id, ProtoSchema: &bigtable.ProtoSchemaInfo{ProtoDescriptors: descriptors}}
}

// TestGoSchemaBundles: Google's Go client administers schema bundles. An update that breaks readers needs ignore_warnings.
func TestGoSchemaBundles(t *testing.T) {
	_, admin := goClient(t, startNode(t))
	ctx := t.Context()
	if err := admin.CreateTable(ctx, table); err != nil {
		t.Fatal(err)
	}
	one, two := eventDescriptors(t, 1), eventDescriptors(t, 2)
	for _, id := range []string{"events", "clicks"} {
		conf := bundleConf(id, one)
		if err := admin.CreateSchemaBundle(ctx, &conf); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, err error, want codes.Code, text string) {
		t.Helper()
		if got := status.Code(err); got != want || want != codes.OK && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %v with %q", what, err, want, text)
		}
	}
	update := func(id string, descriptors []byte, ignore bool) error {
		return admin.UpdateSchemaBundle(ctx, bigtable.UpdateSchemaBundleConf{SchemaBundleConf: bundleConf(id, descriptors), IgnoreWarnings: ignore})
	}
	again := bundleConf("events", two)
	expect("create again", admin.CreateSchemaBundle(ctx, &again), codes.AlreadyExists, "exists")
	expect("add a field", update("events", two, false), codes.OK, "")
	expect("remove a field", update("events", one, false), codes.FailedPrecondition, "message Event: the field fb = 2 is missing")
	expect("remove a field on purpose", update("events", one, true), codes.OK, "")
	expect("update of none", update("none", one, false), codes.NotFound, "none")
	expect("no descriptors", update("events", []byte("x"), true), codes.InvalidArgument, "FileDescriptorSet")
	large := bytes.Repeat([]byte{1}, api.SchemaBundleBytesMax+1)
	expect("large descriptors", update("events", large, true), codes.InvalidArgument, "196608")
	bad := bundleConf("a b/c", one)
	expect("a bad id", admin.CreateSchemaBundle(ctx, &bad), codes.InvalidArgument, "schema bundle id")

	b, err := admin.GetSchemaBundle(ctx, table, "events")
	if err != nil || !bytes.Equal(b.SchemaBundle, one) || b.Etag == "" {
		t.Errorf("events: %+v, %v", b, err)
	}
	if all, err := admin.SchemaBundles(ctx, table); err != nil || !slices.Equal(all, []string{"clicks", "events"}) {
		t.Errorf("bundles %v, %v", all, err)
	}
	expect("delete", admin.DeleteSchemaBundle(ctx, table, "clicks"), codes.OK, "")
	expect("delete again", admin.DeleteSchemaBundle(ctx, table, "clicks"), codes.NotFound, "clicks")
	_, err = admin.GetSchemaBundle(ctx, table, "clicks")
	expect("get a deleted one", err, codes.NotFound, "clicks")
}

// TestSecuredSchemaBundles: users that may see a table see its bundles, its administrators change them, and for others the table does not exist.
func TestSecuredSchemaBundles(t *testing.T) {
	s := startSecured(t)
	schema := &adminpb.SchemaBundle_ProtoSchema{ProtoSchema: &adminpb.ProtoSchema{ProtoDescriptors: eventDescriptors(t, 1)}}
	parent := "projects/p/instances/i/tables/" + table
	name := parent + "/schemaBundles/events"
	attempts := func(ctx context.Context) string {
		c := adminpb.NewBigtableTableAdminClient(s.dial(s.nodes[1], nil))
		_, created := c.CreateSchemaBundle(ctx, &adminpb.CreateSchemaBundleRequest{Parent: parent, SchemaBundleId: "events", SchemaBundle: &adminpb.SchemaBundle{Type: schema}})
		_, updated := c.UpdateSchemaBundle(ctx, &adminpb.UpdateSchemaBundleRequest{SchemaBundle: &adminpb.SchemaBundle{Name: name, Type: schema}})
		_, got := c.GetSchemaBundle(ctx, &adminpb.GetSchemaBundleRequest{Name: name})
		_, listed := c.ListSchemaBundles(ctx, &adminpb.ListSchemaBundlesRequest{Parent: parent})
		_, stale := c.DeleteSchemaBundle(ctx, &adminpb.DeleteSchemaBundleRequest{Name: name, Etag: "stale"})
		var all []string
		for _, err := range []error{created, updated, got, listed, stale} {
			all = append(all, status.Code(err).String())
		}
		return strings.Join(all, " ")
	}
	for _, x := range []struct{ rights, on, want string }{
		{"admin", table, "OK OK OK OK Aborted"},
		{"read,write", table, "PermissionDenied PermissionDenied OK OK PermissionDenied"},
		{"admin", "hidden", "NotFound NotFound NotFound NotFound NotFound"},
	} {
		ctx := withToken(t.Context(), s.user("u"+x.rights[:1]+x.on[:1], x.rights, x.on))
		if got := attempts(ctx); got != x.want {
			t.Errorf("%s on %s: %s, want %s", x.rights, x.on, got, x.want)
		}
	}
}
