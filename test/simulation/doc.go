// Simulation runs whole clusters of Stele in simulated time, with faults of processes, disks, networks and clocks, and judges what
// clients have seen. One seed is one history: the same seed does the same, to the bit.
//
//	go run ./test/simulation -seeds 1000       run the seeds from 1 on; stop at the first violation
//	go run ./test/simulation -seed 17          run one seed and print a summary, and its last events before a violation
//	go run ./test/simulation -seed 17 -log F   write all its events to a file
//	go run ./test/simulation -twice            check that two runs of a seed are equal
//	go run ./test/simulation -bug NAME         plant a bug of internal/planted, and stop when it is found
//	go run ./test/simulation -bugs all         search for each of these bugs, and print how many seeds it took
//	go run ./test/simulation -time 1h          run seeds for an hour
//
// The program builds itself again with a patched runtime (machine/patch), and then starts one process for each seed: the state of the
// runtime cannot be reset. The parent has real time and several seeds at a time; a child has one seed and virtual time.
//
// The parts: machine (the patched runtime), simnet (the network), simdisk (the disks), workload (the clients), world (hosts, faults,
// operators, and judges while it runs), judge (judges of histories).
package main
