package health

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
)

// clusterTimeout bounds the requests for the status of other nodes; what has not arrived by then is
// reported as unknown. A node waits 3 s for another node's part of the block store.
const clusterTimeout = 5 * time.Second

// Cluster is the state of the cluster as one node sees it.
type Cluster struct {
	Nodes []Node `json:"nodes"`
	// The numbers of tablets in METADATA, including its own. Nil if METADATA cannot be read, or not as a whole.
	Tablets    *int64   `json:"tablets"`
	Unassigned *int64   `json:"unassigned"`
	Recovering *int64   `json:"recovering"` // tablets that wait for commit logs of dead servers
	Recoveries []string `json:"recoveries"` // these servers
	// Unserved is the number of tablets that no server has served for some seconds, as the master
	// reports it.
	Unserved        *int64                  `json:"unserved"`
	UnservedTablets []client.UnservedTablet `json:"-"`
	Under           *int64                  `json:"under_replicated"`
	// LogUnder is the number of sealed extents of commit logs with too few replicas. They get no new ones: tablets write their data to
	// other files, and then they are removed.
	LogUnder *int64   `json:"log_under_replicated"`
	Unknown  []string `json:"unknown"` // missing information, each with the cause
	// Hidden is what the user has no right to see. It is not counted as a problem.
	Hidden []string `json:"hidden"`
	// Unreachable lists the nodes that membership lists as alive and that did not answer.
	Unreachable []UnreachableNode `json:"unreachable"`
	UsedUp      []ExhaustedQuota  `json:"used_up_quotas"`
	Space       *Space            `json:"disk_space"` // nil if unknown
	// Schedules are those of backups that fail.
	Schedules []FailedSchedule `json:"failed_schedules"`
	// Replications are those with a table that fails, or lags by more than a minute.
	Replications []FailedReplication `json:"failed_replications"`
}

// Space is the space on the disks of all nodes that are alive, in bytes.
type Space struct {
	Total int64 `json:"total_bytes"`
	Free  int64 `json:"free_bytes"`
	// GrowthPerDay is by how much the used space grows in a day, as it did in the last OverS seconds; 0 of them if that is not known.
	GrowthPerDay int64 `json:"growth_bytes"`
	OverS        int64 `json:"growth_over_s"`
	// FullInS is when the disks are full if it goes on so, in seconds; nil if they do not fill, or not within 24 times OverS.
	FullInS *float64 `json:"full_in_s"`
}

// UnreachableNode is a node that membership lists as alive and that did not answer.
type UnreachableNode struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Error string `json:"error"`
	// AliveForS is the time in seconds since membership listed the node as alive. Membership takes
	// some seconds to detect a failure.
	AliveForS float64 `json:"alive_for_s"`
}

// ExhaustedQuota is a quota of bytes without capacity left.
type ExhaustedQuota struct {
	Of    string `json:"of"` // table or user
	Name  string `json:"name"`
	Used  int64  `json:"used_bytes"`
	Limit int64  `json:"limit_bytes"`
}

// FailedSchedule is a schedule whose last backup has failed, or could not be begun, or leaves tables out.
type FailedSchedule struct {
	Name     string `json:"name"`
	Failures int64  `json:"failures"` // since the last good backup
	Error    string `json:"error"`
	GoodMS   int64  `json:"good_ms"` // when the last good backup was requested; 0: there is none
}

// Node is a node with its tablets and its part of the block store. What is unknown is nil.
type Node struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	// StateForS is the time in seconds that the node has been in this state, by membership.
	StateForS float64 `json:"state_for_s"`
	// Reason is the error with which a node that left ended by itself. Empty: it was stopped.
	Reason   string `json:"reason,omitempty"`
	Voter    bool   `json:"voter"`
	Leader   bool   `json:"leader"`
	Master   bool   `json:"master"`
	Draining bool   `json:"draining"`
	// Silence is why a node that is dead or unknown does not answer requests. Empty: it was not asked, or it answers.
	Silence string `json:"silence,omitempty"`
	// Answers means that a node that membership lists as dead answers requests.
	Answers bool   `json:"answers,omitempty"`
	Tablets *int64 `json:"tablets"`
	Bytes   *int64 `json:"bytes"` // of replicas that it holds
	Under   *int64 `json:"under_replicated"`
	// LogP99US is the 99th percentile of the times in which the node's log replicas made appends durable, in µs: the median of what the
	// commit logs of the nodes saw in the last quarter of a minute. Nil if there was no append.
	LogP99US *int64 `json:"log_p99_us"`
	// LogDropped is how many of its log replicas other nodes left for being slow in the last ten minutes.
	LogDropped int64 `json:"log_dropped"`
	// Pauses is how often the node's process did not run for half a second or longer in the last ten minutes, PauseMaxMS the longest time.
	Pauses     int64 `json:"pauses"`
	PauseMaxMS int64 `json:"pause_max_ms"`
	// FailedDisks are its data folders that have failed and are not written to.
	FailedDisks []api.DiskStatus `json:"failed_disks,omitempty"`
}

// Of returns the state of the cluster. What cannot be read within clusterTimeout is nil, and
// listed in Unknown.
func Of(ctx context.Context, c *client.Client) *Cluster {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	x := &Cluster{Nodes: []Node{}, Recoveries: []string{}, UnservedTablets: []client.UnservedTablet{}, Unknown: []string{}, Hidden: []string{}, Unreachable: []UnreachableNode{}, UsedUp: []ExhaustedQuota{}, Schedules: []FailedSchedule{}, Replications: []FailedReplication{}}
	x.add(ask(ctx, c, x))
	return x
}

// answers are what the nodes answered.
type answers struct {
	nodes     []client.NodeInfo
	store     *client.StoreStatus
	unserved  *client.UnservedTablets
	quotas    []client.Quota
	held      map[string]int64 // tablets by node
	schedules []client.Schedule
	followers []client.Replication
	probed    map[string]error // answers of nodes that are dead, by id

	nodesErr, storeErr, unservedErr, quotasErr, tabletsErr, schedulesErr, followersErr error
}

// ask sends all requests at once. Those for METADATA add what they find to x.
func ask(ctx context.Context, c *client.Client, x *Cluster) *answers {
	a := &answers{held: map[string]int64{}}
	var requests sync.WaitGroup
	requests.Go(func() {
		if a.nodes, a.nodesErr = c.Nodes().List(ctx); a.nodesErr == nil {
			MarkLeader(ctx, c, a.nodes)
			a.probed = probe(ctx, c, a.nodes)
		}
	})
	requests.Go(func() { a.store, a.storeErr = c.BlockStore().Status(ctx) })
	requests.Go(func() { a.unserved, a.unservedErr = c.Tablets().Unserved(ctx) })
	requests.Go(func() { a.quotas, a.quotasErr = c.Quotas().List(ctx) })
	requests.Go(func() { a.schedules, a.schedulesErr = c.Backups().Schedules(ctx) })
	requests.Go(func() { a.followers, a.followersErr = c.Replications().List(ctx) })
	requests.Go(func() { a.tabletsErr = x.countTablets(ctx, c, a.held) })
	requests.Wait()
	return a
}

func (x *Cluster) add(a *answers) {
	x.unknown("list of nodes", a.nodesErr)
	x.hide(a)
	x.unknown("placement of tablets: METADATA does not answer", a.tabletsErr)
	x.unknown("unserved tablets", a.unservedErr)
	x.unknown("state of the block store", a.storeErr)
	if !errors.Is(a.quotasErr, client.ErrPermission) { // without the right to see quotas, report none
		x.unknown("exhausted quotas", a.quotasErr)
	}
	x.addQuotas(a.quotas)
	x.addSchedules(a)
	x.addReplications(a)
	if a.unserved != nil {
		x.addUnserved(a.unserved)
	}
	x.addNodes(a)
	if a.nodesErr == nil {
		x.Space = spaceOf(a.nodes)
	}
	if a.storeErr == nil {
		x.addStore(a.store)
	}
}

// addNodes adds the nodes of membership.
func (x *Cluster) addNodes(a *answers) {
	slices.SortStableFunc(a.nodes, func(m, n client.NodeInfo) int { return strings.Compare(NameOf(&m), NameOf(&n)) })
	for i := range a.nodes {
		n := &a.nodes[i]
		j := Node{ID: n.ID, Name: NameOf(n), State: n.State, StateForS: n.SinceSeconds, Reason: n.Reason, Voter: n.Voter, Leader: n.Leader, Master: n.Master, Draining: n.Draining}
		if a.tabletsErr == nil && a.held != nil {
			count := a.held[n.ID]
			j.Tablets = &count
		}
		if err, probed := a.probed[n.ID]; probed {
			j.Answers, j.Silence = err == nil, cause(err)
		}
		x.Nodes = append(x.Nodes, j)
	}
}

// hide removes the figures that a user without the right to read the cluster gets only for the tables that they may read. METADATA
// passes no other rows to such a user, and the master rejects the question for unserved tablets.
func (x *Cluster) hide(a *answers) {
	if !errors.Is(a.unservedErr, client.ErrPermission) {
		return
	}
	x.Tablets, x.Unassigned, x.Recovering, x.Recoveries = nil, nil, nil, []string{}
	a.unservedErr, a.tabletsErr = nil, nil
	a.unserved, a.held = nil, nil
	x.Hidden = append(x.Hidden, "the numbers of tables and tablets, and tablets that are not served: these need the right read on the cluster")
}

// Bounds of what is kept of a cluster's answers, which may be faulty: causes of what is unknown, and nodes.
const unknownMax, nodesMax = 100, 10_000

func (x *Cluster) unknown(what string, err error) {
	if err != nil && len(x.Unknown) < unknownMax {
		x.Unknown = append(x.Unknown, what+": "+err.Error())
	}
}

// countTablets reads METADATA, and counts the tablets of each node.
func (x *Cluster) countTablets(ctx context.Context, c *client.Client, held map[string]int64) error {
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
		if _, known := held[node]; known || len(held) < nodesMax {
			held[node]++
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	x.Tablets, x.Unassigned, x.Recovering = &all, &unassigned, &recovering
	return nil
}

// addRecoveries adds the dead servers whose commit logs a tablet waits for.
func (x *Cluster) addRecoveries(servers []string) {
	for _, dead := range servers {
		if len(x.Recoveries) < unknownMax && !slices.Contains(x.Recoveries, dead) {
			x.Recoveries = append(x.Recoveries, dead)
		}
	}
}

// addStore adds the nodes' reports on their parts of the block store.
func (x *Cluster) addStore(s *client.StoreStatus) {
	under, logs := int64(0), int64(0)
	var counting []string
	for i := range s.Nodes {
		p := &s.Nodes[i]
		at := slices.IndexFunc(x.Nodes, func(n Node) bool { return n.ID == p.Node })
		if p.Error != "" {
			if at >= 0 && x.Nodes[at].State == api.NodeAlive {
				x.Unreachable = append(x.Unreachable, UnreachableNode{p.Node, p.Name, p.Error, x.Nodes[at].StateForS})
				x.Unknown = append(x.Unknown, fmt.Sprintf("state of the block store on node %s: %s", p.Name, p.Error))
			}
			continue
		}
		if at >= 0 {
			x.Nodes[at].Bytes = &p.Bytes
			x.Nodes[at].Pauses, x.Nodes[at].PauseMaxMS, x.Nodes[at].FailedDisks = p.Pauses, p.PauseMaxMS, p.FailedDisks
		}
		logs += p.LogUnder
		if !p.Known {
			counting = append(counting, p.Name)
			continue
		}
		under += p.Under
		if at >= 0 {
			x.Nodes[at].Under = &p.Under
		}
	}
	x.LogUnder = &logs
	x.addLogTimes(s)
	if len(counting) > 0 {
		x.Unknown = append(x.Unknown, "number of under-replicated extents: "+strings.Join(counting, ", ")+" "+StillCounting)
		return
	}
	x.Under = &under
}

// addQuotas adds the quotas of bytes that are exhausted. Rate quotas refill, so they are left out.
func (x *Cluster) addQuotas(quotas []client.Quota) {
	for i := range quotas {
		q := &quotas[i]
		for _, b := range q.Bounds {
			if b.Kind == api.QuotaBytes && b.Used >= b.Limit {
				x.UsedUp = append(x.UsedUp, ExhaustedQuota{q.Of, q.Name, b.Used, b.Limit})
			}
		}
	}
}
