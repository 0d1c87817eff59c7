package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"regexp"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
)

// A node that does not answer is not shown as alive, even if membership has not detected its failure.
func TestGridOfNodeThatDoesNotAnswer(t *testing.T) {
	x := &health.Cluster{
		Nodes:       []health.Node{{ID: "a", Name: "n1", State: api.NodeAlive}, {ID: "b", Name: "n2", State: api.NodeAlive}, {ID: "c", Name: "n3", State: api.NodeAlive}},
		Unreachable: []health.UnreachableNode{{ID: "b", Name: "n2", Error: "connection refused"}},
	}
	var table bytes.Buffer
	a := &cli.App{Out: bufio.NewWriter(&table)}
	if err := errors.Join(a.Print(gridOf(x)), a.Out.Flush()); err != nil {
		t.Fatal(err)
	}
	if got := table.String(); !regexp.MustCompile(`(?m)^n1 +alive .*\nn2 +no answer .*\nn3 +alive `).MatchString(got) {
		t.Errorf("the table has another state of n2:\n%s", got)
	}
}
