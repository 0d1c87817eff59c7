package health

import (
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// TestForecast: the disks of the nodes that are alive are added up. When they will be full is foretold for 24 times the period in which
// their growth was observed, and a problem in the last week.
func TestForecast(t *testing.T) {
	const gib, day, week = int64(1) << 30, 24 * 3600, 7 * 24 * 3600
	node := func(free, growth, over int64) client.NodeInfo {
		return client.NodeInfo{State: api.NodeAlive, CapacityBytes: 100 * gib, FreeBytes: free, DiskGrowthBytes: growth, DiskGrowthOverS: over}
	}
	dead := node(0, 100*gib, day)
	dead.State = api.NodeDead
	for _, x := range []struct {
		nodes    []client.NodeInfo
		forecast string
		problem  bool
	}{
		{nil, "", false},
		{[]client.NodeInfo{node(50*gib, 0, 0)}, "", false},
		{[]client.NodeInfo{node(50*gib, -gib, week)}, "", false},
		{[]client.NodeInfo{node(50*gib, gib, week), node(30*gib, gib, week), dead}, "full in 40 days at the growth of the last week, 2 GiB a day", false},
		{[]client.NodeInfo{node(10*gib, 2*gib, day), node(2*gib, 2*gib, week)}, "full in 3 days at the growth of the last day, 4 GiB a day", true},
		{[]client.NodeInfo{node(gib, 24*gib, 3600)}, "full in 60 minutes at the growth of the last hour, 24 GiB a day", true},
		{[]client.NodeInfo{node(10*gib, 20*gib, 3600)}, "full in 12 hours at the growth of the last hour, 20 GiB a day", true},
		{[]client.NodeInfo{node(50*gib, 24*gib, 3600)}, "", false}, // in two days, of which an hour foretells nothing
	} {
		s := spaceOf(x.nodes)
		if got := s.Forecast(); got != x.forecast {
			t.Errorf("forecast %q, want %q", got, x.forecast)
		}
		if p := s.problem(); (p != "") != x.problem || x.problem && !strings.Contains(p, x.forecast) {
			t.Errorf("%s: problem %q", x.forecast, p)
		}
	}
}
