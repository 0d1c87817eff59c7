package node_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// within returns a context for one test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// as returns a client of node i with the credential of cfg.
func (f *testCluster) clientAs(i int, cfg client.Config) *client.Client {
	f.t.Helper()
	c, err := client.Open(context.Background(), f.nodes[i].RPCAddr(), cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// user makes a principal and returns its credential.
func (f *testCluster) user(admin *client.Client, name string) *pki.Credential {
	f.t.Helper()
	c, _, err := admin.Users().Add(within(f.t, 20*time.Second), name, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// dialAs opens a connection that shows a certificate, or none.
func (f *testCluster) dialAs(i int, caller *pki.Credential) *rpc.Conn {
	f.t.Helper()
	if caller == nil {
		caller = pki.AnonymousCredential(f.as.Trust())
	}
	e := pki.NewEndpoint(caller, pki.Options{})
	conn, err := rpc.Dial(f.t.Context(), f.nodes[i].RPCAddr(), rpc.ConnConfig{
		Dialer: func(ctx context.Context, addr string) (net.Conn, error) { return e.Dial(ctx, "", addr) },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// answerOf makes a call and returns how it was refused; nil if it was not. Of mutate_rows it is
// how its rows were, which must all be so.
func answerOf(t testing.TB, conn *rpc.Conn, method string, params func(*wire.Encoder)) *rpc.Error {
	t.Helper()
	var answer *rpc.Error
	err := conn.Call(within(t, 20*time.Second), method, params, func(d *wire.Decoder) error {
		if method != api.MethodMutateRows {
			d.Skip()
			return d.Err()
		}
		return api.DecodeMutateResults(d, 2, func(i int, _ int64, e *rpc.Error) {
			if i == 0 {
				answer = e
			} else if text(answer, "") != text(e, "") {
				t.Errorf("rows of mutate_rows: %v, %v", answer, e)
			}
		})
	})
	if err != nil && !errors.As(err, &answer) {
		t.Fatalf("%s: %v", method, err)
	}
	return answer
}

func rowsOf(keys ...string) (all []table.RowMutation) {
	for _, k := range keys {
		all = append(all, table.RowMutation{Row: []byte(k), Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, []byte("v"))}})
	}
	return all
}

// values are parameters.
func values(vs ...any) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Array(len(vs))
		for _, v := range vs {
			wiretest.Any(e, v)
		}
	}
}

// tableCalls are requests about a table. All methods with the guard authz.Own are among them. Others get arbitrary parameters: their
// guards reject callers before the parameters are read.
func tableCalls(name string) map[string]func(*wire.Encoder) {
	row := []byte("r")
	set := []table.Mutation{table.Set("f", []byte("q"), 1, []byte("v"))}
	names := func(extra ...string) func(*wire.Encoder) {
		return (&api.NamesRequest{Names: append([]string{name}, extra...)}).Append
	}
	tablets := func(method string) func(*wire.Encoder) {
		return values(name, row)
	}
	return map[string]func(*wire.Encoder){
		api.MethodMutate:             (&api.MutateRequest{Table: name, Row: table.RowMutation{Row: row, Mutations: set}}).Append,
		api.MethodMutateRows:         (&api.MutateRowsRequest{Table: name, Rows: rowsOf("r", "s")}).Append,
		api.MethodBulkWrite:          (&api.BulkWriteRequest{MutateRowsRequest: api.MutateRowsRequest{Table: name, Rows: rowsOf("r", "s")}}).Append,
		api.MethodBulkCommit:         (&api.BulkRequest{Table: name, Row: row, Requests: 1}).Append,
		api.MethodBulkAbort:          (&api.BulkRequest{Table: name, Row: row}).Append,
		api.MethodRead:               (&api.ReadRequest{Table: name, Row: row}).Append,
		api.MethodReadRows:           (&api.ReadRowsRequest{Table: name, Rows: [][]byte{row}}).Append,
		api.MethodScanOpen:           (&api.ScanOpenRequest{Table: name}).Append,
		api.MethodCheckAndMutate:     (&api.CheckAndMutateRequest{Table: name, Row: row, True: set}).Append,
		api.MethodReadModifyWrite:    (&api.ReadModifyWriteRequest{Table: name, Row: row, Rules: []table.Rule{{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("q"), Amount: 1}}}).Append,
		api.MethodReadChanges:        (&api.ReadChangesRequest{Table: name}).Append,
		api.MethodSampleRowKeys:      (&api.SampleRowKeysRequest{Table: name}).Append,
		api.MethodRoot:               names(),
		api.MethodDescribeTable:      names(),
		api.MethodListSchemaBundles:  names(),
		api.MethodDeleteSchemaBundle: names("b"),
		api.MethodCreateSchemaBundle: values(name, "b", []byte("d")),
		api.MethodUpdateSchemaBundle: values(name, "b", []byte("d")),
		api.MethodDropTable:          names(),
		api.MethodClearRows:          values(name, row, nil),
		api.MethodCompactTable:       names(),
		api.MethodUsage:              names(),
		api.MethodKeyHeat:            (&api.KeyHeatRequest{Table: name, Prefix: row, Rows: 4}).Append,
		api.MethodDropFamily:         names("f"),
		api.MethodSetFamily:          (&api.SetFamilyRequest{Table: name, Family: table.FamilySpec{Name: "g"}}).Append,
		api.MethodAlterTable:         (&api.AlterTableRequest{Table: name, Changes: []table.Change{{Op: table.ChangeProtect}}}).Append,
		api.MethodSplitTablet:        tablets(api.MethodSplitTablet),
		api.MethodMoveTablet:         values(name, row, "n1"),
		api.MethodMergeTablets:       tablets(api.MethodMergeTablets),
		api.MethodCompactTablet:      tablets(api.MethodCompactTablet),
		api.MethodGrant:              values("bob", "read", map[string]any{"table": name}),
		api.MethodRevoke:             values("bob", "read", map[string]any{"table": name}),
		api.MethodSetGrants:          (&api.SetGrantsRequest{Table: name}).Append,
		api.MethodListGrants:         values("", map[string]any{"table": name}),
	}
}

// cursorMethods are about an open scan, and have no table.
var cursorMethods = map[string]bool{api.MethodScanNext: true, api.MethodScanClose: true}

// TestEveryMethodHasGuard: deny by default. What is registered is guarded, and what is guarded
// is there.
func TestEveryMethodHasGuard(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	if got, want := f.nodes[0].Methods(), f.nodes[0].Guarded(); !slices.Equal(got, want) {
		t.Errorf("the node answers\n%v, guarded are\n%v", got, want)
	}
	for _, method := range api.Methods() {
		if !slices.Contains(f.nodes[0].Methods(), method) {
			t.Errorf("%q is in client/api, and no service registers it", method)
		}
	}
	rows, calls := rowRequests(1), tableCalls("t")
	for _, method := range f.nodes[0].MethodsForRows() {
		if calls[method] == nil && !cursorMethods[method] {
			t.Errorf("%q checks rights on its own: add it to tableCalls", method)
		}
		if rows[method] == nil && !cursorMethods[method] {
			t.Errorf("%q is about rows: add it to rowRequests", method)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a method without a guard was registered")
		}
	}()
	f.nodes[0].GuardsOf("drop_everything")
}

// TestNobodyMayAnything: a principal without rights calls every method, and so do clients without a credential, with a revoked one, and with
// one of an unknown principal. The answer for a table without rights equals, word for word, that for a missing table.
func TestNobodyMayAnything(t *testing.T) {
	t.Parallel()
	f, first, log := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "hidden", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	caller := map[string]*pki.Credential{"nobody": f.user(admin, "nobody"), "revoked": f.user(admin, "revoked"), "removed": f.user(admin, "removed"), "disabled": f.user(admin, "disabled")}
	if err := errors.Join(admin.Users().Revoke(ctx, "revoked"), admin.Users().Remove(ctx, "removed"), admin.Users().Disable(ctx, "disabled")); err != nil {
		t.Fatal(err)
	}
	caller["unknown"] = issue(t, first.Authority, func(r []byte) (*x509.Certificate, error) {
		return first.Authority.SignPrincipal(r, "stranger", 1<<60, 0, time.Now())
	})
	caller["anonymous"] = nil
	conns := map[string]*rpc.Conn{}
	for name, c := range caller {
		conns[name] = f.dialAs(0, c)
	}
	hidden, absent := tableCalls("hidden"), tableCalls("absent")
	hidden[api.MethodMutateRows] = (&api.MutateRowsRequest{Table: "hidden", Rows: rowsOf("r", "s")}).Append
	absent[api.MethodMutateRows] = (&api.MutateRowsRequest{Table: "absent", Rows: rowsOf("r", "s")}).Append
	mayBeCalled := map[string]bool{api.MethodPing: true, "auth": true, "security.join": true}
	harmless := map[string]bool{api.MethodWhoami: true, api.MethodListTables: true, api.MethodHotTablets: true, api.MethodScanNext: true, api.MethodScanClose: true,
		api.MethodListAppProfiles: true, api.MethodReportClient: true}
	for _, method := range f.nodes[0].Methods() {
		params := hidden[method]
		if params == nil {
			params = values()
		}
		for name, conn := range conns {
			got := answerOf(t, conn, method, params)
			switch {
			case mayBeCalled[method]:
			case name == "anonymous":
				if got == nil || got.Code != rpc.CodeUnauthenticated || got.Details["reason"] != api.IdentityNone {
					t.Errorf("%s by who shows nothing: %v", method, got)
				}
			case name != "nobody":
				// Some methods are rejected by kind of caller, and some need no rights.
				closed := got != nil && (got.Code == rpc.CodeUnauthenticated || got.Code == rpc.CodePermissionDenied && got.Details["method"] == method)
				if closed || method == api.MethodScanNext || method == api.MethodScanClose || method == "meta.keep_alive" && got != nil {
					break
				}
				if got == nil || got.Code != api.CodeTableNotFound || hidden[method] == nil {
					t.Errorf("%s by a principal that is %s: %v", method, name, got)
				}
			case harmless[method]:
			case hidden[method] != nil:
				there, not := text(got, "hidden"), text(answerOf(t, conn, method, absent[method]), "absent")
				if got == nil || got.Code != api.CodeTableNotFound || there != not {
					t.Errorf("%s of a table on which one has no right:\n%s, of one that is not there:\n%s", method, there, not)
				}
			case method == "meta.keep_alive":
				if got == nil {
					t.Errorf("%s was let in", method)
				}
			case got == nil || got.Code != rpc.CodePermissionDenied:
				t.Errorf("%s: %v", method, got)
			}
		}
	}
	if _, err := admin.Tables().Describe(ctx, "hidden"); err != nil {
		t.Errorf("the table after all that: %v", err)
	}
	if tables, err := f.clientAs(0, client.Config{Credential: caller["nobody"]}).Tables().List(ctx); err != nil || len(tables) != 0 {
		t.Errorf("tables that nobody sees: %v, %v", tables, err)
	}
	if i := strings.Index(log.String(), "handler panicked"); i >= 0 {
		t.Errorf("a %.2000s", log.String()[i:])
	}
}

// text is an error word for word, without the name of the table.
func text(e *rpc.Error, name string) string {
	if e == nil {
		return "no error"
	}
	s := fmt.Sprintf("%d %q %v %v", e.Code, e.Message, e.Retryable, e.Details)
	if name == "" {
		return s
	}
	return strings.ReplaceAll(s, name, "T")
}

// TestMetadataForPrincipals: of METADATA a principal sees the locations of tablets of tables that it may see; with the right to read the
// cluster it sees all of it.
func TestMetadataForPrincipals(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	for _, name := range []string{"a", "b"} {
		if _, err := admin.Tables().Create(ctx, name, table.FamilySpec{Name: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	ann := f.clientAs(0, client.Config{Credential: f.user(admin, "ann")})
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "a", Family: "f", Rights: "read"}); err != nil {
		t.Fatal(err)
	}
	rows := func(c *client.Client) (tables, families map[string]bool) {
		t.Helper()
		tables, families = map[string]bool{}, map[string]bool{}
		s := c.Table(metadata.Name).Scan(ctx)
		defer s.Close()
		for s.Next() {
			id, _, err := metadata.ParseKey([]byte(s.Row().Key))
			if err != nil {
				t.Fatal(err)
			}
			tables[fmt.Sprint(id)] = true
			for _, cell := range s.Row().Cells {
				families[cell.Family] = true
			}
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		return tables, families
	}
	a := good(admin.Tables().Describe(ctx, "a")).Schema.ID
	if tables, families := rows(ann); len(tables) != 2 || !tables[fmt.Sprint(a)] || !tables[fmt.Sprint(metadata.TableID)] || len(families) != 1 || !families["loc"] {
		t.Errorf("a reader of one table sees rows of the tables %v, cells of %v", tables, families)
	}
	if tables, families := rows(admin); len(tables) < 2 || len(families) < 3 {
		t.Errorf("an administrator sees rows of the tables %v, cells of %v", tables, families)
	}
	if _, err := ann.Table(metadata.Name).CheckAndMutate(ctx, "x", nil, client.NewRowMutation("x").Set("loc:a", nil), nil); !errors.Is(err, client.ErrSystemTable) {
		t.Errorf("a principal changes METADATA: %v", err)
	}
	conn := f.dialAs(0, f.as)
	req := &api.CheckAndMutateRequest{Table: metadata.Name, Row: []byte("x"), System: true, True: []table.Mutation{table.Set("loc", nil, 1, nil)}}
	if e := answerOf(t, conn, api.MethodCheckAndMutate, req.Append); e == nil || e.Code != api.CodeSystemTable {
		t.Errorf("an administrator who says that he is a node changes METADATA: %v", e)
	}
}

// TestTokens: an access token makes a connection its principal's, until it ends or is revoked.
func TestTokens(t *testing.T) {
	t.Parallel()
	f, _, log := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	tok, isNew, err := admin.Users().AddToken(ctx, "ann", 0, "for the test")
	if err != nil || !isNew {
		t.Fatal(isNew, err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read,write"}); err != nil {
		t.Fatal(err)
	}
	ann := f.clientAs(0, client.Config{Token: tok, RetryTimeMax: -1})
	put := func() error {
		return ann.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v")))
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	other, _, err := admin.Users().AddToken(ctx, "ann", 2*time.Second, "short")
	if err != nil {
		t.Fatal(err)
	}
	conn := f.dialAs(0, nil)
	for i, x := range []struct {
		text   string
		reason string
	}{{"nonsense", api.IdentityBadToken}, {token.New(token.Access, pki.FingerprintOf(f.as.Trust().Authorities()[0]), time.Now(), 0).Reveal(), api.IdentityBadToken},
		{other.Reveal(), ""}, {other.Reveal(), ""}, {tok.Reveal(), api.IdentityBadToken}} {
		e := answerOf(t, conn, "auth", values(x.text))
		if x.reason == "" && e != nil || x.reason != "" && (e == nil || e.Code != rpc.CodeUnauthenticated || e.Details["reason"] != x.reason) {
			t.Errorf("token %d: %v, want %q", i, e, x.reason)
		}
	}
	if e := answerOf(t, f.dialAs(0, f.as), "auth", values(tok.Reveal())); e == nil || e.Code != rpc.CodeUnauthenticated {
		t.Errorf("a token beside a certificate: %v", e)
	}
	read := (&api.ReadRequest{Table: "t", Row: []byte("r")}).Append
	if e := answerOf(t, conn, api.MethodRead, read); e != nil {
		t.Errorf("read by a token: %v", e)
	}
	time.Sleep(time.Until(other.Ends()))
	err = conn.Call(ctx, api.MethodRead, read, nil)
	var reported *rpc.Error
	if lost := errors.Is(err, rpc.ErrConnLost); !lost && (!errors.As(err, &reported) || reported.Details["reason"] != api.IdentityExpired) {
		t.Errorf("read by a token that has ended: %v", err)
	}
	if e := answerOf(t, f.dialAs(0, nil), "auth", values(other.Reveal())); e == nil || e.Details["reason"] != api.IdentityExpired {
		t.Errorf("a token that has ended: %v", e)
	}
	if err := admin.Users().RevokeToken(ctx, "ann", tok.ID().String()); err != nil {
		t.Fatal(err)
	}
	var caller *client.IdentityError
	if err := put(); !errors.As(err, &caller) || caller.Reason != api.IdentityRevoked {
		t.Errorf("write by a token that was revoked: %v", err)
	}
	users, err := admin.Users().List(ctx)
	if err != nil || len(users) != 2 || users[1].Name != "ann" || len(users[1].Tokens) != 1 || users[1].Tokens[0].Comment != "short" {
		t.Errorf("users: %+v, %v", users, err)
	}
	for _, secret := range []string{tok.Reveal(), other.Reveal()} {
		if strings.Contains(log.String(), secret) || strings.Contains(log.String(), secret[20:60]) {
			t.Error("the log has a token")
		}
	}
}

// TestTokensAreNotGuessed: a client that sends invalid tokens is throttled, by RPC and by HTTP, before each becomes a read at the leader.
// Other clients are not.
func TestTokensAreNotGuessed(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	tok, _, err := admin.Users().AddToken(ctx, "ann", 0, "")
	if err := errors.Join(err, admin.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "read"})); err != nil {
		t.Fatal(err)
	}
	guess := func() string {
		return token.New(token.Access, pki.FingerprintOf(f.as.Trust().Authorities()[0]), time.Now(), 0).Reveal()
	}
	const guesses = 300
	conn, began, refused := f.dialAs(0, nil), time.Now(), 0
	for range guesses {
		if e := answerOf(t, conn, "auth", values(guess())); e == nil {
			t.Error("a token that is not there is good")
		} else if e.Code == rpc.CodeUnauthenticated {
			refused++
		} else if e.Code != rpc.CodeOverloaded {
			t.Error(e)
		}
	}
	if most := 20 * (2 + int(time.Since(began)/time.Second)); refused > most {
		t.Errorf("%d of %d tokens were looked at, want at most %d", refused, guesses, most)
	}
	eventually(t, "a good token is taken", func() bool { return answerOf(t, conn, "auth", values(tok.Reveal())) == nil })

	statuses, began := map[int]int{}, time.Now()
	for range guesses {
		statuses[f.nodes[0].Look(ctx, "/metrics", "10.0.0.1:1", guess())]++
	}
	most := 20 * (2 + int(time.Since(began)/time.Second))
	if n := statuses[http.StatusUnauthorized]; n == 0 || n > most || n+statuses[http.StatusTooManyRequests] != guesses {
		t.Errorf("statuses of %d guesses by HTTP: %v, want at most %d that were looked at", guesses, statuses, most)
	}
	if status := f.nodes[0].Look(ctx, "/metrics", "10.0.0.2:1", tok.Reveal()); status != 0 {
		t.Errorf("a good token from another host: %d", status)
	}
}
