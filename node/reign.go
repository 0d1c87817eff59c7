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

// masterPoll is the interval at which a change checks that this node is still the master.
const masterPoll = 200 * time.Millisecond

// asMaster runs a change while this node is master, if the caller is still authorized, and cancels it when the mastership ends:
// a node that is cut off would retry forever. On an open node it only runs the change. The caller holds n.changing.
func (n *Node) asMaster(ctx context.Context, a asked, do func(ctx context.Context) error) error {
	if n.security == nil {
		return do(ctx)
	}
	epoch := n.master.Epoch()
	o, err := n.masterOption(ctx)
	if err != nil {
		return err
	}
	if err := n.authz.stillAsked(ctx, a); err != nil { // after the mastership was read, before anything is written
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
		return told(api.ErrUnsure, fmt.Errorf("the node is no longer the master: %w", err))
	}
	return err
}

// masterOption returns the option of a write that succeeds only while this node is master. Within a change it is the mastership
// that the change began under.
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

// notMasterNow converts the error of a write that was refused because this node is no longer the master. An earlier attempt with
// an unknown outcome stays unknown.
func notMasterNow(err error) error {
	if errors.Is(err, metaapi.ErrStale) && !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		return errNotMaster
	}
	return err
}
