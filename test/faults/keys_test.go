package faults

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// keys are the keys of a cluster.
type keys struct {
	file     string          // with the credential of its first user, who may do everything
	admin    *pki.Credential // same as file
	nodeFile string          // with the credential of a node that does not exist
	node     *pki.Endpoint   // with which the test uses what only nodes may use
}

// keyFolder returns the directory of the node's keys.
func (n *node) keyFolder() string { return filepath.Join(n.folders()[0], certs.FolderName) }

// secure creates the keys of a cluster of these nodes, the first of which will found it. None has
// started.
func (c *cluster) secure(members ...*node) *keys {
	c.t.Helper()
	made, err := c.makeKeys(members)
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

func (c *cluster) makeKeys(members []*node) (*keys, error) {
	var first *keydir.Contents
	file := func(what string) string { return filepath.Join(c.dir, members[0].String()+"-"+what+".pem") }
	k := &keys{file: file("admin"), nodeFile: file("tester")}
	for _, n := range members {
		n.keys = k
		own := n.keyFolder()
		if first == nil {
			admin, err := enrol.Initialise(n.folders(), own, []string{n.host.String()}, time.Now())
			if err != nil {
				return nil, err
			}
			if first, err = keydir.At(own).Load(); err != nil {
				return nil, err
			}
			k.admin = admin
			continue
		}
		dirs, err := identity.Inspect(n.folders())
		if err == nil {
			err = dirs.Write()
		}
		if err != nil {
			return nil, err
		}
		credential, err := issue(first, dirs.Node)
		if err != nil {
			return nil, err
		}
		if err := keydir.At(own).Enrol(&keydir.Contents{Credential: credential, GossipKeys: first.GossipKeys}); err != nil {
			return nil, err
		}
	}
	tester, err := issue(first, "n00000000000000fa")
	if err != nil {
		return nil, err
	}
	k.node = pki.NewEndpoint(tester, pki.Options{})
	return k, errors.Join(pki.WriteCredential(k.file, k.admin), pki.WriteCredential(k.nodeFile, tester))
}

// issue signs a node's certificate, as the node with the authority does for a token.
func issue(by *keydir.Contents, id string) (*pki.Credential, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return nil, err
	}
	leaf, err := by.Authority.SignNode(request, id, nil, time.Now())
	if err != nil {
		return nil, err
	}
	trust, err := pki.NewTrust(by.Authority.Certificate())
	if err != nil {
		return nil, err
	}
	return pki.NewCredential(key, leaf, trust)
}

// as returns cfg with the credential of the first user, who may do everything.
func (k *keys) as(cfg client.Config) client.Config {
	cfg.Credential = k.admin
	return cfg
}

// dialer returns a dial function that connects as a node.
func dialer(as *pki.Endpoint) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return as.Dial(ctx, "", addr) }
}
