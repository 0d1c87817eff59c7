package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/cmd/stele/cli"
)

// clusterTimeout bounds the requests for the status of other nodes; what has not arrived by then is
// reported as unknown. A node waits 3 s for another node's part of the block store.
const clusterTimeout = 5 * time.Second

// clusterStatus is the state of the cluster as one node sees it.
type clusterStatus struct {
	Nodes []clusterNode `json:"nodes"`
	// The numbers of tablets in METADATA, including its own. Nil if METADATA cannot be read.
	Tablets    *int64   `json:"tablets"`
	Unassigned *int64   `json:"unassigned"`
	Recovering *int64   `json:"recovering"` // tablets that wait for commit logs of dead servers
	Recoveries []string `json:"recoveries"` // these servers
	// Unserved is the number of tablets that no server has served for some seconds, as the master
	// reports it.
	Unserved        *int64         `json:"unserved"`
	UnservedTablets []unservedJSON `json:"unserved_tablets"`
	Under           *int64         `json:"under_replicated"`
	Unknown         []string       `json:"unknown"` // missing information, each with the cause
	// Unreachable lists the nodes that membership lists as alive and that did not answer.
	Unreachable []unreachableNode `json:"unreachable"`
	UsedUp      []exhaustedQuota  `json:"used_up_quotas"`
}

// unreachableNode is a node that membership lists as alive and that did not answer.
type unreachableNode struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Error string `json:"error"`
	// AliveForS is the time in seconds since membership listed the node as alive. Membership takes
	// some seconds to detect a failure.
	AliveForS float64 `json:"alive_for_s"`
}

// exhaustedQuota is a quota of bytes without capacity left.
type exhaustedQuota struct {
	Of    string `json:"of"` // table or user
	Name  string `json:"name"`
	Used  int64  `json:"used_bytes"`
	Limit int64  `json:"limit_bytes"`
}

// clusterNode is a node with its tablets and its part of the block store. What is unknown is nil.
type clusterNode struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	// StateForS is the time in seconds that the node has been in this state, by membership.
	StateForS float64 `json:"state_for_s"`
	Voter     bool    `json:"voter"`
	Leader    bool    `json:"leader"`
	Master    bool    `json:"master"`
	Draining  bool    `json:"draining"`
	Load      float64 `json:"load"`
	Tablets   *int64  `json:"tablets"`
	Bytes     *int64  `json:"bytes"` // of replicas that it holds
	Under     *int64  `json:"under_replicated"`
}

// clusterOf returns the status of the cluster. What cannot be read within clusterTimeout is nil, and
// listed in Unknown.
func clusterOf(ctx context.Context, c *client.Client) *clusterStatus {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var nodes []client.NodeInfo
	var store *client.StoreStatus
	x := &clusterStatus{Nodes: []clusterNode{}, Recoveries: []string{}, UnservedTablets: []unservedJSON{}, Unknown: []string{}, Unreachable: []unreachableNode{}, UsedUp: []exhaustedQuota{}}
	held := map[string]int64{}
	var unserved *client.UnservedTablets
	var quotas []client.Quota
	var nodesErr, storeErr, tabletsErr, unservedErr, quotasErr error
	var requests sync.WaitGroup
	requests.Go(func() {
		if nodes, nodesErr = c.Nodes().List(ctx); nodesErr == nil {
			markLeader(ctx, c, nodes)
		}
	})
	requests.Go(func() { store, storeErr = c.BlockStore().Status(ctx) })
	requests.Go(func() { unserved, unservedErr = c.Tablets().Unserved(ctx) })
	requests.Go(func() { quotas, quotasErr = c.Quotas().List(ctx) })
	requests.Go(func() { tabletsErr = x.countTablets(ctx, c, held) })
	requests.Wait()
	x.unknown("list of nodes", nodesErr)
	x.unknown("placement of tablets: METADATA does not answer", tabletsErr)
	x.unknown("unserved tablets", unservedErr)
	x.unknown("state of the block store", storeErr)
	if !errors.Is(quotasErr, client.ErrPermission) { // without the right to see quotas, report none
		x.unknown("exhausted quotas", quotasErr)
	}
	x.addQuotas(quotas)
	if unservedErr == nil {
		x.addUnserved(unserved)
	}
	for i := range nodes {
		n := &nodes[i]
		j := clusterNode{ID: n.ID, Name: cli.NodeName(n), State: n.State, StateForS: n.SinceSeconds, Voter: n.Voter, Leader: n.Leader, Master: n.Master, Draining: n.Draining, Load: n.Load}
		if tabletsErr == nil {
			count := held[n.ID]
			j.Tablets = &count
		}
		x.Nodes = append(x.Nodes, j)
	}
	if storeErr == nil {
		x.addStore(store)
	}
	return x
}

func (x *clusterStatus) unknown(what string, err error) {
	if err != nil {
		x.Unknown = append(x.Unknown, what+": "+err.Error())
	}
}

// countTablets reads METADATA, and counts the tablets of each node.
func (x *clusterStatus) countTablets(ctx context.Context, c *client.Client, held map[string]int64) error {
	all, unassigned, recovering := int64(0), int64(0), int64(0)
	s := c.Table(metadata.Name).Scan(ctx, client.Filter(metadata.Places()))
	defer s.Close()
	for s.Next() {
		all++
		r, err := metadata.Decode(s.Row())
		if err != nil {
			unassigned++
			x.unknown("placement of a tablet", err)
			continue
		}
		if r.Unassigned() {
			unassigned++
		}
		if len(r.Recoveries) > 0 {
			recovering++
		}
		x.addRecoveries(r.Recoveries)
		node, _, _ := strings.Cut(r.Server, ".")
		held[node]++
	}
	if err := s.Err(); err != nil {
		return err
	}
	x.Tablets, x.Unassigned, x.Recovering = &all, &unassigned, &recovering
	return nil
}

// addRecoveries adds the dead servers whose commit logs a tablet waits for.
func (x *clusterStatus) addRecoveries(servers []string) {
	for _, dead := range servers {
		if !slices.Contains(x.Recoveries, dead) {
			x.Recoveries = append(x.Recoveries, dead)
		}
	}
}

// addStore adds the nodes' reports on their parts of the block store.
func (x *clusterStatus) addStore(s *client.StoreStatus) {
	under := int64(0)
	var counting []string
	for i := range s.Nodes {
		p := &s.Nodes[i]
		at := slices.IndexFunc(x.Nodes, func(n clusterNode) bool { return n.ID == p.Node })
		if p.Error != "" {
			if at >= 0 && x.Nodes[at].State == api.NodeAlive {
				x.Unreachable = append(x.Unreachable, unreachableNode{p.Node, p.Name, p.Error, x.Nodes[at].StateForS})
				x.Unknown = append(x.Unknown, fmt.Sprintf("state of the block store on node %s: %s", p.Name, p.Error))
			}
			continue
		}
		if at >= 0 {
			x.Nodes[at].Bytes = &p.Bytes
		}
		if !p.Known {
			counting = append(counting, p.Name)
			continue
		}
		under += p.Under
		if at >= 0 {
			x.Nodes[at].Under = &p.Under
		}
	}
	if len(counting) > 0 {
		x.Unknown = append(x.Unknown, "number of under-replicated extents: "+strings.Join(counting, ", ")+" "+cli.StillCounting)
		return
	}
	x.Under = &under
}

// addQuotas adds the quotas of bytes that are exhausted. Rate quotas refill, so they are left out.
func (x *clusterStatus) addQuotas(quotas []client.Quota) {
	for i := range quotas {
		q := &quotas[i]
		for _, b := range q.Bounds {
			if b.Kind == api.QuotaBytes && b.Used >= b.Limit {
				x.UsedUp = append(x.UsedUp, exhaustedQuota{q.Of, q.Name, b.Used, b.Limit})
			}
		}
	}
}

// grid returns the table of nodes.
func (x *clusterStatus) grid() *cli.Grid {
	counted := func(n int64) cli.Number { return cli.Count(n) }
	g := cli.NewGrid("NODE", "STATE", "ROLE", "TABLETS", "REPLICAS", "UNDER", "LOAD")
	orUnknown := func(n *int64, format func(int64) cli.Number) cli.Number {
		if n == nil {
			return "?"
		}
		return format(*n)
	}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		state := n.State
		if slices.ContainsFunc(x.Unreachable, func(u unreachableNode) bool { return u.ID == n.ID }) {
			state = "no answer"
		}
		if n.Draining {
			state += ", draining"
		}
		role := nodeRole(&client.NodeInfo{Voter: n.Voter, Leader: n.Leader, Master: n.Master})
		g.Add(n.Name, state, role, orUnknown(n.Tablets, counted), orUnknown(n.Bytes, cli.Size), orUnknown(n.Under, counted), cli.FormatLoad(n.Load))
	}
	return g
}

// problemLines returns a line for each problem of tablets, nodes and quotas, and for each unknown.
func (x *clusterStatus) problemLines() (all []string) {
	all = x.unservedLines()
	if x.Unassigned != nil && *x.Unassigned > x.unserved() {
		all = append(all, fmt.Sprintf("%s of %s unassigned: the master is assigning them", cli.FormatCount(*x.Unassigned), cli.Plural(*x.Tablets, "tablet")))
	}
	for i := range x.Nodes {
		if n := &x.Nodes[i]; n.State != api.NodeAlive && n.Tablets != nil && *n.Tablets > 0 {
			all = append(all, fmt.Sprintf("%s on node %s, which is %s: the master reassigns them when the node's lease has expired", cli.Plural(*n.Tablets, "tablet"), n.Name, n.State))
		}
	}
	if x.Recovering != nil && *x.Recovering > 0 {
		all = append(all, fmt.Sprintf("%s recovering from the commit logs of %s", cli.Plural(*x.Recovering, "tablet"), strings.Join(x.Recoveries, ", ")))
	}
	for _, n := range x.Unreachable {
		all = append(all, fmt.Sprintf("node %s does not answer; membership has listed it as alive for %v, and takes some seconds to detect a failure",
			n.Name, time.Duration(n.AliveForS*float64(time.Second)).Round(time.Second)))
	}
	for _, q := range x.UsedUp {
		all = append(all, fmt.Sprintf("the quota of %s %s is exhausted: %s of %s; only deletions are accepted", q.Of, q.Name, cli.FormatSize(q.Used), cli.FormatSize(q.Limit)))
	}
	for _, u := range x.Unknown {
		all = append(all, "unknown: "+u)
	}
	return all
}
