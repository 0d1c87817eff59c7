package bigtable

import (
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
)

// TestSecuredHotTablets: a user sees the hot tablets of the tables that the user may read as a whole, with the operations on the nodes of all of them.
func TestSecuredHotTablets(t *testing.T) {
	s := startSecured(t)
	for user, c := range map[string]struct {
		rights, on string
		want       int
	}{"none": {}, "monitor": {"monitor", "", 0}, "writer": {"write", table, 0}, "reader": {"read", table, 2}, "other": {"read", "hidden", 0}, "cluster": {"read", "", 2}} {
		ctx, conn := withToken(t.Context(), s.user(user, c.rights, c.on)), s.dial(s.nodes[1], nil)
		list, err := adminpb.NewBigtableInstanceAdminClient(conn).ListHotTablets(ctx, &adminpb.ListHotTabletsRequest{Parent: "projects/p/instances/i/clusters/stele"})
		if err != nil || len(list.HotTablets) != c.want {
			t.Errorf("%s: %v, %v", user, list, err)
			continue
		}
		sum := float32(0)
		for _, h := range list.HotTablets {
			if sum += h.NodeCpuUsagePercent; h.TableName != "projects/p/instances/i/tables/"+table {
				t.Errorf("%s: %v", user, h)
			}
		}
		if c.want > 0 && sum != 100 {
			t.Errorf("%s: %v in sum", user, sum)
		}
	}
}
