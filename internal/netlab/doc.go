// Package netlab provides a network with faults for tests. Its hosts are network namespaces of one
// machine, joined by a bridge, and run real processes. Packets between any two hosts can be dropped
// in one direction or both. Processes can be killed and paused. It needs Linux and iproute2, and
// does not affect the machine it runs on.
//
// # Implementation
//
// Main runs the test binary again as the first process of its own user, network, mount and PID
// namespaces. A test therefore needs no privileges. When the test ends in any way, the kernel kills
// all its processes and removes all namespaces and interfaces. If the kernel forbids this, Main
// reports it and the package's tests fail.
//
// Each Host is another network namespace with one interface on the Lab's bridge. Hosts have
// permanent neighbor entries for each other's link addresses, so there is no ARP. A packet is
// dropped by setting the receiver's link address at the sender to one that no host has: the packet
// is sent, as on a real network, and the sender gets no error. This takes effect at once, also for
// open connections. It needs neither a packet filter nor a queueing discipline, which many kernels
// lack.
//
// # Terms
//
//   - A Lab is a network of hosts. Here is the host that runs the test itself.
//   - A Host is a machine as far as the network is concerned: it has its own address
//     and ports. It shares files, clock and memory with the others.
//   - A Process runs on a host.
//   - A cut is the loss of all packets from one host to another.
//
// # Invariants
//
//	NL1. A cut takes effect before Cut returns, in that direction only.
//	NL2. After Heal all hosts can reach each other.
//	NL3. When the test binary ends, in any way, its processes end.
package netlab
