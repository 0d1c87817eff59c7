package lockserver

import (
	"context"
	"log/slog"
	"sync"

	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// Config has what the lock service for others needs. All fields are required.
type Config struct {
	Ctx        context.Context // ends when the node closes
	Background *sync.WaitGroup
	Log        *slog.Logger
	// MemoryBytes is the memory of the node, of which users may hold a part: see ShareOf.
	MemoryBytes int64
	// SystemPaths are the paths that nodes use for themselves.
	SystemPaths []string
	Authz       *authz.Authorizer
	// Group returns the node's Raft group; nil if the node does not vote.
	Group func() Group
	// Elsewhere returns the error of a node that does not vote: a *NotLeaderError.
	Elsewhere func() error
	// Confirmed reports whether it is certain that the node's group is the cluster's. A group with other members needs no such proof.
	Confirmed func() bool
	// Master returns the id of the last known master.
	Master func() string
}

// Group is the part of the node's Raft group that the lock service needs.
type Group interface {
	userGroup
	Service() metaapi.Service
	Members() []raftmeta.Member
	Stats() raftmeta.Stats
}

// Service is the lock service as other nodes and clients get it by RPC.
type Service struct{ Config }

// New returns the lock service for others.
func New(cfg Config) *Service { return &Service{cfg} }

// ForCall returns the lock service for the caller. node states that the caller identifies itself as a node, which only counts on an open
// cluster.
func (sv *Service) ForCall(c *rpc.Call, node bool) (metaapi.Service, error) {
	caller := authz.SubjectOf(c)
	group := sv.Group()
	if group == nil {
		return nil, sv.Elsewhere()
	}
	if !sv.Confirmed() && len(group.Members()) == 1 {
		return nil, &metaapi.NotLeaderError{}
	}
	switch {
	case caller == nil && node:
		return group.Service(), nil
	case caller.Restricted():
		return sv.forUser(caller, c.Method(), group)
	case caller != nil:
		if caller.Peer.Name == sv.Master() {
			return group.Service(), nil
		}
		return memberService{group.Service()}, nil
	}
	return clientService{group.ServiceFor(ShareOf(sv.MemoryBytes, authz.OpenClients)), group, sv.SystemPaths}, nil
}

// Guard returns the guard of a method of the lock service.
func Guard(method string) authz.Guard {
	if method == metaapi.MethodKeepAlive {
		return authz.Guard{To: authz.Own} // it runs on a goroutine that must not wait
	}
	return authz.Guard{To: authz.Right, Right: acl.Write}
}

// forUser returns the lock service for a principal.
func (sv *Service) forUser(caller *authz.Subject, method string, group userGroup) (metaapi.Service, error) {
	if method == metaapi.MethodKeepAlive {
		err, known := sv.rightCached(caller)
		switch {
		case !known:
			sv.lookUpRight(caller)
			return nil, errAsking
		case err != nil:
			return nil, sv.Authz.Refuse(method, caller, sv.Authz.Rights.Recode(err))
		}
	}
	inner := clientService{group.ServiceFor(ShareOf(sv.MemoryBytes, caller.Owner())), group, sv.SystemPaths}
	return userService{inner, group, "user " + caller.Owner() + ": ", sv, caller}, nil
}
