package node

import (
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/console"
	"github.com/steledb/stele/node/signin"
)

// addConsole adds the console to the HTTP port. Like other clients, it uses the node's own port.
func addConsole(n *Node) {
	if n.cfg.HTTP == "off" {
		return
	}
	log := n.log.With("part", "console")
	n.consoleUsers = signin.New(signin.Config{
		Open: n.security == nil, Authz: n.authz, Verify: n.tokenAuth.Authenticate, NodeAddr: n.RPCAddr(),
		Client: client.Config{Dial: connector{n}.toAny, Logger: log, SilenceMax: peerSilenceMax, DialTimeout: peerDialTimeout},
	})
	cfg := console.Config{Log: log, Node: n.cfg.Name, Version: Version(), Open: n.consoleUsers.Client}
	if n.security != nil {
		cfg.SignIn, cfg.SignOut = n.consoleUsers.SignIn, n.consoleUsers.SignOut
	}
	n.monitor.Console, n.monitor.FormBytesMax = console.New(cfg), console.FormBytesMax
}
