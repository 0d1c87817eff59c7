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
