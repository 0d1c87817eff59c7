package enrol

import (
	"context"
	"log/slog"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/hostgate"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// Service enrols hosts with join tokens, on the master's node, and manages the tokens. Other nodes forward hosts' requests.
type Service struct {
	Config
	// joins bounds the join requests of unauthenticated clients.
	joins *hostgate.Gate
	// spending is a semaphore of 1: one join token is consumed at a time.
	spending chan struct{}
}

// Config has what the service needs.
type Config struct {
	Log       *slog.Logger
	Refused   *loglimit.ByReason // of rejected requests
	ID        func() string      // this node's
	Transport func() *certs.Transport
	Meta      *namespace.Access
	Catalog   *namespace.Catalog
	Authz     *authz.Authorizer
	Changes   *changes.Changes
	Peers     Peers
	Epochs    *command.Gate
	IsMaster  func() bool
	// Signer returns the authority that signs nodes' certificates; nil if this node does not have its key.
	Signer func() *pki.Authority
	// GossipKeys returns the keys that an enrolled host gets.
	GossipKeys func() [][]byte
	// Members returns addresses of nodes, this one first.
	Members func() []string
	// FindNode returns the id of the node with that id or name.
	FindNode func(ctx context.Context, name string) (id string, err error)
	// Check returns a removal.ErrRemoved for a removed node.
	Check func(ctx context.Context, id string) error
}

// Peers calls methods of other nodes. *peers.Set implements it.
type Peers interface {
	// Call calls a method of a node. The error is that of the connection, or an *rpc.Error from the node.
	Call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error
}

// New returns a service.
func New(cfg Config) *Service {
	return &Service{Config: cfg, joins: hostgate.New(joinLimits), spending: make(chan struct{}, 1)}
}

// Register registers the methods by which hosts join, and those about tokens. The registrar rejects them on an open node.
func (s *Service) Register(r method.Registrar) {
	r.Handle(MethodJoin, rpc.Spawned, authz.Guard{To: authz.Strangers}, s.join)
	r.Handle(api.MethodCreateToken, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true}, s.create)
	r.HandleNames(api.MethodListTokens, 0, authz.Guard{To: authz.Right, Right: acl.Admin, About: authz.Always("all tokens")}, s.list)
	r.Handle(api.MethodRevokeToken, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("token")}, s.revoke)
}

// members returns the addresses of some nodes.
func (s *Service) members() []string {
	all := s.Members()
	return all[:min(len(all), certs.MembersMax)]
}
