// Package moment names moments of a node at which a fault is most likely to show a mistake: between what is durable and its
// acknowledgement, between two steps of a change, before an answer is sent. The simulation makes faults and delays at them
// (test/simulation/world/ambush.go), by its seed. In all other programs Pass does nothing, and the compiler removes it.
//
// A moment is named for what it is, not for a mistake that it might show. The caller may hold locks, but none that another node
// could need: the goroutine may sleep in Pass, and the process may be killed meanwhile. The package starts no goroutine.
package moment
