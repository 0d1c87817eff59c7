package bigtableadmin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// fakeProfiles has app profiles in memory. An etag is the number of the last change.
type fakeProfiles struct {
	all     []client.AppProfile
	changes int
	// interfere, unless it is nil, is called before an update.
	interfere func()
	changed   int // calls of Config.ProfilesChanged
}

func newFakeProfiles() *fakeProfiles {
	return &fakeProfiles{all: []client.AppProfile{{ID: "default", Routing: api.RoutingSingle, Transactional: true, Priority: api.PriorityHigh, Etag: "0"}}}
}

func (f *fakeProfiles) instances(strict bool) *instances {
	return &instances{cfg: Config{StrictLimits: strict, OpenProfiles: func(context.Context) (Profiles, error) { return f, nil }, ProfilesChanged: func() { f.changed++ }}}
}

func (f *fakeProfiles) find(id string) int {
	return slices.IndexFunc(f.all, func(p client.AppProfile) bool { return p.ID == id })
}

func (f *fakeProfiles) List(context.Context) ([]client.AppProfile, error) {
	slices.SortFunc(f.all, func(a, b client.AppProfile) int { return strings.Compare(a.ID, b.ID) })
	return slices.Clone(f.all), nil
}

func (f *fakeProfiles) save(p *client.AppProfile) *client.AppProfile {
	f.changes++
	saved := *p
	saved.Etag = fmt.Sprint(f.changes)
	f.all = append(slices.DeleteFunc(f.all, func(old client.AppProfile) bool { return old.ID == p.ID }), saved)
	return &saved
}

func (f *fakeProfiles) Create(_ context.Context, p *client.AppProfile) (*client.AppProfile, error) {
	if f.find(p.ID) >= 0 {
		return nil, api.ErrAppProfileExists
	}
	return f.save(p), nil
}

func (f *fakeProfiles) Update(_ context.Context, p *client.AppProfile) (*client.AppProfile, error) {
	if f.interfere != nil {
		f.interfere()
	}
	i := f.find(p.ID)
	if i < 0 {
		return nil, api.ErrNoAppProfile
	}
	if p.Etag != f.all[i].Etag {
		return nil, api.ErrAppProfileChanged
	}
	return f.save(p), nil
}

func (f *fakeProfiles) Delete(_ context.Context, id string) error {
	f.all = slices.Delete(f.all, f.find(id), f.find(id)+1)
	return nil
}

const (
	routesToOne = `single_cluster_routing {cluster_id: "stele"}`
	isHigh      = `standard_isolation {priority: PRIORITY_HIGH}`
)

func TestCreateAppProfile(t *testing.T) {
	for _, c := range []struct {
		id, profile string
		want        string // the profile then, or the code
		strict      bool
	}{
		{"a", `description: "d" single_cluster_routing {cluster_id: "stele" allow_transactional_writes: true}`,
			`description: "d" single_cluster_routing {cluster_id: "stele" allow_transactional_writes: true} ` + isHigh, false},
		{"a", routesToOne + ` standard_isolation {priority: PRIORITY_LOW}`, routesToOne + ` standard_isolation {priority: PRIORITY_LOW}`, false},
		{"a", routesToOne + ` priority: PRIORITY_MEDIUM`, routesToOne + ` standard_isolation {priority: PRIORITY_MEDIUM}`, true},
		{"a", `multi_cluster_routing_use_any {}`, `multi_cluster_routing_use_any {} ` + isHigh, false},
		{"a", `multi_cluster_routing_use_any {cluster_ids: "stele" row_affinity {}}`, `multi_cluster_routing_use_any {cluster_ids: "stele" row_affinity {}} ` + isHigh, false},
		{"a", ``, "InvalidArgument", false},
		{"", routesToOne, "InvalidArgument", false},
		{"a/b", routesToOne, "InvalidArgument", false},
		{"..", routesToOne, "InvalidArgument", false},
		{"-a", routesToOne, routesToOne + isHigh, false},
		{"-a", routesToOne, "InvalidArgument", true},
		{strings.Repeat("a", 51), routesToOne, "InvalidArgument", true},
		{strings.Repeat("a", 65), routesToOne, "InvalidArgument", false},
		{"default", routesToOne, "AlreadyExists", false},
		{"a", `single_cluster_routing {cluster_id: "other"}`, "NotFound", false},
		{"a", `multi_cluster_routing_use_any {cluster_ids: ["stele", "other"]}`, "NotFound", false},
		{"a", routesToOne + ` data_boost_isolation_read_only {}`, "Unimplemented", false},
		{"a", routesToOne + ` standard_isolation {priority: 9}`, "InvalidArgument", false},
		{"a", routesToOne + ` description: "` + strings.Repeat("x", 1025) + `"`, "InvalidArgument", false},
	} {
		f := newFakeProfiles()
		s := f.instances(c.strict)
		made, err := s.CreateAppProfile(t.Context(), &adminpb.CreateAppProfileRequest{Parent: parent, AppProfileId: c.id, AppProfile: parse(t, &adminpb.AppProfile{}, c.profile)})
		if err != nil {
			if got := status.Code(err).String(); got != c.want || len(f.all) != 1 || got == "Unimplemented" && !strings.HasSuffix(status.Convert(err).Message(), ".") {
				t.Errorf("%s %s: %v, want %s", c.id, c.profile, err, c.want)
			}
			continue
		}
		want := parse(t, &adminpb.AppProfile{}, c.want+` etag: "1" name: "`+parent+"/appProfiles/"+c.id+`"`)
		got, err := s.GetAppProfile(t.Context(), &adminpb.GetAppProfileRequest{Name: want.Name})
		if err != nil || !proto.Equal(got, want) || !proto.Equal(made, want) || f.changed != 1 {
			t.Errorf("%s %s: %v, %v, %v, want %v; changed %d times", c.id, c.profile, made, got, err, want, f.changed)
		}
	}
}

func TestUpdateAppProfile(t *testing.T) {
	const transacts = `single_cluster_routing {cluster_id: "stele" allow_transactional_writes: true}`
	for _, c := range []struct {
		text string // of the request, without the profile's name
		want string // the profile then, or the code
	}{
		{`app_profile {description: "e"} update_mask {paths: "description"}`, `description: "e" ` + transacts + isHigh},
		{`app_profile {description: "e" standard_isolation {priority: PRIORITY_LOW}} update_mask {paths: "standard_isolation"}`,
			`description: "d" ` + transacts + ` standard_isolation {priority: PRIORITY_LOW}`},
		{`app_profile {` + routesToOne + `} update_mask {paths: "single_cluster_routing"}`, "FailedPrecondition"},
		{`app_profile {` + routesToOne + `} update_mask {paths: "single_cluster_routing"} ignore_warnings: true`, `description: "d" ` + routesToOne + isHigh},
		{`app_profile {single_cluster_routing {}} update_mask {paths: "single_cluster_routing.allow_transactional_writes"} ignore_warnings: true`, `description: "d" ` + routesToOne + isHigh},
		{`app_profile {multi_cluster_routing_use_any {}} update_mask {paths: "multi_cluster_routing_use_any"}`, "FailedPrecondition"},
		{`app_profile {multi_cluster_routing_use_any {}} update_mask {paths: "multi_cluster_routing_use_any"} ignore_warnings: true`,
			`description: "d" multi_cluster_routing_use_any {} ` + isHigh},
		{`app_profile {` + transacts + `}`, transacts + isHigh}, // all fields are replaced
		{`app_profile {}`, "InvalidArgument"},
		{`app_profile {etag: "1" description: "e"} update_mask {paths: "description"}`, `description: "e" ` + transacts + isHigh},
		{`app_profile {etag: "0" description: "e"} update_mask {paths: "description"}`, "Aborted"},
		{`app_profile {etag: "00000000000" description: "e"} update_mask {paths: "description"}`, "Aborted"},
		{`app_profile {} update_mask {paths: "data_boost_isolation_read_only"}`, "Unimplemented"},
		{`app_profile {} update_mask {paths: "state"}`, "InvalidArgument"},
	} {
		f := newFakeProfiles()
		f.save(&client.AppProfile{ID: "a", Description: "d", Routing: api.RoutingSingle, Transactional: true, Priority: api.PriorityHigh})
		s, req, name := f.instances(false), parse(t, &adminpb.UpdateAppProfileRequest{}, c.text), parent+"/appProfiles/a"
		req.AppProfile.Name = name
		op, err := s.UpdateAppProfile(t.Context(), req)
		if err != nil {
			if status.Code(err).String() != c.want || f.changes != 1 {
				t.Errorf("%s: %v, want %s", c.text, err, c.want)
			}
			continue
		}
		want := parse(t, &adminpb.AppProfile{}, c.want+` etag: "2" name: "`+name+`"`)
		var got adminpb.AppProfile
		if err := op.GetResponse().UnmarshalTo(&got); err != nil || !op.Done || !proto.Equal(&got, want) || f.changed != 1 {
			t.Errorf("%s: %v, %v, want %v; changed %d times", c.text, &got, err, want, f.changed)
		}
	}
}

// TestConcurrentUpdate: an update without an etag keeps what another one changes meanwhile, and one with an etag fails.
func TestConcurrentUpdate(t *testing.T) {
	for etag, want := range map[string]string{"": "low", "1": "high"} {
		f := newFakeProfiles()
		f.save(&client.AppProfile{ID: "a", Routing: api.RoutingAny, Priority: api.PriorityHigh})
		f.interfere = func() {
			f.interfere = nil
			f.save(&client.AppProfile{ID: "a", Routing: api.RoutingAny, Priority: want})
		}
		_, err := f.instances(false).UpdateAppProfile(t.Context(), parse(t, &adminpb.UpdateAppProfileRequest{},
			`app_profile {name: "`+parent+`/appProfiles/a" etag: "`+etag+`" description: "e"} update_mask {paths: "description"}`))
		got := f.all[f.find("a")]
		if etag == "" && (err != nil || got.Description != "e") || etag != "" && (status.Code(err) != codes.Aborted || got.Description != "") || got.Priority != want {
			t.Errorf("etag %q: %+v, %v", etag, got, err)
		}
	}
}

func TestListAndDeleteAppProfiles(t *testing.T) {
	f := newFakeProfiles()
	s := f.instances(false)
	for _, id := range []string{"c", "a", "x", "b"} {
		f.save(&client.AppProfile{ID: id, Routing: api.RoutingSingle, Priority: api.PriorityHigh})
	}
	var got []string
	req := &adminpb.ListAppProfilesRequest{Parent: "projects/p/instances/-", PageSize: 2}
	for page := 0; page == 0 || req.PageToken != ""; page++ {
		answer, err := s.ListAppProfiles(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range answer.AppProfiles {
			got = append(got, strings.TrimPrefix(p.Name, "projects/p/instances/default/appProfiles/"))
		}
		req.PageToken = answer.NextPageToken
	}
	if strings.Join(got, " ") != "a b c default x" {
		t.Errorf("profiles %q", got)
	}
	for _, c := range []struct {
		id     string
		ignore bool
		want   codes.Code
	}{
		{"a", false, codes.FailedPrecondition}, {"a", true, codes.OK}, {"a", true, codes.NotFound}, {"default", true, codes.FailedPrecondition}, {"", true, codes.InvalidArgument},
	} {
		_, err := s.DeleteAppProfile(t.Context(), &adminpb.DeleteAppProfileRequest{Name: parent + "/appProfiles/" + c.id, IgnoreWarnings: c.ignore})
		if status.Code(err) != c.want {
			t.Errorf("delete %q, ignore warnings %v: %v, want %v", c.id, c.ignore, err, c.want)
		}
	}
	if f.find("a") >= 0 || len(f.all) != 4 {
		t.Errorf("profiles are %+v", f.all)
	}
}
