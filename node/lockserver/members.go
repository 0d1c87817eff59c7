package lockserver

import (
	"context"
	"strings"
	"time"

	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// memberService is the lock service for a node that is not the master's: only the master's node writes rights.
type memberService struct{ metaapi.Service }

// checkRightsPath rejects paths below aclDir and securityDir.
func checkRightsPath(p string) error {
	for _, dir := range []string{namespace.ACLDir, namespace.SecurityDir} {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			return &metaapi.SystemFileError{Path: p}
		}
	}
	return nil
}

// Set implements metaapi.Service.
func (s memberService) Set(ctx context.Context, p string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	for _, p := range o.Paths(p) {
		if err := checkRightsPath(p); err != nil {
			return 0, err
		}
	}
	return s.Service.Set(ctx, p, data, gen, o)
}

// Delete implements metaapi.Service.
func (s memberService) Delete(ctx context.Context, p string, gen uint64, o metaapi.SetOptions) error {
	if err := checkRightsPath(p); err != nil {
		return err
	}
	return s.Service.Delete(ctx, p, gen, o)
}

// SetACL implements metaapi.Service.
func (s memberService) SetACL(ctx context.Context, p, acl string, o metaapi.SetOptions) (uint64, error) {
	if err := checkRightsPath(p); err != nil {
		return 0, err
	}
	return s.Service.SetACL(ctx, p, acl, o)
}

// Acquire implements metaapi.Service.
func (s memberService) Acquire(ctx context.Context, id metaapi.SessionID, p string, mode metaapi.Mode, wait, delay time.Duration) (metaapi.Grant, error) {
	if err := checkRightsPath(p); err != nil {
		return metaapi.Grant{}, err
	}
	return s.Service.Acquire(ctx, id, p, mode, wait, delay)
}
