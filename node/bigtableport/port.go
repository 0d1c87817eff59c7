package bigtableport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/bigtable"
	"github.com/steledb/stele/gateway/bigtableadmin"
	"github.com/steledb/stele/gateway/server"
	"github.com/steledb/stele/node/actfor"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/tokenauth"
)

// Config is what a Port needs.
type Config struct {
	Log *slog.Logger
	// Listen opens the port. It is called once.
	Listen func() (net.Listener, error)
	// Guard makes a listener use TLS; on an open node it returns it. At most strangersMax connections have no certificate, nor a token yet.
	Guard func(l net.Listener, strangersMax int) net.Listener
	// MemoryBytes bounds the memory of calls.
	MemoryBytes int64
	Authz       *authz.Authorizer
	Tokens      *tokenauth.Service
	// NodeAddr is the address of the node's own port, and Client the configuration of connections to nodes.
	NodeAddr string
	Client   client.Config
	// Sessions makes clients use sessions.
	Sessions bool
	// StrictLimits rejects requests beyond the limits of Google's service.
	StrictLimits bool
	// Peer describes the node to clients.
	Peer bigtable.Peer
	// AppProfiles returns the app profiles of the cluster. Its errors become statuses by package errcode.
	AppProfiles func(ctx context.Context) ([]client.AppProfile, error)
	// Failed is called if the port cannot be served any more.
	Failed func(error)
}

// clientBytes is the memory of a client for one principal, with its connections: the port may use as much of it as of calls.
const clientBytes = 1 << 20

// rowShare is the part of the memory of calls, as a divisor, that a row may have: as much as a request may.
const rowShare = 6

// strangersShare is the part of the connections, as a divisor, that may be without a credential.
const strangersShare = 4

// Port is an open port.
type Port struct {
	cfg     Config
	addr    net.Addr
	server  *server.Server
	clients *actfor.Clients
	serving chan struct{} // closed when serve has ended
}

// Open opens the port and serves it.
func Open(cfg Config) (*Port, error) {
	l, err := cfg.Listen()
	if err != nil {
		return nil, fmt.Errorf("listen for clients of Cloud Bigtable: %w", err)
	}
	p := &Port{cfg: cfg, addr: l.Addr(), serving: make(chan struct{})}
	p.clients = actfor.NewClients(actfor.Config{Addr: cfg.NodeAddr, Client: cfg.Client, Max: int(max(16, cfg.MemoryBytes/clientBytes))})
	p.server = server.New(server.Config{
		Logger: cfg.Log, MemoryBytes: cfg.MemoryBytes, Caller: p.caller,
		Data: bigtable.Config{Open: func(ctx context.Context, name, view string) (bigtable.Table, error) {
			c, err := callerOf(ctx).client(ctx, false)
			if err != nil {
				return nil, err
			}
			t := c.Table(name)
			if view != "" {
				t = t.View(view)
			}
			return t, nil
		}, Profiles: cfg.AppProfiles, Peer: cfg.Peer, Sessions: cfg.Sessions, StrictLimits: cfg.StrictLimits, RowBytesMax: cfg.MemoryBytes / rowShare},
		Admin: bigtableadmin.Config{StrictLimits: cfg.StrictLimits, Open: func(ctx context.Context) (bigtableadmin.Tables, bigtableadmin.Nodes, error) {
			c, err := callerOf(ctx).client(ctx, true)
			if err != nil {
				return nil, nil, err
			}
			return c.Tables(), c.Nodes(), nil
		}, OpenRights: func(ctx context.Context) (bigtableadmin.Caller, bigtableadmin.Grants, error) {
			c, err := callerOf(ctx).client(ctx, true)
			if err != nil {
				return nil, nil, err
			}
			return c, c.Grants(), nil
		}, OpenBackups: func(ctx context.Context) (bigtableadmin.Backups, error) {
			c, err := callerOf(ctx).client(ctx, true)
			if err != nil {
				return nil, err
			}
			return c.Backups(), nil
		}, OpenProfiles: func(ctx context.Context) (bigtableadmin.Profiles, error) {
			c, err := callerOf(ctx).client(ctx, true)
			if err != nil {
				return nil, err
			}
			return c.AppProfiles(), nil
		}, OpenBundles: func(ctx context.Context, table string) (bigtableadmin.Bundles, error) {
			c, err := callerOf(ctx).client(ctx, true)
			if err != nil {
				return nil, err
			}
			return c.Tables().SchemaBundles(table), nil
		}},
	})
	go p.serve(cfg.Guard(l, max(1, server.ConnsMax(cfg.MemoryBytes)/strangersShare))) // ends with Close
	return p, nil
}

func (p *Port) serve(l net.Listener) {
	defer close(p.serving)
	if err := p.server.Serve(l); err != nil {
		p.cfg.Failed(fmt.Errorf("serve clients of Cloud Bigtable: %w", err))
	}
}

// Addr returns the address of the port, or "" for a nil Port.
func (p *Port) Addr() string {
	if p == nil {
		return ""
	}
	return p.addr.String()
}

// closeShare is the part of the time of Close, as a divisor, after which calls are cancelled: the rest of the node needs time, too.
const closeShare = 3

// Close ends the calls at the port. Those that have not ended after a part of the time of ctx are cancelled. It works on a nil Port.
func (p *Port) Close(ctx context.Context) {
	if p == nil {
		return
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/closeShare)
		defer cancel()
	}
	p.server.Shutdown(ctx)
	<-p.serving
	p.clients.Close()
}
