package health

import (
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// fullSoon is how long before disks are full that is a problem: time enough to buy others.
const fullSoon = 7 * 24 * time.Hour

// spaceOf adds up the disks of nodes. It is nil if no node is alive.
func spaceOf(nodes []client.NodeInfo) *Space {
	x := Space{}
	for i := range nodes {
		n := &nodes[i]
		if n.State != api.NodeAlive {
			continue
		}
		x.Total, x.Free = x.Total+n.CapacityBytes, x.Free+n.FreeBytes
		if n.DiskGrowthOverS > 0 {
			x.GrowthPerDay += n.DiskGrowthBytes
			if x.OverS == 0 || n.DiskGrowthOverS < x.OverS {
				x.OverS = n.DiskGrowthOverS
			}
		}
	}
	if x.Total == 0 {
		return nil
	}
	if in, known := api.FullIn(x.Free, x.GrowthPerDay, time.Duration(x.OverS)*time.Second); known {
		s := in.Seconds()
		x.FullInS = &s
	}
	return &x
}

// failedDisks returns a line for each data folder of a node that has failed: which, since when, why, and what to do.
func (x *Cluster) failedDisks() (lines []string) {
	for i := range x.Nodes {
		n := &x.Nodes[i]
		for _, d := range n.FailedDisks {
			lines = append(lines, fmt.Sprintf("data folder %s of node %s failed %s ago: %s; the node writes to it no more, and its replicas are restored on other disks: "+
				"check or replace the disk, then restart the node", d.Path, n.Name, text.Uptime(time.Duration(d.FailedForS*float64(time.Second))), d.Error))
		}
	}
	return lines
}

// Forecast returns when the disks are full, by which growth; "" if they do not fill in the time that can be foretold.
func (x *Space) Forecast() string {
	if x == nil || x.FullInS == nil {
		return ""
	}
	over := map[int64]string{3600: "hour", 24 * 3600: "day"}[x.OverS]
	if over == "" {
		over = "week"
	}
	return fmt.Sprintf("full in %s at the growth of the last %s, %s a day", roughly(*x.FullInS), over, text.Size(x.GrowthPerDay))
}

// roughly formats a forecast, in seconds.
func roughly(s float64) string {
	const hour, day = 3600, 24 * 3600
	switch {
	case s >= 3*day:
		return text.Plural(int64(s/day), "day")
	case s >= 3*hour:
		return text.Plural(int64(s/hour), "hour")
	}
	return text.Plural(int64(s/60), "minute")
}

// problem returns a line if disks are full soon, else "".
func (x *Space) problem() string {
	if x == nil || x.FullInS == nil || *x.FullInS > fullSoon.Seconds() {
		return ""
	}
	return "the disks of the cluster will be " + x.Forecast() + ": add nodes or disks, or delete data"
}
