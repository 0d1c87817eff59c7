package node

import (
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// peerOf returns the peer of a connection: anonymous on an open node.
func peerOf(p *rpc.Peer) pki.Peer {
	if caller, ok := p.Identity.(*subject); ok {
		return caller.identity()
	}
	return pki.Peer{}
}

// strangerBytesMax bounds a request of a client without a valid credential.
const strangerBytesMax = 64 << 10

// requestBytes returns the function that bounds the requests of a peer, given the node's bound. If it is unknown whether a principal
// is valid, its requests are checked when they are executed.
func (r *rights) requestBytes(most int) func(*rpc.Peer) int {
	return func(p *rpc.Peer) int {
		caller := peerOf(p)
		switch caller.Kind {
		case pki.Anonymous:
			return strangerBytesMax
		case pki.Principal:
			if err, known := r.cache.CheckNow(caller.Name, caller.Generation); known && err != nil {
				return strangerBytesMax
			}
			if revoked, _ := r.cache.CertificateRevokedNow(caller.Name, caller.Serial); revoked {
				return strangerBytesMax
			}
		}
		return most
	}
}

// guardStranger rejects methods that require a credential.
func guardStranger(p pki.Peer, method string) error {
	if p.Kind != pki.Anonymous || guards[method].to == strangers {
		return nil
	}
	return api.ToRPC(errStranger)
}

// handleSecurity registers a method that requires certificates. On an open node it fails with api.ErrOpenCluster.
func (n *Node) handleSecurity(method string, mode rpc.Mode, h func(*rpc.Call)) {
	n.handle(method, mode, func(c *rpc.Call) {
		if n.security == nil {
			reply.Fail(c, api.ErrOpenCluster)
			return
		}
		h(c)
	})
}
