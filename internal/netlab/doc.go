// Package netlab gives tests a network to break: hosts that are network namespaces
// of one machine, joined by a bridge, with real processes in them. Packets between
// any two hosts can be lost in one direction or both; processes are killed and
// paused by signals. It needs Linux and iproute2, and nothing of the machine that it
// runs on is touched.
//
// # How
//
// Main runs the test binary once more as the first process of user, network, mount
// and PID namespaces of its own, so a test needs no rights, and when the test ends,
// however it ends, the kernel kills every process that it started and drops every
// namespace and interface. Where the kernel forbids that, Main says so and the
// package's tests fail.
//
// Each Host is a further network namespace with one interface on the Lab's bridge.
// All hosts know each other's link addresses by permanent entries, so there is no
// ARP. A packet is lost by giving its sender a link address for the receiver that
// nobody has: the packet leaves, as on a real network, and no error tells the sender.
// This takes effect at once, for open connections too, and needs neither a packet
// filter nor a queueing discipline in the kernel, which many kernels lack.
//
// # Nouns
//
//   - A Lab is a network of hosts. Here is the host that the test itself runs on.
//   - A Host is a machine as far as the network goes: an address, ports of its own.
//     It shares files, clock and memory with the others.
//   - A Process runs on a host.
//   - A cut is the loss of all packets from one host to another.
//
// # Invariants
//
//	N1. A cut takes effect before Cut returns, in that direction alone.
//	N2. After Heal all hosts hear each other.
//	N3. When the test binary ends, by whatever means, its processes end.
package netlab
