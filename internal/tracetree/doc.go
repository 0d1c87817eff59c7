// Package tracetree gathers the traces of requests from all nodes of a cluster, and orders those of one trace as a tree: what `stele trace`
// and the console show. It starts goroutines only in Gather, which waits for them.
package tracetree
