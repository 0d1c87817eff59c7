package command

import (
	"context"
	"errors"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// anyLocks confirms every sequencer.
type anyLocks struct{}

func (anyLocks) CheckSequencer(context.Context, metaapi.Sequencer) error { return nil }

// A node commands in its own name: it needs the certificate of the node that it names, unless the node is open.
func TestEpochOfAnotherNode(t *testing.T) {
	var gate Gate
	if err := gate.Admit(t.Context(), commandOf("n1", 5), anyLocks{}); err != nil {
		t.Fatal(err)
	}
	const method = "cluster.hail"
	s := authztest.Serve(t, rpc.ServerConfig{}, map[string]func(*rpc.Call){method: func(c *rpc.Call) {
		if err := gate.AdmitCall(c, commandOf(c.Params.Str(), 5), nil); err != nil {
			c.Fail(err)
			return
		}
		c.Reply(nil)
	}})
	n1, n2 := &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n1"}}, &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n2"}}
	for name, c := range map[string]struct {
		from any
		as   string
		want error
	}{
		"the master":              {n1, "n1", nil},
		"the master of an open":   {nil, "n1", nil},
		"another in its name":     {n2, "n1", rpc.CodePermissionDenied},
		"another in its own":      {n2, "n2", api.CodeStaleEpoch},
		"the master in another's": {n1, "n2", rpc.CodePermissionDenied},
		"another of an open one":  {nil, "n2", api.CodeStaleEpoch},
	} {
		if err := s.Call(t, c.from, method, authztest.Values(c.as)); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
