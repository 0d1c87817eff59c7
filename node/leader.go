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

// needsLockService are the methods that need the lock service. While it has no leader they fail at once: otherwise their callers
// would only learn that the deadline passed.
var needsLockService = map[string]bool{
	api.MethodRoot: true, api.MethodListTables: true, api.MethodDescribeTable: true,
	api.MethodCreateTable: true, api.MethodDropTable: true, api.MethodSetFamily: true, api.MethodDropFamily: true,
	api.MethodCompactTable: true, api.MethodSplitTablet: true, api.MethodMoveTablet: true, api.MethodMergeTablets: true,
	api.MethodCompactTablet: true,
}

// cancelledWithoutLeader are those of them that change nothing. They are cancelled if the leader is lost while they wait.
var cancelledWithoutLeader = map[string]bool{api.MethodRoot: true, api.MethodListTables: true, api.MethodDescribeTable: true}

// checkLeader returns an error if the lock service has no leader and this node's lease has expired because of it. It returns nil while
// there is a leader, and while the node reacquires its lock.
func (n *Node) checkLeader() error {
	s := n.tabletServer.Current()
	if s == nil || s.Serving() == nil {
		return nil
	}
	voters, there := 0, 0
	group, _ := n.voter.Group()
	alive := map[string]bool{n.id(): true}
	if n.members.Ring() != nil {
		for _, m := range n.members.Ring().Members() {
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
	return noLeaderError(voters, there)
}

// noLeaderError returns the error for a lock service without a leader, given the numbers of its voters and of those that are alive.
func noLeaderError(voters, there int) *rpc.Error {
	text := fmt.Sprintf("the lock service has no leader: %[2]d of its %[1]d voters are alive, and %[3]d are needed", voters, there, voters/2+1)
	if there <= voters/2 {
		text += `: start the others; if they are lost for good, see "stele raft recover --help"`
	} else {
		text += ": they are electing one, or cannot reach each other"
	}
	return &rpc.Error{Code: rpc.CodeUnavailable, Message: text, Retryable: true}
}

// leaderPeriod is the interval at which waiting calls check for a leader.
const leaderPeriod = 200 * time.Millisecond

// whileLeader calls do, which needs the lock service and changes nothing, and cancels it with the error of checkLeader if the leader is
// lost.
func (n *Node) whileLeader(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // ends with ctx, which this waits for
		defer close(ended)
		t := time.NewTicker(leaderPeriod)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if err := n.checkLeader(); err != nil {
					cancel(err)
				}
			}
		}
	}()
	err := do(ctx)
	cause := context.Cause(ctx)
	cancel(nil)
	<-ended
	var noLeader *rpc.Error
	if err != nil && errors.As(cause, &noLeader) {
		return noLeader
	}
	return err
}
