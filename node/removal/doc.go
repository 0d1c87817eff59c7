// Package removal has the nodes that an operator has removed from the cluster for good. The lock service has a mark for each: /removed/<node>.
// A node follows the marks, forgets and rejects the removed nodes, and stops if it is one of them. It keeps the list in a file, too: at its
// next start it rejects removed nodes before it reaches the lock service. The paper has no such list: its master relies on Chubby's
// session and on an operator's care.
//
// The file is JSON: {"format": 1, "cluster": the cluster's id, "nodes": [ids in order]}. A missing file is recreated. A file of another
// format or cluster is ignored.
//
// # Goroutines
//
//	goroutine   started by   ends with       does
//	Watch       the node     Ctx, removal    stops the node when it is removed
//	Follow      the node     Ctx             follows the list
//
// # Invariants
//
//	RV1. A removed node is in the list in memory before its connections are closed, so that it is not admitted again.
//	RV2. A mark that the lock service has lost is set again: a removal is never undone.
package removal
