// Package place says on which nodes an extent belongs, by weighted rendezvous hashing
// (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998;
// weights as in Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005).
// Whoever knows the same nodes finds the same places, and asks nobody. In GFS the
// master decides.
//
// The package is pure: it has no state, no clock and no I/O.
//
// # Nouns
//
//   - A node has a weight, its capacity, and a zone: a rack, say, that fails as one.
//   - A key is what is placed.
//   - A rank is the order of the nodes for one key.
//
// # The score
//
// A node's score for a key is -w/ln(h), where h is a hash of key and node between 0 and
// 1, and w its weight; the highest comes first. A node is first for a share of
// all keys that is its share of all weights, whoever else there is. When a node
// goes, only its own keys move; when one comes, only those that become its own.
//
// Weights are rounded down to 32 steps for each power of two, so that a capacity which
// changes by little changes nothing, most times; a share may be off by 3 % for it.
//
// # Invariants
//
//	L1. The rank is a function of the key and the nodes' IDs and weights, on every
//	    machine and in every version.
//	L2. Choose returns no node that is full or leaving, none twice, and none that is taken.
//	L3. Choose takes a second node of a zone only when no zone with fewer is left.
package place
