package formation

import "fmt"

// OtherClusterError means that nodes are of two clusters.
type OtherClusterError struct {
	Address      string // of the other node
	Node         string // the other's name, if known
	Ours, Theirs string // cluster ids
}

func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("node %s at %s is of cluster %s and this one of cluster %s: check what each was told to join; "+
		"a node moves to another cluster with empty data folders only", e.Node, e.Address, e.Theirs, e.Ours)
}

// OtherKeyError means that nodes have different gossip keys.
type OtherKeyError struct {
	Address string // of the other node
	Node    string // the other's name, if known
}

func (e *OtherKeyError) Error() string {
	return fmt.Sprintf("node %s at %s has another gossip key than this one: give all nodes the same", e.Node, e.Address)
}

// PromisedError means that a node which has promised another to let it found the
// cluster was started to found one alone.
type PromisedError struct{ Promise Promise }

func (e *PromisedError) Error() string {
	return fmt.Sprintf("this node has promised node %s, then at %s, that it may found the cluster: start it with --join as before, "+
		"or with empty data folders to found another", e.Promise.Founder, e.Promise.RPC)
}

// RefusedError means that the cluster does not admit the node.
type RefusedError struct {
	Address string // of the member that refused
	Reason  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("cluster member at %s refuses this node: %s", e.Address, e.Reason)
}
