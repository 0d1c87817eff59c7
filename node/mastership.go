package node

import (
	"context"
	"errors"
	"sync/atomic"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
)

// mastership is this node's mastership during a change. Writes of the change are guarded by it: if another master has taken over,
// they fail. A nil *reign means none.
type mastership struct {
	option metaapi.SetOptions
	// wrote is set when something besides the epoch of rights was written, or may have been.
	wrote atomic.Bool
}

type mastershipKey struct{}

// mastershipIn returns the mastership under which the change of ctx runs, or nil.
func mastershipIn(ctx context.Context) *mastership {
	r, _ := ctx.Value(mastershipKey{}).(*mastership)
	return r
}

// options returns the options of a write.
func (r *mastership) options() metaapi.SetOptions {
	if r == nil {
		return metaapi.SetOptions{}
	}
	return r.option
}

// note records the outcome of a write.
func (r *mastership) note(path string, err error) {
	if r != nil && path != acl.EpochFile && (err == nil || errors.Is(err, metaapi.ErrOutcomeUnknown)) {
		r.wrote.Store(true)
	}
}
