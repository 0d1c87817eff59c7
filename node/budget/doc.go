// Package budget divides a node's memory (I13): each part of a node gets a share from outside and bounds itself by it. What connections and
// sorts of dead servers' logs take, which comes and goes, is reserved in the block caches. No goroutines.
//
// # Invariants
//
//	MB1. The shares, and what the Go runtime does not count, are no more than the node's memory.
//	MB2. Memory of connections and sorts is taken from the caches before it is used.
package budget
