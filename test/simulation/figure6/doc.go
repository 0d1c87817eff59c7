// Command figure6 models the paper's Figure 6: operations per second and server on 1 to 500 tablet servers, as many clients as servers.
//
//	go run ./test/simulation/figure6
//
// A server's rate is the least that its processors, its network link and its part of the network's root allow. The model of the paper has
// its rates with one server, and two parameters that are fitted: what is left of a machine beside other jobs, and the bandwidth of the
// root. That of this cluster has rates and costs that were measured (docs/performance.md, docs/scale.md), and no fitted parameter.
//
// # What is not modeled
//
// Imbalance of load, cold caches of clients, compactions that fall behind, and reads of tablets that have moved: until a compaction, such
// reads transfer blocks from other nodes, as those of the paper always do.
//
// # Goroutines
//
// The package starts none.
package main
