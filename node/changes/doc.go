// Package changes runs the changes of the cluster's namespace: schemas, rights, quotas, tokens and nodes (paper §4: Chubby holds them).
//
// Changes run one at a time on a node. In a cluster with certificates only the master's node makes them, for a caller that is authorized
// again when it is the change's turn, and each write is guarded by the mastership that the change began under: a change that was
// authorized cannot be written after another master has revoked the right (I12).
//
// Each running change has a goroutine, which outlives its caller, and one that watches the mastership. End waits for them.
package changes
