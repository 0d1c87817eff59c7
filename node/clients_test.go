package node_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestClientReports (CP1, CP3): a client that opts in is listed with what it has counted, its user and its address, for users that may see the requests of others.
// No other client is. Reports of strangers, and such as no client makes, are rejected.
func TestClientReports(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	credential := f.user(admin, "ann")
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: "t", Rights: "read,write"}); err != nil {
		t.Fatal(err)
	}
	ann := f.clientAs(0, client.Config{Credential: credential, ReportEvery: time.Second, ReportName: "crawler\x1b[31m"})
	const rows = 40
	for range rows {
		if err := ann.Table("t").Apply(ctx, client.NewRowMutation("r").Set("a:q", []byte("v"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := ann.Table("t").Apply(ctx, client.NewRowMutation("r").Set("none:q", []byte("v"))); err == nil {
		t.Fatal("a mutation of a family that does not exist is made")
	}
	var seen client.ClientProcess
	for {
		l, err := health.ReadClients(ctx, admin)
		if err != nil || len(l.Unknown) > 0 || len(l.All) > 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		if len(l.All) == 1 {
			seen = l.All[0]
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if seen.User != "ann" || seen.Name != "crawler\x1b[31m" || !strings.HasPrefix(seen.From, "127.0.0.1:") || seen.Calls < 1 || seen.Calls > rows+10 ||
		seen.P50US <= 0 || seen.P99US < seen.P50US || seen.MaxUS < seen.P99US || seen.Lookups < 1 || seen.IntervalMS < 900 {
		t.Errorf("%+v", seen)
	}
	calls, failed := seen.Calls, seen.Errors
	for last := seen.AtMS; calls < rows+1 || failed < 1; { // the test may be slower than a report
		l, err := health.ReadClients(ctx, admin)
		if err != nil {
			t.Fatal(err)
		}
		if l.All[0].AtMS > last {
			calls, failed, last = calls+l.All[0].Calls, failed+l.All[0].Errors, l.All[0].AtMS
		}
		time.Sleep(20 * time.Millisecond)
	}
	if failed != 1 {
		t.Errorf("%d calls failed", failed)
	}
	if _, err := health.ReadClients(ctx, ann); !errors.Is(err, client.ErrPermission) {
		t.Errorf("a user without the right: %v", err)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Rights: "monitor"}); err != nil {
		t.Fatal(err)
	}
	if _, err := health.ReadClients(ctx, ann); !errors.Is(err, client.ErrPermission) {
		t.Errorf("with monitor: %v", err)
	}
	rejectReports(t, f.dialAs(0, credential), f.dialAs(0, nil))
}

// rejectReports reports nonsense by a user, and by a stranger.
func rejectReports(t *testing.T, user, stranger *rpc.Conn) {
	t.Helper()
	good := api.ClientReport{ID: strings.Repeat("a", api.ClientIDLen), Name: "x", IntervalMS: 1000, Calls: 5, Errors: 5, P50US: 1, P99US: 2, MaxUS: 3}
	send := func(c *rpc.Conn, r api.ClientReport) error {
		req := api.ReportClientRequest{Report: r}
		return api.FromRPC(c.Call(t.Context(), api.MethodReportClient, req.Append, func(*wire.Decoder) error { return nil }))
	}
	if err := send(user, good); err != nil {
		t.Errorf("a report: %v", err)
	}
	if err := send(stranger, good); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("a stranger: %v", err)
	}
	for name, change := range map[string]func(r *api.ClientReport){
		"calls: ":       func(r *api.ClientReport) { r.Calls = -1 },
		"calls is":      func(r *api.ClientReport) { r.Calls = 1 << 62 },
		"errors is 6":   func(r *api.ClientReport) { r.Errors = 6 },
		"p99_us is 4":   func(r *api.ClientReport) { r.P99US = 4 },
		"max_us":        func(r *api.ClientReport) { r.MaxUS = 1 << 60 },
		"interval_ms":   func(r *api.ClientReport) { r.IntervalMS = 0 },
		"id ":           func(r *api.ClientReport) { r.ID = strings.Repeat("g", 16) },
		"id \"aa":       func(r *api.ClientReport) { r.ID = strings.Repeat("a", 1<<20) },
		"name":          func(r *api.ClientReport) { r.Name = strings.Repeat("x", 1<<20) },
		"UTF-8":         func(r *api.ClientReport) { r.Name = "\xff" },
		"lookups is -1": func(r *api.ClientReport) { r.Lookups = -1 },
		"started_ms is": func(r *api.ClientReport) { r.StartedMS = -5 },
	} {
		r := good
		change(&r)
		if err := send(user, r); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, ": ")) || errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
