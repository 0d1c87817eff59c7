package tabletadmin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
)

// handleUnserved registers the methods that report unserved tablets.
func (tv *Service) handleUnserved(r method.Registrar) {
	r.HandleNames(api.MethodUnservedTablets, 0, authz.Guard{To: authz.Right, Right: acl.Read}, tv.unserved) // the result contains row keys
	r.Handle(MethodUnserved, rpc.Spawned, authz.Guard{}, func(c *rpc.Call) {
		u, err := tv.unservedOfMaster()
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(u.Append)
	})
}

// unserved returns the master's list of unserved tablets.
func (tv *Service) unserved(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	u, err := tv.unservedOfMaster()
	if err == nil {
		return u.Append, nil
	}
	masterID, _ := tv.Masters.Last()
	if masterID == "" || masterID == tv.ID() {
		return nil, fmt.Errorf("%w: no master is known", api.ErrUnavailable)
	}
	u = &api.UnservedTablets{}
	err = tv.Peers.Call(ctx, masterID, MethodUnserved, func(e *wire.Encoder) { e.Array(0) }, u.Decode)
	if lost := (*rpc.ConnLostError)(nil); errors.As(err, &lost) { // the request is read-only and may be repeated
		err = reply.Recode(api.ErrUnavailable, err)
	}
	return u.Append, err
}

// unservedOfMaster returns the unserved tablets if this node is the master.
func (tv *Service) unservedOfMaster() (*api.UnservedTablets, error) {
	all, err := tv.Master().Unserved()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	u := &api.UnservedTablets{Total: int64(len(all))}
	for i := range all[:min(len(all), api.UnservedTabletsMax)] {
		u.Tablets = append(u.Tablets, unservedResult(&all[i]))
	}
	return u, nil
}

// errorTextMax bounds the error text in the result, in bytes.
const errorTextMax = 1000

func unservedResult(u *master.Unserved) api.UnservedTablet {
	x := api.UnservedTablet{Table: u.Table, Start: u.Start, Server: u.Server, Node: namespace.NodeOf(u.Server), Since: time.Since(u.Since), Tries: int64(u.Tries)}
	if u.OfMetadata() {
		x.Table, x.End = metadata.Name, metadata.RootEnd()
	}
	if u.Key != master.RootKey {
		_, x.End, _ = metadata.ParseKey([]byte(u.Key))
	}
	x.Error = fmt.Sprintf("%.*s", errorTextMax, u.Err.Error())
	return x
}
