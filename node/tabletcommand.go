package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// handleTabletCommands registers the commands to this node's tablet server.
func (n *Node) handleTabletCommands() {
	for method, do := range map[string]func(context.Context, *tabletServer, *command.Request) (reply.Result, error){
		command.MethodHeld: func(_ context.Context, s *tabletServer, _ *command.Request) (reply.Result, error) {
			return s.held(), nil
		},
		command.MethodLoad: func(ctx context.Context, s *tabletServer, o *command.Request) (reply.Result, error) {
			err := s.load(ctx, o.Key, o.Generation)
			if errors.Is(err, metarows.ErrNoRow) || errors.Is(err, metarows.ErrChanged) {
				err = reply.Recode(api.ErrConflict, err)
			}
			return nil, err
		},
		command.MethodUnload: func(ctx context.Context, s *tabletServer, o *command.Request) (reply.Result, error) {
			generation, err := s.unload(ctx, o.Key)
			return func(e *wire.Encoder) { e.Uint(generation) }, err
		},
		command.MethodMerge: func(ctx context.Context, s *tabletServer, o *command.Request) (reply.Result, error) {
			return nil, s.merge(ctx, o.Key, o.Upper)
		},
		command.MethodSort: func(ctx context.Context, s *tabletServer, o *command.Request) (reply.Result, error) {
			return s.sort(ctx, o)
		},
	} {
		n.rpc.Handle(method, rpc.Waiting, func(c *rpc.Call) {
			var o command.Request
			if err := o.Decode(&c.Params, c.NumParams, method); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			a, err := n.execute(c, &o, do)
			if err != nil {
				c.Fail(reply.ToAPI(err))
				return
			}
			c.Reply(a)
		})
	}
}

// execute executes a command if it comes from the master and is for the current tablet server.
func (n *Node) execute(c *rpc.Call, o *command.Request, do func(context.Context, *tabletServer, *command.Request) (reply.Result, error)) (reply.Result, error) {
	s := n.server.Load()
	if s == nil || !s.is(o.Server) {
		return nil, &rpc.Error{Code: rpc.CodeUnavailable, Message: fmt.Sprintf("tablet server %s is not running here", o.Server)}
	}
	if err := n.commands.Admit(c, o.Header); err != nil {
		return nil, err
	}
	return do(c.Context(), s, o)
}
