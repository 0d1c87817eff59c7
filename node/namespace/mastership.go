package namespace

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
)

// Mastership is this node's mastership during a change. Writes of the change are guarded by it: if another master has taken over,
// they fail. A nil *Mastership means none.
type Mastership struct {
	Option metaapi.SetOptions
	// Wrote is set when something besides the epoch of rights was written, or may have been.
	Wrote atomic.Bool
}

type mastershipKey struct{}

// WithMastership returns ctx for a change under a mastership, whose writes have option o.
func WithMastership(ctx context.Context, o metaapi.SetOptions) context.Context {
	return context.WithValue(ctx, mastershipKey{}, &Mastership{Option: o})
}

// MastershipIn returns the mastership under which the change of ctx runs, or nil.
func MastershipIn(ctx context.Context) *Mastership {
	r, _ := ctx.Value(mastershipKey{}).(*Mastership)
	return r
}

// options returns the options of a write.
func (r *Mastership) options() metaapi.SetOptions {
	if r == nil {
		return metaapi.SetOptions{}
	}
	return r.Option
}

// note records the outcome of a write.
func (r *Mastership) note(path string, err error) {
	if r != nil && path != acl.EpochFile && (err == nil || errors.Is(err, metaapi.ErrOutcomeUnknown)) {
		r.Wrote.Store(true)
	}
}

// EpochBytes returns the content of an epoch file: the previous epoch, so that each write differs.
func EpochBytes(before uint64) []byte { return binary.BigEndian.AppendUint64(nil, before) }
