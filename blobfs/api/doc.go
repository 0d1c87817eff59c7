// Package api is what the store of one node offers to the others: the words, the
// errors, the interface, and all of that on the wire. Package blobfs implements
// the interface on one side and calls it on the other.
//
// GFS (§3.1, §3.2 of its paper) has the same flow of data: it is pushed along a chain
// of replicas, each of which forwards what it receives.
package api
