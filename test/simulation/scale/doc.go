// Command scale runs clusters of growing size in simulated time (package bigcluster), and prints what each phase took and cost.
//
//	go run ./test/simulation/scale -nodes 10,30,100
//
// docs/scale.md has its figures, and what limits the size of a cluster.
//
// # Goroutines
//
// The package starts none.
package main
