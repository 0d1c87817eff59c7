// Package report keeps what measurements came to: a file that programs and later
// versions can read, tables in Markdown, and a picture of runs side by side.
//
// # The file
//
// One object of JSON:
//
//	format    "stele-bench"
//	version   1; a reader refuses a higher one. Fields may be added without a change
//	          of version, so readers ignore what they do not know
//	time      when the measurement began, RFC 3339
//	program   version, commit and go: of the client, which is the same program
//	machine   of the client: os, arch, kernel, cpu, cpus, memory_bytes, and load, the
//	          average of the last minute before
//	cluster   nodes: how many there were; local: they were started for it; versions:
//	          of their programs
//	settings  batch, value_bytes, rate, read_s, family, major, connections, memory: as given,
//	          left out if not
//	runs      one for each combination of what was measured:
//	  rows, operations, tablets, clients
//	  results   one for each workload, in the order in which they are listed:
//	    workload, rows (in the table), ops, bad, seconds, ops_per_s
//	    p50_us, p99_us, p999_us, max_us     latency of a call, in microseconds
//	    kinds      of YCSB: for each kind of operation name, ops, bad and latency
//	    client     cpu_us, allocs, alloc_bytes, each per operation
//	    nodes      the same of all nodes together, with log_commits_per_append and
//	               log_append_us (the mean); left out if it is not known
//	    paper_ops_per_s, paper_ratio        of the paper's workloads
//
// # Nouns
//
//   - A Report is the file. A Run is a combination of settings, a Result a workload.
//   - A label tells results of a report apart: the workload, and of the run's settings
//     those that are not the same in all runs.
//
// # Goroutines
//
// None.
package report
