package authority

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/stages"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// Service holds the authority's key, signs with it, and replaces the authority. Safe for concurrent use. On an open node it holds nothing,
// and its methods are rejected before they reach it.
type Service struct {
	Config
	// issuer is the authority; nil on a node without its key.
	issuer atomic.Pointer[pki.Authority]
	// next is the authority that will replace it, and record the state of the replacement that this node knows; nil if there is
	// none. Each step of it holds rolling.
	next      atomic.Pointer[pki.Authority]
	record    atomic.Pointer[rollover.Record]
	rolling   sync.Mutex
	promoting promotions
	progress  stages.Progress
}

// Config has what the service needs.
type Config struct {
	Ctx       context.Context // of the node
	Log       *slog.Logger
	Transport func() *certs.Transport // nil on an open node
	Name      string                  // of this node: it is in the certificate
	ID        func() string           // this node's
	Meta      *namespace.Access
	Catalog   *namespace.Catalog
	Authz     *authz.Authorizer
	Changes   *changes.Changes
	Peers     Peers
	IsMaster  func() bool
	Voter     func() Voter
	// Issuers returns the nodes, besides this one, that should have the authority's key, the master first.
	Issuers func() []string
	// Nodes returns the ids of all nodes of the cluster.
	Nodes func(ctx context.Context) ([]string, error)
	// Check returns a removal.ErrRemoved for a removed node.
	Check func(ctx context.Context, id string) error
	// RotateGossipKey starts a rotation of the gossip key.
	RotateGossipKey func(ctx context.Context) error
	// Period is the interval at which the record is read while there is one. Zero means 500 ms.
	Period time.Duration
}

// Voter is the node's part in the group of the lock service. Its lock is held while the node becomes a voter, or stops being one.
type Voter interface {
	// Votes reports whether the node votes. changed is closed when that changes.
	Votes() (votes bool, changed <-chan struct{})
	// VotesToo reports whether this node votes, and that one is of the same group.
	VotesToo(id string) bool
	sync.Locker
}

// Peers calls methods of other nodes. *peers.Set implements it.
type Peers interface {
	// Call calls a method of a node. The error is that of the connection, or an *rpc.Error from the node.
	Call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error
}

// New returns a service without keys. Hold sets them.
func New(cfg Config) *Service {
	return &Service{Config: cfg, progress: stages.Progress{Dir: stages.Dir, ID: cfg.ID, Meta: cfg.Meta, Catalog: cfg.Catalog}}
}

// Hold sets the authorities whose keys are in the node's directory of keys; nil for none.
func (s *Service) Hold(issuer, next *pki.Authority) {
	s.issuer.Store(issuer)
	s.next.Store(next)
}

// Holds reports whether the node has the authority's key.
func (s *Service) Holds() bool { return s.issuer.Load() != nil }

// Register registers the methods between nodes about the authority's key, and those for replacing the authority. The registrar rejects
// them on an open node.
func (s *Service) Register(r method.Registrar) {
	r.Handle(MethodRenew, rpc.Spawned, authz.Guard{}, s.renew)
	r.Handle(MethodIssuer, rpc.Spawned, authz.Guard{}, s.nameIssuer)
	r.Handle(MethodKey, rpc.Spawned, authz.Guard{}, s.giveKey)
	r.Handle(api.MethodRotateAuthority, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Rotated}, s.rotate)
	r.HandleNames(api.MethodAuthorityStatus, 0, authz.Guard{To: authz.Right, Right: acl.Admin, About: authz.Always("the authority")}, s.status)
}
