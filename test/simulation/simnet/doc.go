// Package simnet is the simulated network of a simulated cluster: hosts, links between them, TCP
// connections and UDP packets.
//
// A [Network] has one [Host] for each machine. A host listens, dials and gossips like the network
// of an operating system: connections are net.Conn with addresses of type *net.TCPAddr, and a
// [Gossip] is a transport of memberlist. A link is the path from one host to another, in one
// direction. It delays, loses, duplicates and reorders packets, has a bandwidth, and can be cut.
//
// # TCP
//
// A connection carries bytes in order. What is written at one time is
// one segment, or more if it is large. A lost
// segment delays the later ones by a retransmission timeout. While a link is cut, segments are
// retransmitted with backoff, so that they arrive some time after it heals. A connection whose data
// is not acknowledged for Config.UserTimeout fails with ETIMEDOUT. The acknowledgement needs the
// opposite link. Each direction buffers at most Config.Window bytes, in flight or not read, and
// then the writer waits.
//
// The kernel of a host acts without its process: it accepts segments into buffers, and completes
// connects while the backlog of the listener has capacity. Therefore a frozen process needs no
// code here.
//
// Close sends the buffered data and then the end of the stream; if the host has data that was not
// read, it resets the connection. Data for a connection that the host does not have is answered
// with a reset. Acknowledgements and window updates take no time.
// Keepalive probes find that the other end is gone; an idle connection survives any cut.
//
// # UDP
//
// A packet arrives once, several times, or not at all. It is dropped if no socket has its port, or
// if the queue of that socket is full.
//
// # Time
//
// Deliveries follow Config.Now, the true time. Deadlines of a connection follow the clock of the
// goroutine that waits, since the clock of a process may drift.
//
// # Goroutines
//
// New starts the scheduler, which belongs to the caller of New and ends with Close. It owns all
// deliveries: a heap in the order of time, and of creation for equal times. Each Gossip has one
// goroutine, started by its owner, which ends with Shutdown. Nothing else is started.
//
// # Invariants
//
// Their prefix is SN.
//
// SN1. Equal seeds and equal calls, in an equal order, cause equal deliveries and equal events. No
// result depends on the order of a map or on an address.
//
// SN2. Network.mu is never held by a goroutine that waits. A goroutine that ends or stops at a wait
// blocks no other process: it is woken through a channel that has a capacity and drops surplus
// signals.
//
// SN3. A stream that ends without an error has delivered exactly the bytes written.
package simnet
