// Package advertise determines the address that a node advertises to other hosts, when the address that it
// listens on does not have that: 0.0.0.0 cannot be dialled from another host.
//
// The package starts no goroutine.
package advertise
