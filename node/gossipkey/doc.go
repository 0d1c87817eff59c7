// Package gossipkey has the key that encrypts gossip on a node, and its rotation. The key is replaced after a node was removed, after the lock
// service was recovered, and when an operator asks for it. Package security/rollover has the stages. The record of the rotation is the
// file /security/gossip of the lock service: each node follows it, and the master starts the next stage when the nodes that gossip sees have
// completed the current one. The paper has no gossip.
//
// # Goroutines
//
//	goroutine   started by   ends with   does
//	Follow      the node     Ctx         performs rotations on this node
//
// # Invariants
//
//	GK1. A key created after a removal is not given to the removed node.
//	GK2. A key is on a node's disk before the node uses it, or names it in the record.
package gossipkey
