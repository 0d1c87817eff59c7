package node

import (
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// guardStranger rejects methods that require a credential.
func guardStranger(p pki.Peer, method string) error {
	if p.Kind != pki.Anonymous || guards[method].To == authz.Strangers {
		return nil
	}
	return api.ToRPC(authz.ErrStranger)
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
