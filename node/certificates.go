package node

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authority"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/budget"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/enrol"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/gossipkey"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/tokenauth"
	"github.com/steledb/stele/security/keydir"
)

// newCertificates creates the services of a cluster with certificates. On an open node they hold no keys.
func (n *Node) newCertificates() {
	transport := func() *certs.Transport { return n.security }
	issuers := func() []string { return issuersOf(n) }
	n.gossipKey = gossipkey.New(gossipkey.Config{Ctx: n.ctx, Log: n.log, ID: n.self.ID, Meta: &n.meta, Catalog: &n.catalog, Changes: n.changes,
		Peers: &n.peers, IsMaster: n.candidate.IsMaster, RaftEpoch: n.self.RaftEpoch, Removed: n.removed, Issuers: issuers, Period: n.cfg.rolloverPeriod,
		Nodes: func(ctx context.Context) (nodes []gossipkey.Node, err error) {
			all, err := n.members.Nodes(ctx)
			for _, x := range all {
				nodes = append(nodes, gossipkey.Node{ID: x.ID, Alive: x.State == gossip.Alive})
			}
			return nodes, err
		}, Write: func(keys [][]byte) error { return n.keys().SetGossipKeys(keys) }, Apply: n.members.SetGossipKeys})
	n.authority = authority.New(authority.Config{Ctx: n.ctx, Log: n.log, Transport: transport, Name: n.cfg.Name, ID: n.self.ID, Meta: &n.meta,
		Catalog: &n.catalog, Authz: n.authz, Changes: n.changes, Peers: &n.peers, IsMaster: n.candidate.IsMaster, Voter: func() authority.Voter { return n.voter },
		Issuers: issuers, Nodes: n.members.IDs, Check: n.removed.Check, RotateGossipKey: n.gossipKey.Rotate, Period: n.cfg.rolloverPeriod})
	n.enrolment = enrol.New(enrol.Config{Log: n.log, Refused: &n.refused, ID: n.self.ID, Transport: transport, Meta: &n.meta, Catalog: &n.catalog,
		Authz: n.authz, Changes: n.changes, Peers: &n.peers, Epochs: &n.epochs, IsMaster: n.candidate.IsMaster, Signer: n.authority.NodeSigner,
		GossipKeys: n.gossipKey.Keys, Members: func() []string { return append([]string{n.RPCAddr()}, n.members.Addresses()...) },
		FindNode: func(ctx context.Context, name string) (string, error) {
			x, err := n.members.Find(ctx, name)
			return x.ID, err
		}, Check: n.removed.Check})
	n.tokenAuth = tokenauth.New(tokenauth.Config{Authz: n.authz, Serving: n.checkServing})
}

// issuersOf returns the nodes that should have the authority's key, the master first.
func issuersOf(n *Node) []string {
	ids := n.members.AliveVoters()
	if masterID, _ := n.epochs.Last(); masterID != "" && masterID != n.self.ID() {
		ids = slices.Insert(slices.DeleteFunc(ids, func(id string) bool { return id == masterID }), 0, masterID)
	}
	return ids
}

// keys returns the node's directory of keys.
func (n *Node) keys() keydir.Dir {
	return keydir.On(n.cfg.FS, n.cfg.Security).SealedBy(n.passphrase)
}

// enrol makes a host without keys, or a node whose certificate has expired, a node of the cluster, if there is a join token.
func (n *Node) enrol(ctx context.Context, dirs *identity.Folders) error {
	if n.cfg.Security == "" {
		return nil
	}
	own := ""
	if addr, err := advertise.Address(n.rpcAddr.String(), n.cfg.Advertise); err == nil {
		own = advertise.Host(addr)
	}
	members, err := enrol.Host(ctx, enrol.HostConfig{Log: n.log, Keys: n.keys(), Dir: n.cfg.Security, TokenFile: n.cfg.TokenFile, Nodes: n.cfg.Join, Dial: n.cfg.Network.Dial,
		Name: n.cfg.Name, Host: own, Waiting: func() { n.life.enter("a node of the cluster, to join with a token") }}, dirs)
	for _, addr := range members {
		if !slices.Contains(n.cfg.Join, addr) {
			n.cfg.Join = append(slices.Clip(n.cfg.Join), addr)
		}
	}
	return err
}

// openSecurity reads the node's keys, if it has any. Its certificate must match the node and cluster of its data directories.
func (n *Node) openSecurity(folders *identity.Folders) error {
	if n.cfg.Security == "" {
		return nil
	}
	keys, err := certs.Load(n.keys(), n.cfg.Security, folders.Node, folders.Cluster)
	if err != nil {
		return err
	}
	n.gossipKey.Hold(keys.GossipKeys)
	n.authority.Hold(keys.Authority, keys.Next)
	n.security = certs.New(certs.Config{Log: n.log, Keys: n.keys(), Credential: keys.Credential, Dial: n.cfg.Network.Dial, Rejected: n.removed.Rejected,
		ConnsOfPrincipalMax: budget.ConnsMax(n.cfg.MemoryBytes) / budget.PrincipalShare, ForStrangers: func(method string) bool { return n.authz.Guards[method].To == authz.Strangers },
		Renew: n.authority.RenewOwn, Signs: n.authority.Holds})
	n.authz.Open = false
	return nil
}

// rejections implements certs.Rejections.
type rejections struct{ n *Node }

// Ready implements certs.Rejections.
func (r rejections) Ready() error { return r.n.quorum.Check() }

// Refuses implements certs.Rejections.
func (r rejections) Refuses(ctx context.Context, c authz.Credential) (bool, error) {
	return r.n.authz.Rights.Refuses(ctx, c)
}

// refuseConn records a rejected connection in the audit log, and logs it, rate-limited per reason. That a peer has closed it is no news.
func (n *Node) refuseConn(from net.Addr, err error) {
	n.authz.Audit.ConnectionRejected(from.String(), err)
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	n.refused.WarnError(n.log, "connection rejected", err, "peer", advertise.Host(from.String()))
}
