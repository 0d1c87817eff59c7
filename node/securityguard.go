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

// strangerBytesMax bounds a request of who has shown no certificate, or is not let in by what he has shown.
const strangerBytesMax = 64 << 10

// requestBytes bounds the requests of a peer, of which a node takes so much. Whether a principal is let in
// may not be known now: then it is looked at when his request is carried out.
func (r *rights) requestBytes(most int) func(*rpc.Peer) int {
	return func(p *rpc.Peer) int {
		who := peerOf(p)
		switch who.Kind {
		case pki.Anonymous:
			return strangerBytesMax
		case pki.Principal:
			if err, known := r.cache.CheckNow(who.Name, who.Generation); known && err != nil {
				return strangerBytesMax
			}
			if revoked, _ := r.cache.CertificateRevokedNow(who.Name, who.Serial); revoked {
				return strangerBytesMax
			}
		}
		return most
	}
}

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
			fail(c, api.ErrOpenCluster)
			return
		}
		h(c)
	})
}
