package health

import (
	"cmp"
	"slices"

	"github.com/steledb/stele/client"
)

// NodeErrors are requests to one node that failed alike.
type NodeErrors struct {
	Node   string `json:"node"` // its name
	NodeID string `json:"node_id"`
	client.ErrorCount
}

// ErrorsOf returns the failed requests that a node reports.
func ErrorsOf(n *client.NodeInfo, s *client.SlowRequests) []NodeErrors {
	all := make([]NodeErrors, len(s.Errors))
	for i, e := range s.Errors {
		all[i] = NodeErrors{NameOf(n), n.ID, e}
	}
	return all
}

// SortErrors sorts failed requests, the most frequent first.
func SortErrors(all []NodeErrors) {
	slices.SortStableFunc(all, func(a, b NodeErrors) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Node, b.Node)) })
}

// NodeSlow are requests of one kind that took long on one node.
type NodeSlow struct {
	Node   string `json:"node"` // its name
	NodeID string `json:"node_id"`
	client.SlowCount
}

// SlowOf returns the slow requests that a node reports, by kind.
func SlowOf(n *client.NodeInfo, s *client.SlowRequests) []NodeSlow {
	all := make([]NodeSlow, len(s.Slow))
	for i, k := range s.Slow {
		all[i] = NodeSlow{NameOf(n), n.ID, k}
	}
	return all
}

// SortSlow sorts slow requests, those first that took the most time together.
func SortSlow(all []NodeSlow) {
	slices.SortStableFunc(all, func(a, b NodeSlow) int { return cmp.Or(cmp.Compare(b.Took, a.Took), cmp.Compare(a.Node, b.Node)) })
}
