package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/text"
)

// Bounds of probe.
const (
	probesMax    = 8
	probeTimeout = time.Second
)

// probe asks the first nodes that are dead for their status, and returns their errors by id.
func probe(ctx context.Context, c *client.Client, nodes []client.NodeInfo) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var mu sync.Mutex
	var probes sync.WaitGroup
	all, count := map[string]error{}, 0
	for i := range nodes {
		n := &nodes[i]
		if n.State == api.NodeAlive || n.State == api.NodeLeft || count == probesMax {
			continue
		}
		count++
		probes.Go(func() {
			_, err := c.Nodes().Status(ctx, n.RPC)
			if errors.Is(err, client.ErrPermission) {
				err = nil // it answers
			}
			mu.Lock()
			defer mu.Unlock()
			all[n.ID] = err
		})
	}
	probes.Wait()
	return all
}

// cause returns why a node did not answer, without the addresses that the error repeats.
func cause(err error) string {
	var network *net.OpError
	var system *os.SyscallError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + probeTimeout.String()
	case errors.As(err, &system):
		return system.Err.Error()
	case errors.As(err, &network):
		return network.Err.Error()
	}
	return err.Error()
}

// Problem returns that a node is down, why as far as it is known, and what to do about it. Empty: it is not down.
func (n *Node) Problem() string {
	since := text.Uptime(time.Duration(n.StateForS * float64(time.Second)))
	next := fmt.Sprintf("start it again, or remove it for good by \"stele node remove %s\"", n.Name)
	switch {
	case n.State == api.NodeAlive:
		return ""
	case n.State == api.NodeLeft && n.Reason != "":
		return fmt.Sprintf("node %s ended by itself %s ago: mend the cause and %s; its reason: %s", n.Name, since, next, n.Reason)
	case n.State == api.NodeLeft:
		return fmt.Sprintf("node %s was stopped %s ago: %s", n.Name, since, next)
	case n.Answers:
		return fmt.Sprintf("node %s is %s to the others for %s, and answers requests: check its gossip port, and the network between the nodes", n.Name, n.State, since)
	}
	why := ""
	if n.Silence != "" {
		why = ", " + n.Silence
	}
	return fmt.Sprintf("node %s is %s for %s%s: the last lines of its log on its host have the reason; %s", n.Name, n.State, since, why, next)
}
