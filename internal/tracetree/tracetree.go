package tracetree

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
)

// Span is a request in a trace.
type Span struct {
	client.Trace
	Node, NodeID string
	Depth        int           // below the root, as set by Tree
	After        time.Duration // from the first arrival of a request of the trace, by the clocks of the nodes, as set by Tree

	names map[string]string // of nodes by id
}

// NameOf returns the name of a node, or its id if the node is not known.
func (s Span) NameOf(id string) string { return cmp.Or(s.names[id], id) }

// Gather returns the requests of a trace from all nodes, or of all traces if id is empty, the newest first. unknown are the nodes that did not
// answer, with the reason. Errors: client.ErrPermission, and those of Nodes.List.
func Gather(ctx context.Context, c *client.Client, id string) (spans []Span, unknown []string, err error) {
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var active sync.WaitGroup
	names := map[string]string{}
	for i := range nodes {
		names[nodes[i].ID] = health.NameOf(&nodes[i])
	}
	for i := range nodes {
		n := &nodes[i]
		active.Go(func() {
			traces, failed := of(ctx, c, n, id)
			mu.Lock()
			defer mu.Unlock()
			if failed != nil {
				unknown = append(unknown, health.NameOf(n)+": "+failed.Error())
			}
			if errors.Is(failed, client.ErrPermission) {
				err = failed
			}
			for _, t := range traces {
				spans = append(spans, Span{Trace: t, Node: health.NameOf(n), NodeID: n.ID, names: names})
			}
		})
	}
	active.Wait()
	slices.Sort(unknown)
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Or(cmp.Compare(b.EndMS, a.EndMS), cmp.Compare(a.Span, b.Span)) })
	return spans, unknown, err
}

func of(ctx context.Context, c *client.Client, n *client.NodeInfo, id string) ([]client.Trace, error) {
	if n.State != api.NodeAlive {
		return nil, errors.New("it is " + n.State)
	}
	x, err := c.Nodes().Traces(ctx, n.RPC, id)
	if err != nil {
		return nil, err
	}
	return x.Traces, nil
}

// Tree returns the spans of one trace in the order of a tree: each is followed by those that it caused, the earliest first. Spans whose parent
// is unknown, such as a client's, are roots.
func Tree(spans []Span) []Span {
	known := map[string]bool{}
	children := map[string][]Span{} // by parent
	for i := range spans {
		known[spans[i].Span] = true
	}
	var began int64
	for _, s := range spans {
		if began == 0 || s.BeganUS < began {
			began = s.BeganUS
		}
		parent := s.Parent
		if !known[parent] || parent == s.Span {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	t := tree{children: children, began: began}
	t.add("", 0)
	return t.all
}

type tree struct {
	children map[string][]Span
	began    int64
	all      []Span
}

// add appends the spans that a span caused. Each is appended once, so that spans which claim to cause each other end.
func (t *tree) add(parent string, depth int) {
	below := t.children[parent]
	delete(t.children, parent)
	slices.SortStableFunc(below, func(a, b Span) int { return cmp.Compare(a.BeganUS, b.BeganUS) })
	for _, s := range below {
		s.Depth, s.After = depth, time.Duration(s.BeganUS-t.began)*time.Microsecond
		t.all = append(t.all, s)
		t.add(s.Span, depth+1)
	}
}
