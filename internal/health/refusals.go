package health

import (
	"context"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// refusalRequests bounds the requests to nodes at once.
const refusalRequests = 16

// Refusals returns the numbers of requests that rate quotas have rejected on all nodes in the last minutes, by api.QuotaText. Nodes that do not
// answer are left out.
func Refusals(ctx context.Context, c *client.Client) map[string]int64 {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var mu sync.Mutex
	var active sync.WaitGroup
	places := make(chan struct{}, refusalRequests)
	all := map[string]int64{}
	for i := range nodes {
		if nodes[i].State != api.NodeAlive {
			continue
		}
		places <- struct{}{}
		active.Go(func() {
			defer func() { <-places }()
			a, err := c.Nodes().Activity(ctx, nodes[i].RPC)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range a.QuotaRefusals {
				all[r.Quota] += r.N
			}
		})
	}
	active.Wait()
	return all
}
