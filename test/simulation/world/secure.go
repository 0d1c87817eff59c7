package world

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// Where each host has its keys, the lock service's log and its join token.
const (
	keysDir   = "/data/security"
	raftDir   = "/data/raft"
	tokenFile = "/token"
)

// secured is the security of a cluster with certificates.
type secured struct {
	admin *pki.Credential
	// first has the keys of the first node, with those of the authority.
	first *keydir.Contents
}

// found starts the first nodes, and reports whether they got their keys in time.
func (w *World) found(done <-chan struct{}) bool {
	if !w.plan.secured {
		for _, h := range w.hosts {
			w.begin(h, done)
		}
		return true
	}
	if err := w.initialise(w.hosts[0]); err != nil {
		w.trace.addf("world", "keys of the first node: %v", err)
		return false
	}
	w.begin(w.hosts[0], done)
	for _, h := range w.hosts[1:] {
		if err := w.enrol(h, time.Now().Add(foundingMax)); err != nil {
			w.trace.addf("world", "keys of %s: %v", h.name, err)
			return false
		}
		w.begin(h, done)
	}
	return true
}

// begin starts the first process of a host.
func (w *World) begin(h *host, done <-chan struct{}) {
	h.start()
	go h.supervise(done)
}

// initialise makes a host the first node of a secured cluster, as "stele init" does.
func (w *World) initialise(h *host) error {
	h.cfg.Security = keysDir
	admin, err := enrol.InitialiseFS(h.disk.FS(), h.cfg.DataDirs, keysDir, "", []string{h.net.IP()}, time.Now())
	if err != nil {
		return err
	}
	own, err := keydir.On(h.disk.FS(), keysDir).Load()
	w.secured = &secured{admin: admin, first: own}
	return err
}

// enrol prepares a host without data to join: in a secured cluster it gets a join token, or keys in
// advance.
func (w *World) enrol(h *host, end time.Time) error {
	if w.secured == nil {
		return nil
	}
	h.cfg.Security = keysDir
	if w.r.IntN(2) == 0 {
		w.count("hosts with keys")
		return w.secured.give(h)
	}
	w.count("hosts with a join token")
	var made *client.CreatedToken
	err := w.ask(end, func(ctx context.Context, c *client.Client) (err error) {
		made, err = c.JoinTokens().Create(ctx, client.TokenRequest{Kind: api.TokenJoin, TTL: time.Hour})
		return err
	})
	if err != nil {
		return fmt.Errorf("create a join token: %w", err)
	}
	h.cfg.TokenFile = tokenFile
	return secretfile.On(h.disk.FS()).Write(tokenFile, []byte(made.Text))
}

// give writes keys to the disk of a host, signed by the authority.
func (s *secured) give(h *host) error {
	fsys := h.disk.FS()
	if err := vfs.MakeDir(fsys, h.cfg.DataDirs[0]); err != nil {
		return err
	}
	folders, err := identity.InspectFS(fsys, h.cfg.DataDirs)
	if err != nil {
		return err
	}
	if err := folders.Write(); err != nil {
		return err
	}
	own, err := s.issue(folders.Node, h.net.IP())
	if err != nil {
		return err
	}
	return keydir.On(fsys, keysDir).Enrol(&keydir.Contents{Credential: own, GossipKeys: s.first.GossipKeys})
}

// issue returns a credential of a node.
func (s *secured) issue(id, ip string) (*pki.Credential, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return nil, err
	}
	leaf, err := s.first.Authority.SignNode(request, id, []string{ip}, time.Now())
	if err != nil {
		return nil, err
	}
	return pki.NewCredential(key, leaf, s.first.Credential.Trust())
}
