package lockserver

import (
	"context"
	"slices"
	"strings"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
)

// clientService is the lock service for clients that do not identify themselves as nodes. It protects system files from mistakes:
// a typo in "stele lock set" must not lose a table. It does not protect from malice on an open cluster, where any client can claim
// to be a node; certificates do.
type clientService struct {
	metaapi.Service
	group  interface{ Sessions() int }
	system []string
}

// OpenSession implements metaapi.Service. It keeps some sessions free for nodes.
func (s clientService) OpenSession(ctx context.Context, name string, lease time.Duration) (metaapi.SessionID, time.Duration, error) {
	const most = metaapi.SessionsMax - metaapi.SessionsForNodes
	if open := s.group.Sessions(); open >= most {
		return 0, 0, &metaapi.TooLargeError{What: metaapi.LimitSessions, Limit: most, Got: int64(open) + 1}
	}
	return s.Service.OpenSession(ctx, name, lease)
}

// checkPath rejects a system path, and paths below one.
func (s clientService) checkPath(path string) error {
	top := path
	if i := strings.IndexByte(strings.TrimPrefix(path, "/"), '/'); i >= 0 {
		top = path[:i+1]
	}
	if slices.Contains(s.system, top) {
		return &metaapi.SystemFileError{Path: path}
	}
	return nil
}

// Set implements metaapi.Service.
func (s clientService) Set(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	for _, p := range o.Paths(path) {
		if err := s.checkPath(p); err != nil {
			return 0, err
		}
	}
	return s.Service.Set(ctx, path, data, gen, o)
}

// Delete implements metaapi.Service.
func (s clientService) Delete(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	if err := s.checkPath(path); err != nil {
		return err
	}
	return s.Service.Delete(ctx, path, gen, o)
}

// SetACL implements metaapi.Service.
func (s clientService) SetACL(ctx context.Context, path, acl string, o metaapi.SetOptions) (uint64, error) {
	if err := s.checkPath(path); err != nil {
		return 0, err
	}
	return s.Service.SetACL(ctx, path, acl, o)
}

// Acquire implements metaapi.Service. The holder of the lock of a node's file would keep that node from serving.
func (s clientService) Acquire(ctx context.Context, id metaapi.SessionID, path string, mode metaapi.Mode, wait, delay time.Duration) (metaapi.Grant, error) {
	if err := s.checkPath(path); err != nil {
		return metaapi.Grant{}, err
	}
	return s.Service.Acquire(ctx, id, path, mode, wait, delay)
}
