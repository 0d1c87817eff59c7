// Package trace records what one request did and waited for: the "detailed traces of a sample of the important actions" of the paper's §9.
//
// A Record has a fixed size and is part of the request that it describes, so recording allocates nothing. It counts for each Stage how often
// and how long the request was in it, and what it looked at. Every request is recorded, since it is known only at its end whether it took
// long. But only a sampled request reads the clock in stages that it passes in any case. The others read it where they wait, which costs more
// than a clock. The benchmark of the package has the cost of a request that is not sampled, and BenchmarkTracing of node its share of a request.
//
// A Context is the place of a request in a trace, in the W3C's Trace Context format. Records become spans when they are read or exported.
//
// The package starts no goroutine. A Record may be used by several goroutines while its request runs, and by none after its answer.
package trace
