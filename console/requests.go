package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/tracetree"
)

// requestsShown is the number of slow requests that are shown.
const requestsShown = 100

// requestsView is what the page of requests shows.
type requestsView struct {
	Threshold time.Duration
	Total     int64 // of all nodes, since their starts
	Slow      []health.NodeSlow
	Requests  []requestRow
	Errors    []health.NodeErrors
	Minutes   int // that Slow and Errors are of
	Sampled   []tracetree.Span
	Unknown   []string // nodes that did not answer, with the reason
}

// requestRow is a slow request.
type requestRow struct {
	client.SlowRequest
	Node, NodeID string
}

// requestsPage shows the slow requests of all nodes, the newest first.
func requestsPage(ctx context.Context, q *query) (*content, error) {
	nodes, err := q.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	x := &requestsView{Minutes: api.ErrorMinutes}
	if err := x.ask(ctx, q.Client, nodes); err != nil {
		return nil, err
	}
	health.SortSlow(x.Slow)
	x.Slow = x.Slow[:min(len(x.Slow), requestsShown)]
	health.SortErrors(x.Errors)
	x.Errors = x.Errors[:min(len(x.Errors), requestsShown)]
	slices.SortFunc(x.Requests, func(a, b requestRow) int { return int(b.EndMS - a.EndMS) })
	x.Requests = x.Requests[:min(len(x.Requests), requestsShown)]
	if x.Sampled, err = sampled(ctx, q.Client); err != nil {
		return nil, err
	}
	return &content{Title: "Requests", Template: "requests.html", Section: "Requests", Data: x}, nil
}

// ask adds the requests of all nodes. Errors: that of a user without the right.
func (x *requestsView) ask(ctx context.Context, c *client.Client, nodes []client.NodeInfo) error {
	var mu sync.Mutex
	for i := range nodes {
		if nodes[i].State != api.NodeAlive {
			x.Unknown = append(x.Unknown, health.NameOf(&nodes[i])+": it is "+nodes[i].State)
		}
	}
	err := eachNode(nodes, func(n *client.NodeInfo) error {
		s, err := c.Nodes().SlowRequests(ctx, n.RPC)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			x.Unknown = append(x.Unknown, health.NameOf(n)+": "+err.Error())
			return err
		}
		x.add(n, s)
		return nil
	})
	slices.Sort(x.Unknown)
	if errors.Is(err, client.ErrPermission) {
		return onePermission(err)
	}
	return nil
}

func (x *requestsView) add(n *client.NodeInfo, s *client.SlowRequests) {
	x.Total += s.Total
	x.Slow = append(x.Slow, health.SlowOf(n, s)...)
	x.Errors = append(x.Errors, health.ErrorsOf(n, s)...)
	if x.Threshold == 0 || s.Threshold < x.Threshold { // nodes may have different ones
		x.Threshold = s.Threshold
	}
	for _, r := range s.Requests {
		x.Requests = append(x.Requests, requestRow{r, health.NameOf(n), n.ID})
	}
}

// sampled returns the last requests that were kept at random, or because their callers asked for it. Slow ones are listed anyway.
func sampled(ctx context.Context, c *client.Client) ([]tracetree.Span, error) {
	all, _, err := tracetree.Gather(ctx, c, "")
	all = slices.DeleteFunc(all, func(s tracetree.Span) bool { return s.Kept == api.TraceSlow })
	return all[:min(len(all), requestsShown)], err
}
