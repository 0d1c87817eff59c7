package changes

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

// Changes runs changes of the namespace, one at a time. In a cluster with certificates only the master's node makes them, while it is
// the master.
type Changes struct {
	Config
	running chan struct{} // a semaphore of 1
}

// Config has what changes need.
type Config struct {
	Log        *slog.Logger
	Ctx        context.Context // of the node; changes run under it
	Cancel     context.CancelFunc
	Background *sync.WaitGroup
	Meta       *namespace.Access
	Authz      *authz.Authorizer
	Master     func() *master.Master // nil before the node's start
}

// New returns Changes that run under cfg.Ctx.
func New(cfg Config) *Changes {
	return &Changes{Config: cfg, running: make(chan struct{}, 1)}
}

// Do runs a change of the catalog. Changes run one at a time. A change that has begun is finished even if the caller leaves:
// otherwise namespace and tablet servers could disagree on the tables, and writes to a table that only one of them knows would be
// lost. A caller whose ctx ends first gets a deadline error, and the change continues under the node's context. In a cluster with
// certificates the master's node makes the change, if the caller is still authorized when it is its turn: see package doc.
func (c *Changes) Do(ctx context.Context, a authz.ChangeRequest, do func(ctx context.Context) error) error {
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: "the deadline passed while other changes of the schema were made",
			Details: map[string]any{"executed": 0}}
	case <-c.Ctx.Done():
		return metaapi.ErrClosed
	}
	if c.Ctx.Err() != nil { // select chooses at random among ready cases
		<-c.running
		return metaapi.ErrClosed
	}
	done := make(chan error, 1)
	go func() { // at most one at a time: it holds c.running
		defer func() { <-c.running }()
		err := c.asMaster(c.Ctx, a, do)
		if err != nil && ctx.Err() != nil {
			c.Log.Warn("schema change failed after its caller left", "err", err)
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

// End waits for the running change until ctx ends, then cancels it, and prevents new ones. The next start reads the
// outcome from the namespace.
func (c *Changes) End(ctx context.Context) {
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		c.Cancel()
		c.running <- struct{}{}
	}
	c.Cancel()
	<-c.running
}

// Hold makes changes wait until release is called. It is for tests.
func (c *Changes) Hold() (release func()) {
	c.running <- struct{}{}
	return func() { <-c.running }
}
