package bigtableadmin

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

const hotParent = "projects/p/instances/i/clusters/stele"

// Hot implements Tables.
func (f *fakeCluster) Hot(_ context.Context, r *client.HotTabletsRequest) (*client.HotTabletList, error) {
	f.hot = r
	return &client.HotTabletList{StartMS: 1000, EndMS: 2000, Ops: 200, Tablets: []client.HotTablet{
		{Table: "t", TableID: 17, Start: []byte("a"), End: []byte("b\xff"), Reads: 90, Writes: 10}, {Table: "t", TableID: 17, End: []byte("a"), Reads: 50}, {Table: "u", TableID: 18, Writes: 40},
	}}, nil
}

// TestListHotTablets: pages have all tablets once. Keys are UTF-8, inclusive at both ends, and the share is that of all operations.
func TestListHotTablets(t *testing.T) {
	f := &fakeCluster{tables: map[string]*table.Schema{}}
	s := &instances{cfg: f.service().cfg}
	var all []*adminpb.HotTablet
	req := &adminpb.ListHotTabletsRequest{Parent: hotParent, PageSize: 2}
	for {
		page, err := s.ListHotTablets(t.Context(), req)
		if err != nil || len(page.HotTablets) == 0 {
			t.Fatal(page, err)
		}
		all = append(all, page.HotTablets...)
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d tablets", len(all))
	}
	h := all[0]
	if h.Name != hotParent+"/hotTablets/17-62ff" || h.TableName != "projects/p/instances/i/tables/t" || h.StartKey != "a\x00" || h.EndKey != `b\xff` || h.NodeCpuUsagePercent != 50 ||
		h.StartTime.AsTime() != time.UnixMilli(1000).UTC() || h.EndTime.AsTime() != time.UnixMilli(2000).UTC() {
		t.Errorf("%v", h)
	}
	if all[2].StartKey != "" || all[2].EndKey != "" {
		t.Errorf("a tablet of all rows: %v", all[2])
	}
	if f.hot.Since.Round(time.Second) != hotPeriod || f.hot.UntilMS != 0 || f.hot.Most != api.HotTabletsMax {
		t.Errorf("requested by default: %+v", f.hot)
	}
}

// TestHotTabletsRequests: bad requests are rejected.
func TestHotTabletsRequests(t *testing.T) {
	f := &fakeCluster{}
	s := &instances{cfg: f.service().cfg}
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
	for what, c := range map[string]struct {
		req  *adminpb.ListHotTabletsRequest
		want codes.Code
	}{
		"a bad name":      {&adminpb.ListHotTabletsRequest{Parent: "projects/p"}, codes.InvalidArgument},
		"another cluster": {&adminpb.ListHotTabletsRequest{Parent: "projects/p/instances/i/clusters/c"}, codes.NotFound},
		"a bad size":      {&adminpb.ListHotTabletsRequest{Parent: hotParent, PageSize: -1}, codes.InvalidArgument},
		"a bad page":      {&adminpb.ListHotTabletsRequest{Parent: hotParent, PageToken: "-1"}, codes.InvalidArgument},
		"a bad time":      {&adminpb.ListHotTabletsRequest{Parent: hotParent, StartTime: &timestamppb.Timestamp{Nanos: -1}}, codes.InvalidArgument},
		"inverted":        {&adminpb.ListHotTabletsRequest{Parent: hotParent, StartTime: ago(time.Hour), EndTime: ago(2 * time.Hour)}, codes.InvalidArgument},
		"in the future":   {&adminpb.ListHotTabletsRequest{Parent: hotParent, StartTime: ago(-time.Hour), EndTime: ago(-2 * time.Hour)}, codes.InvalidArgument},
		"too long":        {&adminpb.ListHotTabletsRequest{Parent: hotParent, StartTime: ago(49 * time.Hour)}, codes.InvalidArgument},
		"too long ago":    {&adminpb.ListHotTabletsRequest{Parent: hotParent, StartTime: ago(15 * 24 * time.Hour), EndTime: ago(14 * 24 * time.Hour)}, codes.InvalidArgument},
		"an hour of old":  {&adminpb.ListHotTabletsRequest{Parent: hotParent, StartTime: ago(3 * time.Hour), EndTime: ago(2 * time.Hour)}, codes.OK},
	} {
		if _, err := s.ListHotTablets(t.Context(), c.req); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if f.hot == nil || f.hot.Since.Round(time.Minute) != time.Hour || f.hot.UntilMS == 0 {
		t.Errorf("%+v", f.hot)
	}
}
