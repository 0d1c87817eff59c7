package console

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

// nodeRow is a node in a table.
type nodeRow struct {
	client.NodeInfo
	Label                    string // its name, or its id
	Look                     string // good, warn or bad
	StateText, Role          string
	Tablets, Replicas, Under string
	TabletsText              string // such as "2 tablets"; empty: unknown
	Log                      string // 99th percentile of its log replicas
	Disk                     bar
	Lately                   lately
	Down                     string // what to do about a node that is down
}

// nodeTable is a table of nodes.
type nodeTable []nodeRow

// nodeTableOf joins what membership and the cluster's parts know of nodes, sorted by name.
func nodeTableOf(whole *health.Cluster, nodes []client.NodeInfo, activity map[string]*client.Activity) nodeTable {
	var all nodeTable
	for i := range nodes {
		n := nodeRow{NodeInfo: nodes[i], Label: health.NameOf(&nodes[i]), Role: strings.ReplaceAll(health.Role(&nodes[i]), ",", ", ")}
		n.look()
		n.Lately = latelyOf(activity[n.ID])
		n.Tablets, n.Replicas, n.Under = "?", "?", "?"
		n.Log = "–"
		if at := slices.IndexFunc(whole.Nodes, func(h health.Node) bool { return h.ID == n.ID }); at >= 0 {
			h := &whole.Nodes[at]
			n.Down = h.Problem()
			if h.Tablets != nil {
				n.TabletsText = text.Plural(*h.Tablets, "tablet")
			}
			if h.LogP99US != nil {
				n.Log = text.Millis(float64(*h.LogP99US) / 1000)
			}
			n.Tablets, n.Replicas, n.Under = orUnknown(h.Tablets), sizeOrUnknown(h.Bytes), orUnknown(h.Under)
			n.Role = strings.ReplaceAll(health.Role(&client.NodeInfo{Voter: h.Voter, Leader: h.Leader, Master: h.Master}), ",", ", ")
		}
		if slices.ContainsFunc(whole.Unreachable, func(u health.UnreachableNode) bool { return u.ID == n.ID }) {
			n.StateText, n.Look = "no answer", "bad"
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b nodeRow) int { return strings.Compare(a.Label+a.ID, b.Label+b.ID) })
	return all
}

// look sets how the state and the figures of a node look.
func (n *nodeRow) look() {
	n.StateText, n.Look = n.State, "good"
	switch {
	case n.State == api.NodeDead:
		n.Look = "bad"
	case n.State != api.NodeAlive:
		n.Look = "warn"
	case n.Draining:
		n.Look, n.StateText = "warn", "draining"
	}
	n.Disk = usedBar(n.CapacityBytes-n.FreeBytes, n.CapacityBytes)
}

// Down returns what to do about each node that is down.
func (t nodeTable) Down() (all []string) {
	for i := range t {
		if t[i].Down != "" {
			all = append(all, t[i].Down)
		}
	}
	return all
}

// nodesPage shows all nodes.
func nodesPage(ctx context.Context, q *query) (*content, error) {
	nodes, err := q.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	return &content{Title: "Nodes", Template: "nodes.html", Section: "Nodes", Data: nodeTableOf(health.Of(ctx, q.Client), nodes, activityOf(ctx, q.Client, nodes))}, nil
}

// nodeView is what the page of a node shows.
type nodeView struct {
	nodeRow
	Status *client.Status // nil: the node does not answer
	Error  string
	Disks  []diskRow
	Charts []chart
	Hot    []hotRow // the busiest tablets here that the user may read
}

// diskRow is a disk of a node.
type diskRow struct {
	client.DiskStatus
	Bar bar
}

// nodePage shows one node.
func nodePage(ctx context.Context, q *query) (*content, error) {
	nodes, err := q.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	n, err := api.FindNode(nodes, q.r.PathValue("node"))
	if err != nil {
		return nil, err
	}
	all := nodeTableOf(health.Of(ctx, q.Client), nodes, nil)
	x := &nodeView{nodeRow: all[slices.IndexFunc(all, func(r nodeRow) bool { return r.ID == n.ID })]}
	s, err := q.Nodes().Status(ctx, n.RPC)
	if err != nil {
		x.Error = err.Error()
	} else {
		x.Status = s
		x.Hot = ratesOf(ctx, q.Client).onNode(x.Label)
		x.Charts = chartsOf(sumOf(activityOf(ctx, q.Client, []client.NodeInfo{*n})))
		for _, d := range s.Disks {
			x.Disks = append(x.Disks, diskRow{d, usedBar(d.TotalBytes-d.FreeBytes, d.TotalBytes)})
		}
	}
	return &content{Title: "Node " + x.Label, Template: "node.html", Section: "Nodes", Data: x}, nil
}

// requestsAtOnce bounds the requests to nodes at once for one page.
const requestsAtOnce = 16

// eachNode calls do for all nodes that are alive, for several at once, and returns the errors.
func eachNode(nodes []client.NodeInfo, do func(*client.NodeInfo) error) error {
	var calls sync.WaitGroup
	places := make(chan struct{}, requestsAtOnce)
	errs := make([]error, len(nodes))
	for i := range nodes {
		if nodes[i].State == api.NodeAlive {
			places <- struct{}{}
			calls.Go(func() {
				defer func() { <-places }()
				errs[i] = do(&nodes[i])
			})
		}
	}
	calls.Wait()
	return errors.Join(errs...)
}

// onePermission returns one of the errors of several nodes, which reject a user for the same reason.
func onePermission(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range all.Unwrap() {
			if errors.Is(e, client.ErrPermission) {
				return e
			}
		}
	}
	return err
}
