package world

import (
	"context"
	"slices"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
)

// cluster implements workload.Cluster.
type cluster struct{ w *World }

// Open implements workload.Cluster.
func (c cluster) Open(ctx context.Context, n int, _ *pki.Credential) (*client.Client, error) {
	from := c.w.clients[n%len(c.w.clients)]
	return client.Open(ctx, c.w.hosts[n%len(c.w.hosts)].address(), client.Config{Dial: from.Dial, Logger: c.w.trace.logger("clients")})
}

// OpenLocks implements workload.Cluster.
func (c cluster) OpenLocks(n int) (*session.Client, error) {
	var addrs session.Addresses
	for _, h := range c.w.hosts {
		addrs = append(addrs, h.address())
	}
	return session.NewClient(session.Config{Locator: addrs, Dial: c.w.clients[n%len(c.w.clients)].Dial, Logger: c.w.trace.logger("clients")})
}

// Nodes implements workload.Cluster.
func (c cluster) Nodes() (names []string) {
	for _, h := range c.w.hosts {
		names = append(names, h.name)
	}
	return names
}

// Up implements workload.Cluster.
func (c cluster) Up(name string) bool {
	i := slices.IndexFunc(c.w.hosts, func(h *host) bool { return h.name == name })
	return i >= 0 && c.w.hosts[i].state == serving
}
