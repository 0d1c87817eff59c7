package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// masterPoll is the interval at which a change checks that this node is still the master.
const masterPoll = 200 * time.Millisecond

// asMaster runs a change while this node is master, if the caller is still authorized, and cancels it when the mastership ends:
// a node that is cut off would retry forever. On an open node it only runs the change. The caller holds c.running.
func (c *changes) asMaster(ctx context.Context, a authz.ChangeRequest, do func(ctx context.Context) error) error {
	if c.authz.Open {
		return do(ctx)
	}
	epoch := c.master().Epoch()
	o, err := c.masterOption(ctx)
	if err != nil {
		return err
	}
	if err := c.authz.Reauthorize(ctx, a); err != nil { // after the mastership was read, before anything is written
		return err
	}
	ctx, cancel := context.WithCancel(namespace.WithMastership(ctx, o))
	defer cancel()
	c.background.Go(func() {
		for ctx.Err() == nil && c.master().Epoch() == epoch {
			timing.Sleep(ctx, masterPoll)
		}
		cancel()
	})
	err = notMasterNow(do(ctx))
	if err != nil && ctx.Err() != nil && c.ctx.Err() == nil {
		return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("the node is no longer the master: %w", err))
	}
	return err
}

// masterOption returns the option of a write that succeeds only while this node is master. Within a change it is the mastership
// that the change began under.
func (c *changes) masterOption(ctx context.Context) (metaapi.SetOptions, error) {
	if r := namespace.MastershipIn(ctx); r != nil {
		return r.Option, nil
	}
	q := c.master().Sequencer()
	if c.master().Epoch() == 0 || q.Path == "" {
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

// setAsMaster writes a file while this node is master, and returns a known outcome as catalog.set does.
func (c *changes) setAsMaster(ctx context.Context, path string, data []byte, gen uint64) (made uint64, err error) {
	o, err := c.masterOption(ctx)
	if err != nil {
		return 0, err
	}
	err = namespace.Settle(ctx, func(ctx context.Context, again bool) error {
		made, err = c.meta.SetGuarded(ctx, path, data, gen, o)
		if !again || !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
		f, getErr := c.meta.Get(ctx, path)
		if getErr == nil && string(f.Data) == string(data) { // an earlier attempt succeeded
			made = f.Generation
			return nil
		}
		return errors.Join(err, getErr)
	})
	return made, notMasterNow(err)
}

// deleteAsMaster removes a file while this node is master. A missing file is not an error.
func (c *changes) deleteAsMaster(ctx context.Context, path string) error {
	o, err := c.masterOption(ctx)
	if err != nil {
		return err
	}
	err = namespace.Settle(ctx, func(ctx context.Context, _ bool) error {
		err := c.meta.DeleteGuarded(ctx, path, metaapi.AnyGeneration, o)
		if errors.Is(err, metaapi.ErrNotFound) {
			return nil
		}
		return err
	})
	return notMasterNow(err)
}
