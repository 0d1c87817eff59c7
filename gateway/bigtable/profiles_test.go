package bigtable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// fakeSource has app profiles, and counts how often they are read.
type fakeSource struct {
	mu    sync.Mutex
	all   []client.AppProfile
	err   error
	takes time.Duration
	reads int
}

func newFakeSource(ids ...string) *fakeSource {
	f := &fakeSource{}
	f.set(ids...)
	return f
}

func (f *fakeSource) set(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = []client.AppProfile{{ID: "default", Routing: api.RoutingSingle, Transactional: true}}
	for _, id := range ids {
		f.all = append(f.all, client.AppProfile{ID: id, Routing: api.RoutingSingle})
	}
}

func (f *fakeSource) read(ctx context.Context) ([]client.AppProfile, error) {
	f.mu.Lock()
	f.reads++
	all, err, takes := f.all, f.err, f.takes
	f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return all, err
}

func (f *fakeSource) fail(err error, takes time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.takes = err, takes
}

// TestProfilesFresh: a request reads the profiles only if those that the node has are too old, or do not have the one that it names.
func TestProfilesFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSource("a")
		var p profiles
		p.init(f.read)
		expect := func(what, id string, want codes.Code, reads int) {
			t.Helper()
			if _, err := p.of(t.Context(), id); status.Code(err) != want || f.reads != reads {
				t.Errorf("%s: %v after %d reads, want %v after %d", what, err, f.reads, want, reads)
			}
		}
		expect("the first request", "", codes.OK, 1)
		for range 1000 {
			expect("another request", "a", codes.OK, 1)
		}
		expect("absent", "b", codes.NotFound, 1)
		time.Sleep(profilesMissed)
		for range 1000 {
			expect("absent for long", "b", codes.NotFound, 2)
		}
		f.set("a", "b")
		expect("new", "b", codes.NotFound, 2)
		time.Sleep(profilesMissed)
		expect("new, after a moment", "b", codes.OK, 3)
		f.set("b")
		time.Sleep(profilesFresh - 1)
		expect("deleted", "a", codes.OK, 3)
		time.Sleep(1)
		expect("deleted long ago", "a", codes.NotFound, 4)
		f.set("b", "c")
		s := Service{}
		s.profiles.init(f.read)
		if _, err := s.profiles.of(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		f.set("c")
		s.ProfilesChanged()
		if _, err := s.profiles.of(t.Context(), "b"); status.Code(err) != codes.NotFound {
			t.Errorf("deleted by this node: %v", err)
		}
	})
}

// TestProfilesUnknown: while the profiles cannot be read, those of the last read count for profilesMax. Then requests fail, with a code for which clients repeat them.
func TestProfilesUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSource("a")
		var p profiles
		p.init(f.read)
		if _, err := p.of(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(profilesFresh)
		f.fail(errors.New("no leader"), 0)
		for range 1000 {
			if _, err := p.of(t.Context(), "a"); err != nil || f.reads != 2 {
				t.Fatalf("%v after %d reads, of which one has failed", err, f.reads)
			}
		}
		f.fail(nil, 0)
		time.Sleep(profilesWait)
		if _, err := p.of(t.Context(), "a"); err != nil || f.reads != 3 {
			t.Fatalf("%v after %d reads", err, f.reads)
		}
		f.fail(errors.New("no leader"), time.Hour)
		began := time.Now()
		for i := 0; time.Since(began) < profilesMax-time.Second; i++ {
			at := time.Now()
			if _, err := p.of(t.Context(), "a"); err != nil || time.Since(at) > profilesWait {
				t.Fatalf("after %v: %v in %v", time.Since(began), err, time.Since(at))
			}
			time.Sleep(time.Second / 10)
		}
		if most := int(profilesMax / profilesWait); f.reads > most {
			t.Errorf("%d reads in %v", f.reads, profilesMax)
		}
		time.Sleep(time.Second)
		var waiting sync.WaitGroup
		at := time.Now()
		for range 100 {
			waiting.Go(func() {
				if _, err := p.of(t.Context(), "a"); status.Code(err) != codes.Unavailable || len(status.Convert(err).Details()) == 0 {
					t.Errorf("%v, want UNAVAILABLE with a RetryInfo", err)
				}
			})
		}
		waiting.Wait()
		if took := time.Since(at); took > 2*profilesTimeout {
			t.Errorf("100 requests failed in %v", took)
		}
		f.fail(nil, 0)
		if _, err := p.of(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

// TestProfileChangedDuringRead: a read that began before a change of this node does not count for requests after it.
func TestProfileChangedDuringRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSource("a")
		s := Service{}
		s.profiles.init(f.read)
		f.fail(nil, time.Second)
		var first sync.WaitGroup
		first.Go(func() { _, _ = s.profiles.of(t.Context(), "a") })
		time.Sleep(time.Second / 2)
		f.set()
		s.ProfilesChanged()
		first.Wait()
		if _, err := s.profiles.of(t.Context(), "a"); status.Code(err) != codes.NotFound {
			t.Errorf("a profile that was deleted before: %v", err)
		}
	})
}

// oneAnswer is a stream of a call with one answer.
type oneAnswer struct {
	grpc.ServerStream
	ctx context.Context
}

func (s oneAnswer) Context() context.Context { return s.ctx }

func (s oneAnswer) SetHeader(metadata.MD) error { return nil }

// TestProfileOfRequests: all methods of the data API reject a profile that does not exist, and those that need more than it allows. Requests are
// counted for the profile, with at most as many labels as there are profiles.
func TestProfileOfRequests(t *testing.T) {
	f := newFakeSource("one")
	f.all = append(f.all, client.AppProfile{ID: "any", Routing: api.RoutingAny})
	table := &fakeTable{errs: map[string]error{}}
	s := New(Config{Profiles: f.read, Open: func(context.Context, string, string) (Table, error) { return table, nil }})
	for _, c := range []struct{ profile, codes string }{
		{"", "OK OK OK OK OK"}, {"default", "OK OK OK OK OK"}, {"one", "OK OK FailedPrecondition FailedPrecondition OK"},
		{"any", "OK OK FailedPrecondition FailedPrecondition OK"}, {"absent", "NotFound NotFound NotFound NotFound NotFound"},
	} {
		var got []string
		for i, do := range []func(ctx context.Context) error{
			func(ctx context.Context) error {
				_, err := s.PingAndWarm(ctx, &bigtablepb.PingAndWarmRequest{Name: "projects/p/instances/i", AppProfileId: c.profile})
				return err
			},
			func(ctx context.Context) error {
				_, err := s.MutateRow(ctx, &bigtablepb.MutateRowRequest{TableName: tableName, RowKey: []byte("a"), Mutations: []*bigtablepb.Mutation{set(1000)}, AppProfileId: c.profile})
				return err
			},
			func(ctx context.Context) error {
				_, err := s.CheckAndMutateRow(ctx, &bigtablepb.CheckAndMutateRowRequest{TableName: tableName, RowKey: []byte("a"), TrueMutations: []*bigtablepb.Mutation{set(1000)}, AppProfileId: c.profile})
				return err
			},
			func(ctx context.Context) error {
				_, err := s.ReadModifyWriteRow(ctx, &bigtablepb.ReadModifyWriteRowRequest{TableName: tableName, RowKey: []byte("a"), AppProfileId: c.profile})
				return err
			},
			func(ctx context.Context) error {
				_, err := s.GetClientConfiguration(ctx, &bigtablepb.GetClientConfigurationRequest{InstanceName: "projects/p/instances/i", AppProfileId: c.profile})
				return err
			},
		} {
			method := []string{"PingAndWarm", "MutateRow", "CheckAndMutateRow", "ReadModifyWriteRow", "GetClientConfiguration"}[i]
			info := &grpc.StreamServerInfo{FullMethod: "/google.bigtable.v2.Bigtable/" + method}
			err := s.Stream(nil, oneAnswer{ctx: t.Context()}, info, func(_ any, stream grpc.ServerStream) error { return do(stream.Context()) })
			got = append(got, status.Code(err).String())
		}
		if strings.Join(got, " ") != c.codes {
			t.Errorf("profile %q: %v, want %v", c.profile, got, c.codes)
		}
	}
	if err := s.profile(t.Context(), "any", useOfChanges); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a change stream to any cluster: %v", err)
	}
	s.ProfilesChanged() // counts stay when the profiles are read again
	if err := s.profile(t.Context(), "one", useAny); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	for _, r := range s.Requests() {
		n := int64(0)
		for _, m := range r.Methods {
			n += m.Requests
		}
		got[r.Profile] = fmt.Sprintf("%d in %d methods, %v", n, len(r.Methods), r.Errors)
	}
	want := map[string]string{"default": "10 in 5 methods, map[]", "one": "5 in 5 methods, map[FailedPrecondition:2]", "any": "5 in 5 methods, map[FailedPrecondition:2]",
		NoProfile: "5 in 5 methods, map[NotFound:5]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// BenchmarkProfile measures the lookup of each request.
func BenchmarkProfile(b *testing.B) {
	var p profiles
	p.init(newFakeSource("a").read)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.of(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}
