package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// change runs a change of the catalog. Changes run one at a time. A change that has begun is finished even if the caller leaves:
// otherwise namespace and tablet servers could disagree on the tables, and writes to a table that only one of them knows would be
// lost. A caller whose ctx ends first gets a deadline error, and the change continues under the node's context. In a cluster with
// certificates the master's node makes the change, if the caller is still authorized when it is its turn: see asMaster.
func (n *Node) change(ctx context.Context, a asked, do func(ctx context.Context) error) error {
	select {
	case n.changing <- struct{}{}:
	case <-ctx.Done():
		return &rpc.Error{Code: rpc.CodeDeadlineExceeded, Message: "the deadline passed while other changes of the schema were made",
			Details: map[string]any{"executed": 0}}
	case <-n.ctx.Done():
		return metaapi.ErrClosed
	}
	if n.ctx.Err() != nil { // select chooses at random among ready cases
		<-n.changing
		return metaapi.ErrClosed
	}
	done := make(chan error, 1)
	go func() { // at most one at a time: it holds n.changing
		defer func() { <-n.changing }()
		err := n.asMaster(n.ctx, a, do)
		if err != nil && ctx.Err() != nil {
			n.log.Warn("schema change failed after its caller left", "err", err)
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

// endChanges waits for the running change until ctx ends, then cancels it, and prevents new ones. The next start reads the
// outcome from the namespace.
func (n *Node) endChanges(ctx context.Context) {
	select {
	case n.changing <- struct{}{}:
	case <-ctx.Done():
		n.cancel()
		n.changing <- struct{}{}
	}
	n.cancel()
	<-n.changing
}
