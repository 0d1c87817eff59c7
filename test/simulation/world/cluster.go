package world

import (
	"context"
	"net"
	"slices"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/test/simulation/simnet"
)

// cluster implements workload.Cluster.
type cluster struct{ w *World }

// config returns the configuration of a client on a host.
func (c cluster) config(from *simnet.Host) client.Config {
	return client.Config{Dial: from.Dial, Logger: c.w.trace.logger("clients")}
}

func (c cluster) open(ctx context.Context, n int, cfg client.Config) (*client.Client, error) {
	h := c.w.hosts[n%len(c.w.hosts)]
	if h == c.w.absent {
		h = c.w.hosts[(n+1)%len(c.w.hosts)]
	}
	return client.Open(ctx, h.address(), cfg)
}

func (c cluster) from(n int) *simnet.Host { return c.w.clients[n%len(c.w.clients)] }

// Open implements workload.Cluster.
func (c cluster) Open(ctx context.Context, n int, as *pki.Credential) (*client.Client, error) {
	cfg := c.config(c.from(n))
	if cfg.Credential = as; as == nil {
		cfg.Credential = c.w.admin()
	}
	return c.open(ctx, n, cfg)
}

// OpenToken implements workload.Cluster.
func (c cluster) OpenToken(ctx context.Context, n int, as token.Token) (*client.Client, error) {
	cfg := c.config(c.from(n))
	cfg.Token = as
	return c.open(ctx, n, cfg)
}

// OpenLocks implements workload.Cluster.
func (c cluster) OpenLocks(n int) (*session.Client, error) {
	var addrs session.Addresses
	for _, h := range c.w.hosts {
		addrs = append(addrs, h.address())
	}
	dial := c.from(n).Dial
	if admin := c.w.admin(); admin != nil {
		plain, endpoint := dial, pki.NewEndpoint(admin, pki.Options{})
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := plain(ctx, addr)
			if err != nil {
				return nil, err
			}
			return endpoint.Over(ctx, "", conn)
		}
	}
	return session.NewClient(session.Config{Locator: addrs, Dial: dial, Logger: c.w.trace.logger("clients")})
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

// admin returns the credential of the administrator; nil in an open cluster.
func (w *World) admin() *pki.Credential {
	if w.secured == nil {
		return nil
	}
	return w.secured.admin
}
