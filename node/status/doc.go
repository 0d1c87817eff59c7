// Package status reports the state of one node: the answers to ping and status, and the metrics of its tablet servers and its mastership.
// Answers to ping, and to status while the node starts, need nothing but the node's identity. The package starts no goroutines.
package status
