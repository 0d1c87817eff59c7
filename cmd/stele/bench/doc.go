// Package bench has the command bench: the benchmarks of section 7 of the paper, and YCSB. The workloads
// are internal/bench, the reports internal/bench/report.
//
// A localNode is a temporary node in this process, for --local. Node meters read the processor time of
// nodes from their metrics.
package bench
