package faults

import (
	"context"
	"net"
	"path/filepath"
	"time"

	"github.com/steledb/stele/client"
	nodes "github.com/steledb/stele/node"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/security/folder"
	"github.com/steledb/stele/security/pki"
)

// keys are those of a cluster whose nodes have certificates.
type keys struct {
	file  string          // with the credential of its first user, who may do everything
	admin *pki.Credential // the same
	node  *pki.Endpoint   // as which the test looks at what is for nodes alone
}

// secure gives each node a certificate, in its first data folder. None has started.
func (c *cluster) secure() {
	c.t.Helper()
	made, err := c.makeKeys()
	if err != nil {
		c.t.Fatal(err)
	}
	c.keys = made
}

func (c *cluster) makeKeys() (*keys, error) {
	var first *folder.Contents
	k := &keys{file: filepath.Join(c.dir, "admin.pem")}
	for _, n := range c.nodes {
		own := filepath.Join(n.folders()[0], nodes.SecurityFolder)
		if first == nil {
			admin, err := nodes.Initialise(n.folders(), own, []string{n.host.String()}, time.Now())
			if err != nil {
				return nil, err
			}
			if first, err = folder.At(own).Load(); err != nil {
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
		credential, err := enrol(first, dirs.Node)
		if err != nil {
			return nil, err
		}
		if err := folder.At(own).Enrol(&folder.Contents{Credential: credential, GossipKeys: first.GossipKeys}); err != nil {
			return nil, err
		}
	}
	tester, err := enrol(first, "n00000000000000fa")
	if err != nil {
		return nil, err
	}
	k.node = pki.NewEndpoint(tester, pki.Options{})
	return k, pki.WriteCredential(k.file, k.admin)
}

// enrol makes a node's certificate, as the node that has the authority does for a token.
func enrol(by *folder.Contents, id string) (*pki.Credential, error) {
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

// as returns the configuration of a client who may do everything.
func (k *keys) as(cfg client.Config) client.Config {
	if k != nil {
		cfg.Credential = k.admin
	}
	return cfg
}

// userFile is as whom users come: nobody in particular, of a cluster without keys.
func (k *keys) userFile() string {
	if k == nil {
		return ""
	}
	return k.file
}

// dialer returns how to connect as a node; nil is as anybody.
func (k *keys) dialer() func(ctx context.Context, addr string) (net.Conn, error) {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, addr string) (net.Conn, error) { return k.node.Dial(ctx, "", addr) }
}

// credentialArgs are the flags with which commands come.
func (k *keys) credentialArgs() []string {
	if k == nil {
		return nil
	}
	return []string{"--credential", k.file}
}

// credentialOf reads the file that a user is given; none is nobody's.
func credentialOf(file string) (*pki.Credential, error) {
	if file == "" {
		return nil, nil
	}
	return pki.ReadCredential(file)
}
