package console

import (
	"context"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
)

// clusterRow is a cluster on the page of clusters.
type clusterRow struct {
	Name, State, Sentence string
	Own                   bool // it is this cluster
	Unreachable           bool
	Problems              []string
	Console               string // URL; empty: unknown
	Version               string
	Nodes                 string
	Tablets               string
	Disk                  bar
	DiskKnown             bool
	AtMS                  int64 // when it was asked
}

// clustersPage shows the health of this cluster and of those of the registry.
func clustersPage(ctx context.Context, q *query) (*content, error) {
	all, err := q.Clusters().List(ctx)
	if err != nil {
		return nil, err
	}
	s, err := q.Status(ctx)
	if err != nil {
		return nil, err
	}
	whole := health.Of(ctx, q.Client)
	own := client.ClusterInfo{Name: s.Cluster, Version: s.Version, Nodes: s.Nodes, NodesAlive: s.NodesAlive - int64(len(whole.Unreachable)), Tablets: -1, Console: "/", Problems: whole.Problems()}
	own.State, own.Sentence = health.State(s, whole)
	if whole.Tablets != nil {
		own.Tablets = *whole.Tablets
	}
	if sp := whole.Space; sp != nil {
		own.DiskBytes, own.DiskFree = sp.Total, sp.Free
	}
	rows := []clusterRow{clusterRowOf(&own)}
	rows[0].Own = true
	for i := range all {
		rows = append(rows, clusterRowOf(&all[i]))
	}
	return &content{Title: "Clusters", Template: "clusters.html", Section: "Clusters", Data: rows}, nil
}

func clusterRowOf(x *client.ClusterInfo) clusterRow {
	r := clusterRow{Name: x.Name, State: x.State, Sentence: x.Sentence, Unreachable: x.State == api.ClusterUnreachable, Problems: x.Problems, Console: x.Console,
		Version: x.Version, AtMS: x.AtMS, Nodes: "?", Tablets: "?"}
	if r.Unreachable {
		return r
	}
	r.Nodes = orUnknown(&x.NodesAlive) + " of " + orUnknown(&x.Nodes)
	if x.Tablets >= 0 {
		r.Tablets = orUnknown(&x.Tablets)
	}
	if x.DiskBytes > 0 {
		r.Disk, r.DiskKnown = usedBar(x.DiskBytes-x.DiskFree, x.DiskBytes), true
	}
	return r
}
