package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/rpc"
)

// asksLockService are the methods that are nothing without the lock service. While no leader of it answers they are
// refused at once: who waited would learn at his deadline that it has passed, and not why.
var asksLockService = map[string]bool{
	api.MethodRoot: true, api.MethodListTables: true, api.MethodDescribeTable: true,
	api.MethodCreateTable: true, api.MethodDropTable: true, api.MethodSetFamily: true, api.MethodDropFamily: true,
	api.MethodCompactTable: true, api.MethodSplitTablet: true, api.MethodMoveTablet: true, api.MethodMergeTablets: true,
	api.MethodCompactTablet: true,
}

// givenUpUnled are those of them that change nothing: they are given up when that comes to be while they wait.
var givenUpUnled = map[string]bool{api.MethodRoot: true, api.MethodListTables: true, api.MethodDescribeTable: true}

// unled returns what there is to know while no leader of the lock service answers: this node's lease has run out over
// it. It returns nil while there is one, and for the moment in which the node takes its lock anew.
func (n *Node) unled() error {
	s := n.server.Load()
	if s == nil || s.serving() == nil {
		return nil
	}
	voters, there := 0, 0
	group, _ := n.voter.group()
	alive := map[string]bool{n.id(): true}
	if n.ring != nil {
		for _, m := range n.ring.Members() {
			alive[m.ID] = alive[m.ID] || m.State == gossip.Alive
			if group == nil && m.Voter {
				voters++
				if alive[m.ID] {
					there++
				}
			}
		}
	}
	if group != nil {
		if leader, _ := group.Leader(); leader != "" {
			return nil
		}
		for _, m := range group.Members() {
			if m.Voter {
				voters++
				if alive[m.ID] {
					there++
				}
			}
		}
	} else if there > voters/2 {
		return nil
	}
	return unledError(voters, there)
}

// unledError is the error for a lock service without a leader, by how many of its voters are there.
func unledError(voters, there int) *rpc.Error {
	text := fmt.Sprintf("no leader of the lock service answers: of its %d voters %d can be seen, and it takes %d", voters, there, voters/2+1)
	if there <= voters/2 {
		text += `: start the others; if they are lost for good, see "stele raft recover --help"`
	} else {
		text += ": they are about to elect one, or cannot reach each other"
	}
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: text, Retryable: true}
}

// unledPeriod is how often it is seen whether there is a leader still.
const unledPeriod = 200 * time.Millisecond

// whileLed does what needs the lock service and changes nothing. It is given up with what unled says.
func (n *Node) whileLed(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx, which this waits for
		defer close(ended)
		t := time.NewTicker(unledPeriod)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if err := n.unled(); err != nil {
					cancel(err)
				}
			}
		}
	}()
	err := do(ctx)
	cause := context.Cause(ctx)
	cancel(nil)
	<-ended
	var unled *rpc.Error
	if err != nil && errors.As(cause, &unled) {
		return unled
	}
	return err
}
