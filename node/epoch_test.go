package node

import (
	"context"
	"errors"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/command"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// anyLocks confirms every sequencer.
type anyLocks struct{}

func (anyLocks) CheckSequencer(context.Context, metaapi.Sequencer) error { return nil }

// commandOf returns the header of a master's command.
func commandOf(node string, epoch uint64) command.Header {
	return command.Header{Master: node, Sequencer: metaapi.Sequencer{Path: master.LockPath, Mode: metaapi.Exclusive, LockGeneration: epoch}}
}

// A node commands in its own name: it needs the certificate of the node that it names, unless the node is open.
func TestEpochOfAnotherNode(t *testing.T) {
	n := &Node{ctx: t.Context()}
	if err := n.epochs.Admit(t.Context(), commandOf("n1", 5), anyLocks{}); err != nil {
		t.Fatal(err)
	}
	g := guardedNode{n: n, subjects: make(chan *authz.Subject, 1)}
	g.serve(t, rpc.ServerConfig{}, map[string]func(*rpc.Call){methodHail: func(c *rpc.Call) {
		if err := n.epochs.AdmitCall(c, commandOf(c.Params.Str(), 5), n.meta.Client); err != nil {
			c.Fail(err)
			return
		}
		c.Reply(nil)
	}})
	n1, n2 := &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n1"}}, &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n2"}}
	for name, c := range map[string]struct {
		from *authz.Subject
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
		if err := g.call(t, c.from, methodHail, c.as); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
