package health

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// clientsAtOnce is the number of nodes whose client processes are read at the same time.
const clientsAtOnce = 16

// Clients are the client processes that reported to any node in the last minutes, each with its last report.
type Clients struct {
	All      []client.ClientProcess
	Rejected int64    // reports that nodes rejected since their starts
	Unknown  []string // nodes that do not answer, with the cause
}

// ReadClients returns the client processes. The error is client.ErrPermission without the right to read on the cluster.
func ReadClients(ctx context.Context, c *client.Client) (*Clients, error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards all and denied
	all, denied := &Clients{}, error(nil)
	var group sync.WaitGroup
	places := make(chan struct{}, clientsAtOnce)
	for i := range nodes {
		n := &nodes[i]
		if n.State != api.NodeAlive {
			continue
		}
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			l, err := c.Nodes().Clients(ctx, n.RPC)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, client.ErrPermission):
				denied = err
			case err != nil:
				all.Unknown = append(all.Unknown, NameOf(n)+": "+err.Error())
			default:
				all.All, all.Rejected = append(all.All, l.Processes...), all.Rejected+l.Rejected
			}
		})
	}
	group.Wait()
	all.All = lastReports(all.All)
	slices.Sort(all.Unknown)
	return all, denied
}

// lastReports returns the last report of each process, in the order of users and names.
func lastReports(all []client.ClientProcess) []client.ClientProcess {
	slices.SortFunc(all, func(a, b client.ClientProcess) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.ID, b.ID), cmp.Compare(b.AtMS, a.AtMS))
	})
	all = slices.CompactFunc(all, func(a, b client.ClientProcess) bool { return a.User == b.User && a.ID == b.ID })
	slices.SortStableFunc(all, func(a, b client.ClientProcess) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Name, b.Name))
	})
	return all
}
