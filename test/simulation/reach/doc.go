// Command reach lists what the seeds of the simulation never execute. It reads the coverage of many
// seeds, merged, and the source tree, and prints a table of packages, with the percentage of statements
// that at least one seed executed, or the functions and blocks that none did:
//
//	go run ./test/simulation -cover DIR -seeds 60 -jobs 1 -virtual 60s -keep-going
//	go tool covdata textfmt -i DIR -o FILE
//	go run ./test/simulation/reach FILE
//	go run ./test/simulation/reach -blocks -package tablet FILE
//
// It runs in the root of the source tree, which must be the one that the seeds ran. REACH.md beside
// test/simulation has its table, and why the rest is not reached.
package main
