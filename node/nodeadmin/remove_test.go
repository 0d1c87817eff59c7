package nodeadmin

import (
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
)

// TestQuorum (NA1): a voter is removed only if a majority of voters is live without it and without the nodes that are marked as removed.
func TestQuorum(t *testing.T) {
	// servers is a letter for each, n1 first: V for a live voter, v for a dead one, L for a live learner.
	for _, c := range []struct {
		servers, gone, id string
		live              string // in the error; empty if the node may be removed
	}{
		{"VVV", "", "n1", ""},
		{"VVv", "", "n3", ""},
		{"VVv", "", "n1", "only 1 of 3"},
		{"VVV", "n2", "n1", "only 1 of 3"},
		{"VVv", "n3", "n1", "only 1 of 3"},
		{"VVVVV", "n2", "n1", ""},
		{"VVVVV", "n2 n3", "n1", "only 2 of 5"},
		{"V", "", "n1", "only 0 of 1"},
		{"VL", "", "n1", "only 0 of 1"},
		{"VL", "", "n2", ""},
		{"VvvL", "", "n4", ""},
		{"Vvv", "", "n9", ""},
	} {
		var servers []api.RaftServer
		for i, kind := range c.servers {
			servers = append(servers, api.RaftServer{ID: "n" + string(rune('1'+i)), Voter: kind != 'L', Alive: kind != 'v'})
		}
		err := checkQuorum(servers, strings.Fields(c.gone), c.id)
		var inUse *api.NodeInUseError
		if c.live == "" && err != nil || c.live != "" && (!errors.As(err, &inUse) || inUse.Node != c.id || !strings.Contains(err.Error(), c.live)) {
			t.Errorf("%s without %s and %q: %v", c.servers, c.id, c.gone, err)
		}
	}
}
