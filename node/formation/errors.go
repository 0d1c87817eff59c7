package formation

import "fmt"

// OtherClusterError means that two nodes belong to different clusters.
type OtherClusterError struct {
	Address      string // address of the other node
	Node         string // the other's name, if known
	Ours, Theirs string // cluster ids
}

func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("node %s at %s belongs to cluster %s, this node to cluster %s: check the addresses to join of both; "+
		"a node can join another cluster only with empty data folders", e.Node, e.Address, e.Theirs, e.Ours)
}

// OtherKeyError means that nodes have different gossip keys.
type OtherKeyError struct {
	Address string // address of the other node
	Node    string // the other's name, if known
}

func (e *OtherKeyError) Error() string {
	return fmt.Sprintf("node %s at %s has another gossip key: configure the same key on all nodes", e.Node, e.Address)
}

// NoCertificateError means that a node of a cluster with certificates was called by a fresh node that has none.
type NoCertificateError struct {
	Address string // address of the other node
}

func (e *NoCertificateError) Error() string {
	return fmt.Sprintf("the node at %s requires certificates, and this node has none", e.Address)
}

// PromisedError means that a node that has promised another one was started to found a cluster
// alone.
type PromisedError struct{ Promise Promise }

func (e *PromisedError) Error() string {
	return fmt.Sprintf("this node has promised node %s, last at %s, to let it found the cluster: start this node with --join as before, "+
		"or with empty data folders to found another cluster", e.Promise.Founder, e.Promise.RPC)
}

// RefusedError means that the cluster rejects the node for good: a retry would not help.
type RefusedError struct {
	Address string // address of the member that rejected it
	Reason  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("cluster member at %s rejects this node: %s", e.Address, e.Reason)
}
