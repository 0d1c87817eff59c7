package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client/api"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
)

// reign is the time during which this node is master, for a change that is made in it. What the
// change writes is written in it alone: another master may have taken the right to it since, and
// said so. The nil *reign is none.
type reign struct {
	option metaapi.SetOptions
	// wrote is set when something was written, or may have been, beside the epoch of rights.
	wrote atomic.Bool
}

type reignKey struct{}

// reignIn returns the reign of the change that runs under ctx, if there is one.
func reignIn(ctx context.Context) *reign {
	r, _ := ctx.Value(reignKey{}).(*reign)
	return r
}

// options are those of a write.
func (r *reign) options() metaapi.SetOptions {
	if r == nil {
		return metaapi.SetOptions{}
	}
	return r.option
}

// note takes note of how a write has ended.
func (r *reign) note(path string, err error) {
	if r != nil && path != acl.EpochFile && (err == nil || errors.Is(err, metaapi.ErrOutcomeUnknown)) {
		r.wrote.Store(true)
	}
}

// masterPoll is how often it is seen whether this node is still the master.
const masterPoll = 200 * time.Millisecond

// asMaster makes a change in this node's reign, if who asks for it may have it made, and gives it
// up when that is over: cut off from the others, it would try for ever. On an open node it just
// makes it. The caller holds n.changing.
func (n *Node) asMaster(ctx context.Context, a asked, do func(ctx context.Context) error) error {
	if n.security == nil {
		return do(ctx)
	}
	epoch := n.master.Epoch()
	o, err := n.masterOption(ctx)
	if err != nil {
		return err
	}
	if err := n.stillAsked(ctx, a); err != nil { // after the reign was looked at, before anything is written
		return err
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, reignKey{}, &reign{option: o}))
	defer cancel()
	n.background.Go(func() {
		for ctx.Err() == nil && n.master.Epoch() == epoch {
			pause(ctx, masterPoll)
		}
		cancel()
	})
	err = notMasterNow(do(ctx))
	if err != nil && ctx.Err() != nil && n.ctx.Err() == nil {
		return told(api.ErrUnsure, fmt.Errorf("the node is not the master any more: %w", err))
	}
	return err
}

// masterOption is the option of a write that is made only while this node is master: in a change,
// without a break since that was begun.
func (n *Node) masterOption(ctx context.Context) (metaapi.SetOptions, error) {
	if r := reignIn(ctx); r != nil {
		return r.option, nil
	}
	q := n.master.Sequencer()
	if !n.isMaster() || q.Path == "" {
		return metaapi.SetOptions{}, errNotMaster
	}
	return metaapi.SetOptions{Guard: q}, nil
}

// notMasterNow is what is told of a write that was refused since this node is master no more. One
// that was tried before, and may have come through, stays unknown.
func notMasterNow(err error) error {
	if errors.Is(err, metaapi.ErrStale) && !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		return errNotMaster
	}
	return err
}
