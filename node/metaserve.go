package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/quota"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// lockServiceForOthers returns the lock service as nodes and clients get it by RPC. It is not offered before it is certain that the
// node's group is the cluster's: see settleEpoch. A group with other members needs no such proof.
func (n *Node) lockServiceForOthers(c *rpc.Call, node bool) (metaapi.Service, error) {
	caller := authz.SubjectOf(c)
	group, _ := n.voter.group()
	if group == nil {
		return n.lockService()
	}
	if !n.confirmed.Load() && len(group.Members()) == 1 {
		return nil, &metaapi.NotLeaderError{}
	}
	switch {
	case caller == nil && node:
		return group.Service(), nil
	case caller.Restricted():
		return n.lockServiceFor(caller, c.Method(), group)
	case caller != nil:
		if masterID, _ := n.epochs.Last(); caller.Peer.Name == masterID {
			return group.Service(), nil
		}
		return memberService{group.Service()}, nil
	}
	return clientService{group.ServiceFor(n.cfg.lockShare(openClients)), group}, nil
}

// systemPaths are the paths that nodes use for themselves in the lock service.
var systemPaths = []string{
	namespace.ClusterPath, namespace.IDsPath, master.LockPath, namespace.NodesDir, namespace.ServersDir, namespace.RemovedDir, metadata.RootPath, namespace.TablesDir, recoveryDir, blobsDir, namespace.LogsDir,
	gc.StatePath, namespace.ACLDir, namespace.SecurityDir, progressDir, quota.Dir,
}

// checkSystemPath rejects a system path, and paths below one.
func checkSystemPath(path string) error {
	top := path
	if i := strings.IndexByte(strings.TrimPrefix(path, "/"), '/'); i >= 0 {
		top = path[:i+1]
	}
	if slices.Contains(systemPaths, top) {
		return &metaapi.SystemFileError{Path: path}
	}
	return nil
}

// clientService is the lock service for clients that do not identify themselves as nodes. It protects system files from mistakes:
// a typo in "stele lock set" must not lose a table. It does not protect from malice on an open cluster, where any client can claim
// to be a node; certificates do.
type clientService struct {
	metaapi.Service
	group interface{ Sessions() int }
}

// OpenSession implements metaapi.Service. It keeps some sessions free for nodes.
func (s clientService) OpenSession(ctx context.Context, name string, lease time.Duration) (metaapi.SessionID, time.Duration, error) {
	const most = metaapi.SessionsMax - metaapi.SessionsForNodes
	if open := s.group.Sessions(); open >= most {
		return 0, 0, &metaapi.TooLargeError{What: metaapi.LimitSessions, Limit: most, Got: int64(open) + 1}
	}
	return s.Service.OpenSession(ctx, name, lease)
}

// Set implements metaapi.Service.
func (s clientService) Set(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	if err := checkSystemPath(path); err != nil {
		return 0, err
	}
	return s.Service.Set(ctx, path, data, gen, o)
}

// Delete implements metaapi.Service.
func (s clientService) Delete(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	if err := checkSystemPath(path); err != nil {
		return err
	}
	return s.Service.Delete(ctx, path, gen, o)
}

// SetACL implements metaapi.Service.
func (s clientService) SetACL(ctx context.Context, path, acl string, o metaapi.SetOptions) (uint64, error) {
	if err := checkSystemPath(path); err != nil {
		return 0, err
	}
	return s.Service.SetACL(ctx, path, acl, o)
}

// Acquire implements metaapi.Service. The holder of the lock of a node's file would keep that node from serving.
func (s clientService) Acquire(ctx context.Context, id metaapi.SessionID, path string, mode metaapi.Mode, wait, delay time.Duration) (metaapi.Grant, error) {
	if err := checkSystemPath(path); err != nil {
		return metaapi.Grant{}, err
	}
	return s.Service.Acquire(ctx, id, path, mode, wait, delay)
}
