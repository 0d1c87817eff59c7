package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// sentence returns the first line of a status.
func sentence(s *client.Status, x *Cluster) string {
	state, rest := State(s, x)
	return state + rest
}

// A status counts unserved tablets, lists some with the cause, and is not healthy.
func TestStatusListsUnserved(t *testing.T) {
	u := &client.UnservedTablets{Total: 9, Tablets: []client.UnservedTablet{
		{Table: "t", End: []byte("m"), Node: "a", Server: "a.7", Since: 90 * time.Second, Tries: 12, Error: "a file is damaged"},
		{Table: "t", Start: []byte("m"), Since: 7 * time.Second, Error: "no server"},
	}}
	for range 5 {
		u.Tablets = append(u.Tablets, client.UnservedTablet{Table: strings.Repeat("x", 3), Error: "e"})
	}
	one := int64(1)
	x := &Cluster{Nodes: []Node{{ID: "a", Name: "n1", State: api.NodeAlive}}, Tablets: &one, Unassigned: &one}
	x.addUnserved(u)
	got := x.Problems()
	want := []string{
		`not served: table t, rows from (first) to "m", for 1m 30s; assigned to node n1 (server a.7) in METADATA; 12 attempts failed, the last: a file is damaged`,
		`not served: table t, rows from "m" to (last), for 7s; not assigned in METADATA: no server`,
	}
	if len(got) != unservedShown+1 || got[0] != want[0] || got[1] != want[1] || got[5] != "not served: 4 tablets more" {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	s := &client.Status{Ready: true, Node: "n1", Nodes: 3, NodesAlive: 3}
	if got := sentence(s, x); got != "degraded: node n1 serves 0 tables in 0 tablets; 3 of 3 nodes alive; 9 tablets of the cluster not served" {
		t.Errorf("%s", got)
	}
	if got := sentence(s, &Cluster{}); !strings.HasPrefix(got, "healthy: ") {
		t.Errorf("%s", got)
	}
}

// A status lists the failed data folders of all nodes, since when and why they failed, and what to do, and is not healthy.
func TestFailedDisks(t *testing.T) {
	x := &Cluster{Nodes: []Node{{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive}}}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Known: true}, {Node: "b", Known: true,
		FailedDisks: []api.DiskStatus{{Path: "/data2/blobs", Retired: true, Error: "fdatasync /data2/blobs/x: input/output error", FailedForS: 200}}}}})
	want := "data folder /data2/blobs of node n2 failed 3m 20s ago: fdatasync /data2/blobs/x: input/output error; the node writes to it no more, " +
		"and its replicas are restored on other disks: check or replace the disk, then restart the node"
	if got := x.Problems(); len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s := &client.Status{Ready: true, Node: "n1", Nodes: 2, NodesAlive: 2}
	if got := sentence(s, x); got != "degraded: node n1 serves 0 tables in 0 tablets; 2 of 2 nodes alive; 1 data folder failed" {
		t.Error(got)
	}
}

// A status lists problems and unknowns, and nothing else.
func TestClusterProblems(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	x := &Cluster{
		Nodes:   []Node{{ID: "a", Name: "n1", State: api.NodeAlive, Tablets: number(3)}, {ID: "b", Name: "n2", State: api.NodeAlive, Tablets: number(0)}},
		Tablets: number(3), Unassigned: number(0), Recovering: number(0),
	}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Known: true, Bytes: 5, Under: 2}, {Node: "b", Known: true, Under: 1}}})
	if got := x.Problems(); len(got) > 0 || *x.Under != 3 || *x.Nodes[0].Bytes != 5 {
		t.Errorf("%q, %+v", got, x)
	}
	x.Unassigned, x.Recovering, x.Recoveries = number(1), number(2), []string{"c.7", "a.3"}
	x.Nodes[1].State, x.Nodes[1].Tablets = api.NodeDead, number(4)
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Name: "n1", Error: "silent"}, {Node: "b", Name: "n2", Error: "dead"}}})
	got := strings.Join(x.Problems(), "\n")
	for _, want := range []string{"1 of 3 tablets unassigned", "4 tablets on node n2, which is dead", "2 tablets recovering from the commit logs of c.7, node n1 (start 3)", "block store on node n1: silent"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "n2: dead") {
		t.Errorf("a dead node's state is reported as unknown:\n%s", got)
	}
}

// A node that does not answer is not counted as alive, even if membership has not detected its failure.
func TestStatusOfNodeThatDoesNotAnswer(t *testing.T) {
	x := &Cluster{Nodes: []Node{
		{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive, StateForS: 61.4}, {ID: "c", Name: "n3", State: api.NodeAlive},
	}}
	x.addStore(&client.StoreStatus{Nodes: []client.NodeStore{
		{Node: "a", Name: "n1", Known: true}, {Node: "b", Name: "n2", Error: "connection refused"}, {Node: "c", Name: "n3", Known: true},
	}})
	s := &client.Status{Ready: true, Node: "n1", Nodes: 3, NodesAlive: 3}
	if got, want := sentence(s, x), "degraded: node n1 serves 0 tables in 0 tablets; 2 of 3 nodes alive"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := strings.Join(x.Problems(), "\n"), "node n2 does not answer; membership has listed it as alive for 1m 1s"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}
}

// Only exhausted quotas of bytes are reported; rates refill.
func TestUsedUpQuotas(t *testing.T) {
	x := &Cluster{}
	x.addQuotas([]client.Quota{
		{Of: "table", Name: "web", Bounds: []client.QuotaBound{{Kind: api.QuotaBytes, Limit: 20 << 10, Used: 21 << 10}}},
		{Of: "user", Name: "ann", Bounds: []client.QuotaBound{{Kind: api.QuotaBytes, Limit: 20 << 10, Used: 1}, {Kind: api.QuotaReadOps, Limit: 0, Used: 0}}},
		{Of: "user", Name: "bob", Bounds: []client.QuotaBound{{Kind: api.QuotaBytes, Limit: 20 << 10, Used: -1}}},
	})
	if got := strings.Join(x.Problems(), "\n"); got != "the quota of table web is exhausted: 21 KiB of 20 KiB; only deletions are accepted" {
		t.Errorf("%q", got)
	}
	ready := &client.Status{Ready: true, Nodes: 1, NodesAlive: 1}
	if state, text := State(ready, x); state != Degraded || !strings.HasSuffix(text, "; 1 table quota of bytes exhausted") {
		t.Errorf("all writes of a table are rejected, and the cluster is %s%s", state, text)
	}
	x.UsedUp[0].Of = api.QuotaOfUser
	if state, _ := State(ready, x); state != Healthy {
		t.Errorf("a user's quota makes the cluster %s", state)
	}
}

// Schedules of backups that fail are reported, with the last good backup.
func TestFailedSchedules(t *testing.T) {
	x := &Cluster{}
	x.addSchedules(&answers{schedules: []client.Schedule{
		{Name: "good", State: api.BackupMade, GoodMS: 1000}, {Name: "new"},
		{Name: "daily", State: api.BackupFailed, Failures: 2, Error: "disks are full", GoodMS: 1000},
		{Name: "hourly", State: api.BackupMade, Error: "left out: there is no table t", GoodMS: 1000},
		{Name: "blocked", Error: "there is no table to back up"},
	}})
	want := []string{
		"the schedule of backups daily: 2 backups failed, the last: disks are full; the last good one is of 1970-01-01T00:00:01Z",
		"the schedule of backups hourly is in trouble: left out: there is no table t; the last good one is of 1970-01-01T00:00:01Z",
		"the schedule of backups blocked is in trouble: there is no table to back up; there is no good one",
	}
	if got := x.Problems(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	x = &Cluster{}
	x.addSchedules(&answers{schedulesErr: client.ErrPermission})
	if got := x.Problems(); len(got) > 0 {
		t.Errorf("without the right to see them: %q", got)
	}
}

// Replications that fail or lag are reported, unless they are paused.
func TestFailedReplications(t *testing.T) {
	x := &Cluster{}
	x.addReplications(&answers{followers: []client.Replication{
		{Name: "good", Tables: []api.ReplicationTable{{Name: "a", State: api.ReplicationFollowing, LagMS: 60_000}, {Name: "b", State: api.ReplicationCopying, LagMS: -1}}},
		{Name: "paused", Paused: true, Tables: []api.ReplicationTable{{Name: "a", State: api.ReplicationPaused, LagMS: 1 << 40, Error: "old"}}},
		{Name: "late", Tables: []api.ReplicationTable{{Name: "a", State: api.ReplicationFollowing, LagMS: 61_000}}},
		{Name: "failed", Tables: []api.ReplicationTable{{Name: "a", State: api.ReplicationFollowing, LagMS: 61_000}, {Name: "b", State: api.ReplicationFailed, LagMS: 2000, Error: "refused"}}},
		{Name: "new", Tables: []api.ReplicationTable{{Name: "a", State: api.ReplicationFailed, LagMS: -1, Error: "refused"}}},
	}})
	want := []string{
		"replication late, table a: 1m 1s behind",
		"replication failed, table b: 2s behind: refused; and 1 table more",
		"replication new, table a: not copied whole yet: refused",
	}
	if got := x.Problems(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	x = &Cluster{}
	x.addReplications(&answers{followersErr: client.ErrPermission})
	if got := x.Problems(); len(got) > 0 {
		t.Errorf("without the right to see them: %q", got)
	}
}

// While nodes count their extents after a change of membership, the number of under-replicated
// extents is unknown, not 0.
func TestStatusWhileExtentsAreCounted(t *testing.T) {
	x := &Cluster{Nodes: []Node{{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive}}}
	store := &client.StoreStatus{ReplicationFactor: 3, Nodes: []client.NodeStore{{Node: "a", Name: "n1", Known: true, Bytes: 5, Under: 2}, {Node: "b", Name: "n2", Bytes: 7, Under: 1}}}
	x.addStore(store)
	want := "unknown: number of under-replicated extents: n2 still counting, after a node has joined or left"
	if got := x.Problems(); x.Under != nil || x.Nodes[1].Under != nil || *x.Nodes[0].Under != 2 || *x.Nodes[1].Bytes != 7 || len(got) != 1 || got[0] != want {
		t.Errorf("%q, %+v", got, x)
	}
	s := &client.Status{Ready: true, Node: "n1", Nodes: 2, NodesAlive: 2, Counting: true}
	if got := sentence(s, &Cluster{}); got != "degraded: node n1 serves 0 tables in 0 tablets; 2 of 2 nodes alive; under-replicated extents not counted yet" {
		t.Errorf("%s", got)
	}
}
