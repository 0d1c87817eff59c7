package node_test

import (
	"crypto/x509"
	"io"
	"net"
	"testing"
	"time"

	"github.com/steledb/stele/security/pki"
)

// TestVotersAreLetIn (I11): clients that begin like voters and then are silent, or a node that opens as many connections to a voter as it can,
// do not keep another node from connecting.
func TestVotersAreLetIn(t *testing.T) {
	t.Parallel()
	f, first, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 2*endWait)
	raft := good(f.client(0).Nodes().RaftStatus(ctx))
	to := target{cluster: raft.Cluster, epoch: raft.RaftEpoch, node: f.nodes[0].ID()}
	node := func(name string) *pki.Endpoint {
		return pki.NewEndpoint(issue(t, first.Authority, func(r []byte) (*x509.Certificate, error) {
			return first.Authority.SignNode(r, name, nil, time.Now())
		}), pki.Options{})
	}
	dial := func(caller *pki.Endpoint, parts ...[]byte) net.Conn {
		c, err := caller.Dial(ctx, "", f.nodes[0].RPCAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(endWait))
		for _, p := range parts {
			if _, err := c.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	// asks reports whether a node is sent the group's term.
	asks := func(name string) error {
		c := dial(node(name), to.raftGreeting(to.cluster, name, to.node), raftFrame(to.raftHello(name)), raftFrame(raftMessage(7)))
		_, err := io.ReadFull(c, make([]byte, welcome+8))
		return err
	}
	anonymous := pki.NewEndpoint(pki.AnonymousCredential(f.as.Trust()), pki.Options{})
	for range 150 {
		dial(anonymous, []byte{'R'})
	}
	if err := asks("ann"); err != nil {
		t.Errorf("while strangers fall silent: %v", err)
	}
	mallory := node("mallory")
	for range 300 {
		c := dial(mallory, to.raftGreeting(to.cluster, "mallory", to.node), raftFrame(to.raftHello("mallory")))
		_, _ = io.ReadFull(c, make([]byte, welcome)) // an error: it is not let in any more
	}
	if err := asks("bob"); err != nil {
		t.Errorf("while one node has connections: %v", err)
	}
}
