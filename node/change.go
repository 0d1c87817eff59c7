package node

import (
	"context"
	"log/slog"
	"sync"

	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// changes runs changes of the namespace, one at a time. In a cluster with certificates only the master's node makes them, while it is
// the master.
type changes struct {
	log        *slog.Logger
	ctx        context.Context // of the node; changes run under it
	cancel     context.CancelFunc
	background *sync.WaitGroup
	meta       *namespace.Access
	authz      *authz.Authorizer
	master     func() *master.Master
	running    chan struct{} // a semaphore of 1
}

// do runs a change of the catalog. Changes run one at a time. A change that has begun is finished even if the caller leaves:
// otherwise namespace and tablet servers could disagree on the tables, and writes to a table that only one of them knows would be
// lost. A caller whose ctx ends first gets a deadline error, and the change continues under the node's context. In a cluster with
// certificates the master's node makes the change, if the caller is still authorized when it is its turn: see asMaster.
func (c *changes) do(ctx context.Context, a authz.ChangeRequest, do func(ctx context.Context) error) error {
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: "the deadline passed while other changes of the schema were made",
			Details: map[string]any{"executed": 0}}
	case <-c.ctx.Done():
		return metaapi.ErrClosed
	}
	if c.ctx.Err() != nil { // select chooses at random among ready cases
		<-c.running
		return metaapi.ErrClosed
	}
	done := make(chan error, 1)
	go func() { // at most one at a time: it holds c.running
		defer func() { <-c.running }()
		err := c.asMaster(c.ctx, a, do)
		if err != nil && ctx.Err() != nil {
			c.log.Warn("schema change failed after its caller left", "err", err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return rpc.Errorf(rpc.CodeDeadlineExceeded, "the deadline passed while the schema is changed; the change continues")
	}
}

// end waits for the running change until ctx ends, then cancels it, and prevents new ones. The next start reads the
// outcome from the namespace.
func (c *changes) end(ctx context.Context) {
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		c.cancel()
		c.running <- struct{}{}
	}
	c.cancel()
	<-c.running
}
