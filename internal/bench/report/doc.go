// Package report stores the results of measurements: a file readable by programs and later
// versions, Markdown tables, and a chart of runs side by side.
//
// # The file
//
// The file is one JSON object:
//
//	format    "stele-bench"
//	version   1; a reader rejects a higher one. Fields may be added without a new
//	          version, so readers ignore unknown fields
//	time      start of the measurement, RFC 3339
//	program   version, commit and go: of the client, which is the same program
//	machine   of the client: os, arch, kernel, cpu, cpus, memory_bytes, and load, the
//	          load average of the last minute before the measurement
//	cluster   nodes: their number; local: they were started for the measurement;
//	          versions: of their programs
//	settings  batch, value_bytes, rate, read_s, family, major, connections, memory: as
//	          given, omitted if not
//	runs      one for each measured combination of settings:
//	  rows, operations, tablets, clients
//	  results   one for each workload, in the order of bench.Workloads:
//	    workload, rows (in the table), ops, bad, seconds, ops_per_s
//	    p50_us, p99_us, p999_us, max_us     latency of a call, in microseconds
//	    kinds      of YCSB: for each kind of operation name, ops, bad and latency
//	    client     cpu_us, allocs, alloc_bytes, each per operation
//	    nodes      the same for all nodes together, with log_commits_per_append and
//	               log_append_us (the mean); omitted if unknown
//	    paper_ops_per_s, paper_ratio        of the paper's workloads
//
// # Terms
//
//   - A Report is the content of the file. A Run is a combination of settings, a
//     Result the result of one workload.
//   - A label distinguishes the results of a report: the workload, and the settings
//     of the run that differ between runs.
//
// The package starts no goroutine.
package report
