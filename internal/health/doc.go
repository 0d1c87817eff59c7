// Package health gathers the state of a cluster from its nodes, as the user of a client may see it: for "stele status" and the console. What cannot be
// read in time is unknown, and listed as such. The paper describes no such tool; its master monitors servers for itself (§5.2). The package starts
// only goroutines that end with Of.
//
// HE1. What is unknown is never shown as zero.
package health
