package bigtable

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/iam/apiv1/iampb"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
	tables "github.com/steledb/stele/table"
)

// secured is a cluster with certificates.
type secured struct {
	t       *testing.T
	nodes   []*node.Node
	admin   *client.Client
	adminID *pki.Credential
	roots   *x509.CertPool // with the cluster's authority, for programs that know no other
	nodeID  *pki.Credential
}

// startSecured starts a cluster of two nodes, whose table t has one tablet on each, with the rows a and z, and the families f and g. The table hidden
// has no rows.
func startSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t}
	dir := t.TempDir()
	keys := filepath.Join(dir, certs.FolderName)
	var err error
	if s.adminID, err = enrol.Initialise([]string{dir}, keys, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	s.start(node.Config{DataDirs: []string{dir}, Security: keys})
	if s.admin, err = client.Open(t.Context(), s.nodes[0].RPCAddr(), client.Config{Credential: s.adminID}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.admin.Close() })
	made, err := s.admin.JoinTokens().Create(t.Context(), client.TokenRequest{Kind: api.TokenJoin, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(made.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	s.start(node.Config{DataDirs: []string{data}, Security: filepath.Join(data, certs.FolderName), TokenFile: token, Join: []string{s.nodes[0].RPCAddr()}})
	first, err := keydir.At(keys).Load()
	if err != nil {
		t.Fatal(err)
	}
	s.nodeID, s.roots = first.Credential, x509.NewCertPool()
	s.roots.AddCert(first.Credential.Signer())
	s.createTables()
	return s
}

func (s *secured) start(cfg node.Config) {
	s.t.Helper()
	cfg.Listen, cfg.Gossip, cfg.HTTP, cfg.Bigtable = "127.0.0.1:0", "127.0.0.1:0", "off", "127.0.0.1:0"
	cfg.MemoryBytes, cfg.ExtentBytes = 512<<20, 1<<20
	n, err := node.Start(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			s.t.Error(err)
		}
	})
	s.nodes = append(s.nodes, n)
}

func (s *secured) createTables() {
	s.t.Helper()
	for _, name := range []string{table, "hidden"} {
		if _, err := s.admin.Tables().Create(s.t.Context(), name, tables.FamilySpec{Name: "f"}, tables.FamilySpec{Name: "g"}); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.admin.Tablets().Split(s.t.Context(), table, "m"); err != nil {
		s.t.Fatal(err)
	}
	tbl := s.admin.Table(table)
	for i, row := range []string{"a", "z"} {
		if err := tbl.Apply(s.t.Context(), client.NewRowMutation(row).SetAt("f:q", 1000, []byte("1")).SetAt("g:q", 1000, []byte("2"))); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.admin.Tablets().Move(s.t.Context(), table, client.TabletRef{Row: row}, s.nodes[i].ID()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// user creates a user with an access token and rights on a table.
func (s *secured) user(name, rights, table string) (token string) {
	s.t.Helper()
	made, _, err := s.admin.Users().AddToken(s.t.Context(), name, time.Hour, "")
	if err == nil && rights != "" {
		err = s.admin.Grants().Add(s.t.Context(), client.Grant{Principal: name, Rights: rights, Table: table})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return made.Reveal()
}

// withToken returns a context whose calls have a token.
func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// dial returns a connection to a node, with a client certificate unless it is nil.
func (s *secured) dial(n *node.Node, own *pki.Credential) *grpc.ClientConn {
	s.t.Helper()
	cfg := &tls.Config{RootCAs: s.roots}
	if own != nil {
		cfg = pki.NewEndpoint(own, pki.Options{}).DialNode("")
	}
	c, err := grpc.NewClient(n.BigtableAddr(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// write makes a call that writes a row.
func writeRow(ctx context.Context, c *grpc.ClientConn, table, row, family string) error {
	set := &bigtablepb.Mutation_SetCell{FamilyName: family, ColumnQualifier: []byte("q"), TimestampMicros: 1000, Value: []byte("3")}
	_, err := bigtablepb.NewBigtableClient(c).MutateRow(ctx, &bigtablepb.MutateRowRequest{
		TableName: "projects/p/instances/i/tables/" + table, RowKey: []byte(row),
		Mutations: []*bigtablepb.Mutation{{Mutation: &bigtablepb.Mutation_SetCell_{SetCell: set}}},
	})
	return err
}

// ping makes a call for which every user has the right.
func ping(ctx context.Context, c *grpc.ClientConn) error {
	_, err := bigtablepb.NewBigtableClient(c).PingAndWarm(ctx, &bigtablepb.PingAndWarmRequest{Name: "projects/p/instances/i"})
	return err
}

func expectCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestSecuredCredentials (BP1): no method serves a call without a valid credential, and plain connections are rejected.
func TestSecuredCredentials(t *testing.T) {
	s := startSecured(t)
	n := s.nodes[0]
	stranger := s.dial(n, nil)
	for _, m := range methods(t) {
		err := call(t.Context(), stranger, m, dynamicpb.NewMessage(m.Input()))
		expectCode(t, string(m.Name())+" without a credential", err, codes.Unauthenticated)
	}
	ann := s.user("ann", "", "")
	expectCode(t, "certificate and token", ping(withToken(t.Context(), ann), s.dial(n, s.adminID)), codes.Unauthenticated)
	expectCode(t, "certificate of a node", ping(t.Context(), s.dial(n, s.nodeID)), codes.Unauthenticated)
	expectCode(t, "two tokens", ping(withToken(withToken(t.Context(), ann), ann), s.dial(n, nil)), codes.Unauthenticated)
	expectCode(t, "another scheme", ping(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Basic "+ann), s.dial(n, nil)), codes.Unauthenticated)
	plain, err := grpc.NewClient(n.BigtableAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	expectCode(t, "plain connection", ping(withToken(t.Context(), ann), plain), codes.Unavailable)
	expectCode(t, "token", ping(withToken(t.Context(), ann), s.dial(n, nil)), codes.OK)
	expectCode(t, "certificate", ping(t.Context(), s.dial(n, s.adminID)), codes.OK)
	for _, m := range methods(t) {
		err := call(withToken(t.Context(), "stele-x"), stranger, m, dynamicpb.NewMessage(m.Input()))
		if c := status.Code(err); c != codes.Unauthenticated && c != codes.Unavailable { // the second is the limit of wrong tokens in a second
			t.Errorf("%s with a wrong token: %v", m.Name(), err)
		}
	}
}

// TestSecuredRights: the rights of users are those at the node's own port, on whichever node the row is.
func TestSecuredRights(t *testing.T) {
	s := startSecured(t)
	ann, bob := s.user("ann", "read", table), s.user("bob", "write", table)
	if err := s.admin.Grants().Add(t.Context(), client.Grant{Principal: "ann", Rights: "write", Table: table, Family: "g"}); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.nodes {
		c := s.dial(n, nil)
		asAnn := withToken(t.Context(), ann)
		for _, row := range []string{"a", "z"} {
			rows, err := read(asAnn, bigtablepb.NewBigtableClient(c), &bigtablepb.RowSet{RowKeys: [][]byte{[]byte(row)}})
			if err != nil || rows != 1 {
				t.Errorf("ann reads %s: %d rows, %v", row, rows, err)
			}
			expectCode(t, "ann writes to f", writeRow(asAnn, c, table, row, "f"), codes.PermissionDenied)
			expectCode(t, "ann writes to g", writeRow(asAnn, c, table, row, "g"), codes.OK)
			expectCode(t, "bob writes", writeRow(withToken(t.Context(), bob), s.dial(n, nil), table, row, "f"), codes.OK)
		}
		expectCode(t, "ann writes to a hidden table", writeRow(asAnn, c, "hidden", "a", "f"), codes.NotFound)
		expectCode(t, "bob on ann's connection", writeRow(withToken(t.Context(), bob), c, table, "a", "f"), codes.Unauthenticated) // BP2
		expectCode(t, "admin writes", writeRow(t.Context(), s.dial(n, s.adminID), "hidden", "a", "f"), codes.OK)
	}
	if rows, err := read(withToken(t.Context(), bob), bigtablepb.NewBigtableClient(s.dial(s.nodes[1], nil)), nil); status.Code(err) != codes.PermissionDenied {
		t.Errorf("bob reads %d rows, %v", rows, err)
	}
}

// TestSecuredIam: the policy of a table is its grants. What it gives is in effect when it is set, and only administrators of the table may
// read and set it.
func TestSecuredIam(t *testing.T) {
	s := startSecured(t)
	ann, bob := s.user("ann", "", ""), s.user("bob", "admin", table)
	n := s.nodes[1]
	tables := func(c *grpc.ClientConn) adminpb.BigtableTableAdminClient {
		return adminpb.NewBigtableTableAdminClient(c)
	}
	annConn, asAnn := s.dial(n, nil), withToken(t.Context(), ann)
	bobConn, asBob := s.dial(n, nil), withToken(t.Context(), bob)
	resource := "projects/p/instances/i/tables/" + table
	set := func(ctx context.Context, c *grpc.ClientConn, role string) error {
		p, err := tables(c).GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: resource})
		if err != nil {
			return err
		}
		p.Bindings = append(p.Bindings, &iampb.Binding{Role: role, Members: []string{"user:ann"}})
		_, err = tables(c).SetIamPolicy(ctx, &iampb.SetIamPolicyRequest{Resource: resource, Policy: p})
		return err
	}
	permissions := func() string {
		got, err := tables(annConn).TestIamPermissions(asAnn, &iampb.TestIamPermissionsRequest{Resource: resource,
			Permissions: []string{"bigtable.tables.readRows", "bigtable.tables.mutateRows", "bigtable.tables.update"}})
		if err != nil {
			return status.Code(err).String()
		}
		return fmt.Sprint(got.Permissions)
	}
	if got := permissions(); got != "NotFound" {
		t.Errorf("without a right: %s", got)
	}
	expectCode(t, "bob makes ann a reader", set(asBob, bobConn, "roles/bigtable.reader"), codes.OK)
	if got := permissions(); got != "[bigtable.tables.readRows]" {
		t.Errorf("as a reader: %s", got)
	}
	expectCode(t, "ann writes", writeRow(asAnn, annConn, table, "a", "f"), codes.PermissionDenied)
	expectCode(t, "ann makes herself a user", set(asAnn, annConn, "roles/bigtable.user"), codes.PermissionDenied)
	expectCode(t, "bob makes ann a user", set(asBob, bobConn, "roles/bigtable.user"), codes.OK)
	expectCode(t, "ann writes as a user", writeRow(asAnn, annConn, table, "a", "f"), codes.OK)
	if got := permissions(); got != "[bigtable.tables.readRows bigtable.tables.mutateRows]" {
		t.Errorf("as a user: %s", got)
	}
	only := &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/bigtable.admin", Members: []string{"user:bob"}}}}
	if _, err := tables(bobConn).SetIamPolicy(asBob, &iampb.SetIamPolicyRequest{Resource: resource, Policy: only}); err != nil {
		t.Fatal(err)
	}
	expectCode(t, "ann writes without a right", writeRow(asAnn, annConn, table, "a", "f"), codes.NotFound)
}

// TestSecuredRevocation (AF2): once a credential is revoked, no call with it is served, on an open connection either, on whichever node the row is.
func TestSecuredRevocation(t *testing.T) {
	s := startSecured(t)
	for _, kind := range []string{"token", "certificate", "user"} {
		ctx, id := t.Context(), (*pki.Credential)(nil)
		token, _, err := s.admin.Users().AddToken(t.Context(), kind, time.Hour, "")
		if kind == "token" || kind == "user" {
			ctx = withToken(ctx, token.Reveal())
		} else if err == nil {
			id, _, err = s.admin.Users().Add(t.Context(), kind, time.Hour)
		}
		if err == nil {
			err = s.admin.Grants().Add(t.Context(), client.Grant{Principal: kind, Rights: "write", Table: table})
		}
		if err != nil {
			t.Fatal(err)
		}
		conns := []*grpc.ClientConn{s.dial(s.nodes[0], id), s.dial(s.nodes[1], id)}
		for _, c := range conns {
			expectCode(t, kind+" before", errors.Join(writeRow(ctx, c, table, "a", "f"), writeRow(ctx, c, table, "z", "f")), codes.OK)
		}
		switch kind {
		case "token":
			err = s.admin.Users().RevokeToken(t.Context(), kind, token.ID().String())
		case "certificate":
			err = s.admin.Users().RevokeCertificate(t.Context(), kind, id.Peer().Serial)
		case "user":
			err = s.admin.Users().Disable(t.Context(), kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conns {
			for _, row := range []string{"a", "z"} {
				expectCode(t, kind+" revoked, row "+row, writeRow(ctx, c, table, row, "f"), codes.Unauthenticated)
			}
		}
	}
}

// TestSecuredGoClient: Google's Go client works with TLS, the cluster's authority and an access token, as docs/bigtable.md describes.
func TestSecuredGoClient(t *testing.T) {
	s := startSecured(t)
	token := s.user("loader", "admin", "")
	opts := []option.ClientOption{
		option.WithEndpoint(s.nodes[0].BigtableAddr()),
		option.WithTokenSource(oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(s.roots, ""))),
	}
	admin, err := bigtable.NewAdminClient(t.Context(), project, instance, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if names, err := admin.Tables(t.Context()); err != nil || strings.Join(names, " ") != "hidden t" {
		t.Errorf("tables %q, %v", names, err)
	}
	if err := admin.CreateColumnFamily(t.Context(), table, "h"); err != nil {
		t.Error(err)
	}
	c, err := bigtable.NewClientWithConfig(t.Context(), project, instance, bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := bigtable.NewMutation()
	m.Set("h", "q", 1000, []byte("x"))
	if err := c.Open(table).Apply(t.Context(), "b", m); err != nil {
		t.Fatal(err)
	}
	if got, want := rowsOf(t, c.Open(table), bigtable.PrefixRange("b")), "b=h:q@1000/x"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
