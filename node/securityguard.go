package node

import (
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// peerOf returns who is at the other end of a connection: anonymous on a node that is open.
func peerOf(p *rpc.Peer) pki.Peer {
	if who, ok := p.Identity.(*subject); ok {
		return who.who()
	}
	return pki.Peer{}
}

// strangerBytesMax bounds a request of who has shown no certificate.
const strangerBytesMax = 64 << 10

// guardStranger refuses what is not for who has shown no certificate.
func guardStranger(p pki.Peer, method string) error {
	if p.Kind != pki.Anonymous || guards[method].to == strangers {
		return nil
	}
	return api.ToRPC(errStranger)
}

// errStranger is what is answered to who has shown nothing.
var errStranger = &api.IdentityError{Reason: api.IdentityNone, Text: "show a certificate of the cluster, or a token"}

// handleSecurity registers a method of security. A node without certificates has none to give.
func (n *Node) handleSecurity(method string, mode rpc.Mode, h func(*rpc.Call)) {
	n.handle(method, mode, func(c *rpc.Call) {
		if n.security == nil {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "the cluster has no certificates: it was not made by \"stele init\""))
			return
		}
		h(c)
	})
}
