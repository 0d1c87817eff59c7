package health

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// A node that is down is named, with the cause and what to do about it.
func TestNodesThatAreDown(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	x := &Cluster{}
	x.add(&answers{
		unserved: &client.UnservedTablets{}, store: &client.StoreStatus{Nodes: []client.NodeStore{{Node: "a", Known: true, LogUnder: 15}}},
		nodes: []client.NodeInfo{
			{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeDead, SinceSeconds: 61},
			{ID: "c", Name: "n3", State: api.NodeLeft, SinceSeconds: 7200}, {ID: "d", Name: "n4", State: api.NodeDead, SinceSeconds: 5},
			{ID: "e", Name: "n5", State: api.NodeUnknown, SinceSeconds: 5},
			{ID: "f", Name: "n6", State: api.NodeLeft, SinceSeconds: 9, Reason: "commit log: sync /data1/x: input/output error"},
		},
		probed: map[string]error{"b": refused, "d": nil},
	})
	want := []string{
		`node n2 is dead for 1m 1s, connection refused: the last lines of its log on its host have the reason; start it again, or remove it for good by "stele node remove n2"`,
		`node n3 was stopped 2h 0m ago: start it again, or remove it for good by "stele node remove n3"`,
		`node n4 is dead to the others for 5s, and answers requests: check its gossip port, and the network between the nodes`,
		`node n5 is unknown for 5s: the last lines of its log on its host have the reason; start it again, or remove it for good by "stele node remove n5"`,
		`node n6 ended by itself 9s ago: mend the cause and start it again, or remove it for good by "stele node remove n6"; its reason: commit log: sync /data1/x: input/output error`,
	}
	if got := strings.Join(x.Problems(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s", got)
	}
	if *x.Under != 0 || *x.LogUnder != 15 {
		t.Errorf("%d extents under-replicated, and %d of commit logs", *x.Under, *x.LogUnder)
	}
}

// A user without the right to read the cluster sees no numbers of tablets, and no problem in that.
func TestHiddenNumbers(t *testing.T) {
	one := int64(1)
	x := &Cluster{Tablets: &one, Unassigned: &one, Recovering: &one}
	x.add(&answers{
		nodes: []client.NodeInfo{{ID: "a", Name: "n1", State: api.NodeAlive}}, held: map[string]int64{"a": 1},
		store: &client.StoreStatus{}, unservedErr: client.ErrPermission, quotasErr: client.ErrPermission,
	})
	if x.Tablets != nil || x.Unassigned != nil || x.Recovering != nil || x.Unserved != nil || x.Nodes[0].Tablets != nil || len(x.Hidden) != 1 {
		t.Errorf("%+v", x)
	}
	if got := x.Problems(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	x = &Cluster{}
	x.add(&answers{unservedErr: errors.New("no master is known"), store: &client.StoreStatus{}})
	if got := x.Problems(); len(got) != 1 || len(x.Hidden) != 0 {
		t.Errorf("%q, %q", got, x.Hidden)
	}
}
