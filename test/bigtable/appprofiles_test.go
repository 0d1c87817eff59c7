package bigtable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/node"
)

const profilesOf = "projects/p/instances/i/appProfiles/"

// instanceAdmin returns Google's client for instances, connected as programs connect to an emulator.
func instanceAdmin(t *testing.T, n *node.Node) *bigtable.InstanceAdminClient {
	t.Helper()
	t.Setenv("BIGTABLE_EMULATOR_HOST", n.BigtableAddr())
	iac, err := bigtable.NewInstanceAdminClient(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = iac.Close() })
	return iac
}

// withProfile returns the table as a program with an app profile uses it.
func withProfile(t *testing.T, n *node.Node, profile string) *bigtable.Table {
	t.Helper()
	t.Setenv("BIGTABLE_EMULATOR_HOST", n.BigtableAddr())
	c, err := bigtable.NewClientWithConfig(t.Context(), project, instance, bigtable.ClientConfig{AppProfile: profile, MetricsProvider: bigtable.NoopMetricsProvider{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Open(table)
}

// profilesListed returns the ids of all profiles.
func profilesListed(t *testing.T, iac *bigtable.InstanceAdminClient) (ids []string) {
	t.Helper()
	for it := iac.ListAppProfiles(t.Context(), instance); ; {
		p, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return ids
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, strings.TrimPrefix(p.Name, profilesOf))
	}
}

// attempts returns the codes of a mutation, a read, a conditional mutation and an increment.
func attempts(t *testing.T, tbl *bigtable.Table) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m := bigtable.NewMutation()
	m.Set("f", "q", 1000, []byte("v"))
	rmw := bigtable.NewReadModifyWrite()
	rmw.Increment("g", "n", 1)
	var got []string
	for _, do := range []func() error{
		func() error { return tbl.Apply(ctx, "a", m) },
		func() error { _, err := tbl.ReadRow(ctx, "a"); return err },
		func() error { return tbl.Apply(ctx, "a", bigtable.NewCondMutation(bigtable.PassAllFilter(), m, nil)) },
		func() error { _, err := tbl.ApplyReadModifyWrite(ctx, "a", rmw); return err },
	} {
		got = append(got, status.Code(do()).String())
	}
	return strings.Join(got, " ")
}

const (
	allPass       = "OK OK OK OK"
	noTransaction = "OK OK FailedPrecondition FailedPrecondition"
	noneFound     = "NotFound NotFound NotFound NotFound"
)

func expectAttempts(t *testing.T, what string, tbl *bigtable.Table, want string) {
	t.Helper()
	if got := attempts(t, tbl); got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestGoAppProfiles: Google's Go client administers app profiles and uses them, and they survive a restart.
func TestGoAppProfiles(t *testing.T) {
	cfg := node.Config{DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "127.0.0.1:0", Bigtable: "127.0.0.1:0", MemoryBytes: 512 << 20, ExtentBytes: 4 << 20}
	n, err := node.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	defer func() { stop() }()
	_, admin := goClient(t, n)
	createTable(t, admin)
	iac, ctx := instanceAdmin(t, n), t.Context()

	single := &bigtable.SingleClusterRoutingConfig{ClusterID: "stele"}
	made, err := iac.CreateAppProfile(ctx, bigtable.ProfileConf{ProfileID: "batch", InstanceID: instance, Description: "nightly", RoutingConfig: single,
		Isolation: &bigtable.StandardIsolation{Priority: bigtable.AppProfilePriorityLow}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = iac.CreateAppProfile(ctx, bigtable.ProfileConf{ProfileID: "far", InstanceID: instance,
		RoutingConfig: &bigtable.MultiClusterRoutingUseAnyConfig{ClusterIDs: []string{"stele"}, Affinity: &bigtable.RowAffinity{}}})
	expectCode(t, "a profile to any cluster", err, codes.OK)
	_, err = iac.CreateAppProfile(ctx, bigtable.ProfileConf{ProfileID: "batch", InstanceID: instance, RoutingConfig: single})
	expectCode(t, "a profile that exists", err, codes.AlreadyExists)
	_, err = iac.CreateAppProfile(ctx, bigtable.ProfileConf{ProfileID: "boost", InstanceID: instance, RoutingConfig: single, Isolation: &bigtable.DataBoostIsolationReadOnly{}})
	expectCode(t, "data boost", err, codes.Unimplemented)
	if got := profilesListed(t, iac); !slices.Equal(got, []string{"batch", "default", "far"}) {
		t.Errorf("profiles %q", got)
	}
	if got, err := iac.GetAppProfile(ctx, "other", "batch"); err != nil || got.Etag != made.Etag || got.Name != "projects/p/instances/other/appProfiles/batch" {
		t.Errorf("the profile in another name of the instance: %v, %v", got, err)
	}
	batch, far := withProfile(t, n, "batch"), withProfile(t, n, "far")
	expectAttempts(t, "without a profile", withProfile(t, n, ""), allPass)
	expectAttempts(t, "a profile without transactions", batch, noTransaction)
	expectAttempts(t, "a profile to any cluster", far, noTransaction)
	expectAttempts(t, "a profile that does not exist", withProfile(t, n, "absent"), noneFound)
	if page := metricsOf(t, n); !regexp.MustCompile(`(?m)^stele_bigtable_requests_total\{app_profile="batch",method="MutateRow"\} 1$`).MatchString(page) ||
		!regexp.MustCompile(`(?m)^stele_bigtable_errors_total\{app_profile="batch",code="FailedPrecondition"\} 2$`).MatchString(page) || strings.Contains(page, "absent") {
		t.Error("the metrics have not the requests of the profile batch alone")
	}

	if err := iac.UpdateAppProfile(ctx, instance, "batch", bigtable.ProfileAttrsToUpdate{RoutingConfig: &bigtable.SingleClusterRoutingConfig{ClusterID: "stele", AllowTransactionalWrites: true}}); err != nil {
		t.Error(err)
	}
	expectAttempts(t, "a profile with transactions", batch, allPass)
	forbids := bigtable.ProfileAttrsToUpdate{RoutingPolicy: bigtable.SingleClusterRouting, ClusterID: "stele"}
	expectCode(t, "an update with a warning", iac.UpdateAppProfile(ctx, instance, "default", forbids), codes.FailedPrecondition)
	forbids.IgnoreWarnings = true
	expectCode(t, "an update in spite of it", iac.UpdateAppProfile(ctx, instance, "default", forbids), codes.OK)
	before, err := iac.GetAppProfile(ctx, instance, "batch")
	if err != nil || before.Description != "nightly" || before.GetStandardIsolation().GetPriority() != adminpb.AppProfile_PRIORITY_LOW {
		t.Errorf("after an update of the routing: %v, %v", before, err)
	}

	stop()
	if n, err = node.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	iac = instanceAdmin(t, n)
	if after, err := iac.GetAppProfile(ctx, instance, "batch"); err != nil || !proto.Equal(after, before) {
		t.Errorf("after a restart: %v, %v, want %v", after, err, before)
	}
	batch = withProfile(t, n, "batch")
	expectAttempts(t, "the default profile after a restart", withProfile(t, n, ""), noTransaction)
	expectAttempts(t, "a profile after a restart", batch, allPass)
	if err := iac.DeleteAppProfile(ctx, instance, "batch"); err != nil {
		t.Error(err)
	}
	expectCode(t, "the default profile", iac.DeleteAppProfile(ctx, instance, "default"), codes.FailedPrecondition)
	expectAttempts(t, "a deleted profile", batch, noneFound)
	if page := metricsOf(t, n); strings.Contains(page, `"batch"`) {
		t.Error("the metrics have a deleted profile")
	}
}

// metricsOf returns the metrics of a node.
func metricsOf(t *testing.T, n *node.Node) string {
	t.Helper()
	answer, err := http.Get("http://" + n.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestGoSessionsAppProfile: sessions belong to an app profile. When it is deleted, their virtual RPCs fail.
func TestGoSessionsAppProfile(t *testing.T) {
	n := startNode(t)
	_, admin := goClient(t, n)
	createTable(t, admin)
	iac, ctx := instanceAdmin(t, n), t.Context()
	if _, err := iac.CreateAppProfile(ctx, bigtable.ProfileConf{ProfileID: "s", InstanceID: instance, RoutingConfig: &bigtable.SingleClusterRoutingConfig{ClusterID: "stele"}}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BIGTABLE_EMULATOR_HOST", "")
	counted := &counter{}
	c, err := counted.client(ctx, n.BigtableAddr(), "s")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tbl := c.OpenTable(table)
	awaitSessions(t, tbl, counted)
	if err := iac.DeleteAppProfile(ctx, instance, "s"); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err = tbl.ReadRow(limited, "x")
	expectCode(t, "a read in a session of a deleted profile", err, codes.NotFound)
	absent, err := counted.client(limited, n.BigtableAddr(), "absent") // warms its connections up
	if err == nil {
		_, err = absent.OpenTable(table).ReadRow(limited, "x")
		_ = absent.Close()
	}
	expectCode(t, "a client with a profile that does not exist", err, codes.NotFound)
}

// TestSecuredAppProfiles: only administrators of the cluster change app profiles, and all nodes apply a change within seconds.
func TestSecuredAppProfiles(t *testing.T) {
	s := startSecured(t)
	c := s.dial(s.nodes[0], nil)
	asUser := withToken(t.Context(), s.user("ann", "admin", table))
	asAdmin := t.Context()
	user, admin := adminpb.NewBigtableInstanceAdminClient(c), adminpb.NewBigtableInstanceAdminClient(s.dial(s.nodes[0], s.adminID))
	create := &adminpb.CreateAppProfileRequest{Parent: "projects/p/instances/i", AppProfileId: "a", AppProfile: &adminpb.AppProfile{
		RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "stele", AllowTransactionalWrites: true}}}}
	_, err := user.CreateAppProfile(asUser, create)
	expectCode(t, "a user creates a profile", err, codes.PermissionDenied)
	made, err := admin.CreateAppProfile(asAdmin, create)
	if err != nil {
		t.Fatal(err)
	}
	far := proto.Clone(made).(*adminpb.AppProfile)
	far.Etag = ""
	far.RoutingPolicy = &adminpb.AppProfile_MultiClusterRoutingUseAny_{MultiClusterRoutingUseAny: &adminpb.AppProfile_MultiClusterRoutingUseAny{}}
	_, err = user.UpdateAppProfile(asUser, &adminpb.UpdateAppProfileRequest{AppProfile: far, IgnoreWarnings: true})
	expectCode(t, "a user updates a profile", err, codes.PermissionDenied)
	_, err = user.DeleteAppProfile(asUser, &adminpb.DeleteAppProfileRequest{Name: made.Name, IgnoreWarnings: true})
	expectCode(t, "a user deletes a profile", err, codes.PermissionDenied)
	if got, err := user.GetAppProfile(asUser, &adminpb.GetAppProfileRequest{Name: made.Name}); err != nil || !proto.Equal(got, made) {
		t.Errorf("a user reads a profile: %v, %v, want %v", got, err, made)
	}
	_, err = user.ListAppProfiles(t.Context(), &adminpb.ListAppProfilesRequest{Parent: "projects/p/instances/i"})
	expectCode(t, "a stranger lists the profiles", err, codes.Unauthenticated)

	other := bigtablepb.NewBigtableClient(s.dial(s.nodes[1], s.adminID))
	increment := func() error {
		_, err := other.ReadModifyWriteRow(asAdmin, &bigtablepb.ReadModifyWriteRowRequest{TableName: "projects/p/instances/i/tables/" + table, RowKey: []byte("a"), AppProfileId: "a",
			Rules: []*bigtablepb.ReadModifyWriteRule{{FamilyName: "f", ColumnQualifier: []byte("n"), Rule: &bigtablepb.ReadModifyWriteRule_IncrementAmount{IncrementAmount: 1}}}})
		return err
	}
	expectCode(t, "a new profile at the other node", increment(), codes.OK)
	if _, err := admin.UpdateAppProfile(asAdmin, &adminpb.UpdateAppProfileRequest{AppProfile: far, IgnoreWarnings: true}); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "the update of the profile is applied", func() error {
		if err := increment(); status.Code(err) != codes.FailedPrecondition {
			return fmt.Errorf("%v, want FAILED_PRECONDITION", err)
		}
		return nil
	})
}

// within repeats a check until it succeeds.
func within(t *testing.T, d time.Duration, what string, check func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil {
			t.Logf("%s after %v", what, time.Since(began))
			return
		}
		if time.Since(began) > d {
			t.Fatalf("%s: %v after %v", what, err, d)
		}
	}
}
