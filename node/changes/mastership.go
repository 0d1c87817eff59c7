package changes

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

// ErrNotMaster means that only the master's node makes the change. It is an api.ErrUnavailable.
var ErrNotMaster = fmt.Errorf("%w: the node is not the master", api.ErrUnavailable)

// MasterPoll is the interval at which a change checks that this node is still the master.
const MasterPoll = 200 * time.Millisecond

// asMaster runs a change while this node is master, if the caller is still authorized, and cancels it when the mastership ends:
// a node that is cut off would retry forever. On an open node it only runs the change. The caller holds c.running.
func (c *Changes) asMaster(ctx context.Context, a authz.ChangeRequest, do func(ctx context.Context) error) error {
	if c.Authz.Open {
		return do(ctx)
	}
	epoch := c.Master().Epoch()
	o, err := c.MasterOption(ctx)
	if err != nil {
		return err
	}
	if err := c.Authz.Reauthorize(ctx, a); err != nil { // after the mastership was read, before anything is written
		return err
	}
	ctx, cancel := context.WithCancel(namespace.WithMastership(ctx, o))
	defer cancel()
	c.Background.Go(func() {
		for ctx.Err() == nil && c.Master().Epoch() == epoch {
			timing.Sleep(ctx, MasterPoll)
		}
		cancel()
	})
	err = NotMasterNow(do(ctx))
	if err != nil && ctx.Err() != nil && c.Ctx.Err() == nil {
		return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("the node is no longer the master: %w", err))
	}
	return err
}

// MasterOption returns the option of a write that succeeds only while this node is master. Within a change it is the mastership
// that the change began under.
func (c *Changes) MasterOption(ctx context.Context) (metaapi.SetOptions, error) {
	if r := namespace.MastershipIn(ctx); r != nil {
		return r.Option, nil
	}
	q := c.Master().Sequencer()
	if c.Master().Epoch() == 0 || q.Path == "" {
		return metaapi.SetOptions{}, ErrNotMaster
	}
	return metaapi.SetOptions{Guard: q}, nil
}

// NotMasterNow converts the error of a write that was refused because this node is no longer the master. An earlier attempt with
// an unknown outcome stays unknown.
func NotMasterNow(err error) error {
	if errors.Is(err, metaapi.ErrStale) && !errors.Is(err, metaapi.ErrOutcomeUnknown) {
		return ErrNotMaster
	}
	return err
}

func (c *Changes) catalog() *namespace.Catalog { return &namespace.Catalog{Meta: c.Meta} }

// SetAsMaster writes a file while this node is master, and returns a known outcome as catalog.set does.
func (c *Changes) SetAsMaster(ctx context.Context, path string, data []byte, gen uint64) (made uint64, err error) {
	o, err := c.MasterOption(ctx)
	if err != nil {
		return 0, err
	}
	made, err = c.catalog().SetWith(ctx, path, data, gen, o)
	return made, NotMasterNow(err)
}

// DeleteAsMaster removes a file while this node is master. A missing file is not an error.
func (c *Changes) DeleteAsMaster(ctx context.Context, path string) error {
	o, err := c.MasterOption(ctx)
	if err != nil {
		return err
	}
	if err = c.catalog().RemoveWith(ctx, path, metaapi.AnyGeneration, o); errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return NotMasterNow(err)
}
