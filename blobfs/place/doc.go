// Package place computes on which nodes an extent belongs, by weighted rendezvous hashing (Thaler
// and Ravishankar, "Using name-based mappings to increase hit rates", 1998; weights as in
// Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005). Every node that has the
// same membership computes the same placement without communication. In GFS the master decides.
//
// The package is pure: it has no state, no clock and no I/O.
//
// # Nouns
//
//   - A node has a weight, which is its capacity, and a zone: nodes that fail together, such as a
//     rack.
//   - A key identifies what is placed.
//   - A rank is the order of the nodes for one key.
//
// # The score
//
// A node's score for a key is -w/ln(h), where w is the node's weight and h a hash of key and node
// between 0 and 1. The highest score ranks first. A node ranks first for a share of all keys that
// equals its share of all weights. When a node leaves, only its own keys move; when one joins, only
// the keys that it gains.
//
// Weights are rounded down to 32 steps per power of two, so that small changes of capacity usually
// change nothing. A share may be off by 3 % for that.
//
// # Invariants
//
//	PL1. The rank is a function of the key and the nodes' IDs and weights, on every machine
//	    and in every version.
//	PL2. Choose returns no node that is full, draining or taken, and none twice.
//	PL3. Choose takes a second node of a zone only when no zone with fewer is left.
package place
