// Package world is a simulated cluster: real nodes on simulated hosts, real clients, a nemesis that makes faults, operators that
// change the members, and judges. [Run] runs one seed in the program, which must have been built for package machine. Everything
// follows from the seed: the plan, each fault, each operation of a client, and the order of goroutines.
//
// # Nouns
//
//   - A host is a machine with an address, a disk and a clock, and at most one process at a time, a node. A host that is gone has
//     left the cluster for good.
//   - A plan selects which faults may happen, how often and how many at a time. Each fault is on in a part of the plans.
//   - The kernel is process 0, in which all goroutines of this package run, except those of clients (process 1). Only the kernel
//     starts, stops and kills processes.
//   - An operator is a goroutine of the kernel that changes the members of the cluster as docs/operating.md describes.
//   - A follower is a second, small cluster in some plans. Its tables follow those of the first one, of which it is a user. It has faults of its own, and the links between
//     both have some. What is of one cluster is in World, and what both have in common in shared.
//   - A trace is the history: a hash of all events, and the last of them as text.
//
// # Phases of a run
//
//	found     the nodes form a cluster, with certificates in some plans, and clients create tables
//	faults    the nemesis and operators work beside clients
//	heal      all faults end; the time until everything is served is measured and bounded
//	degraded  in some plans: one host has a fault that does not end, and the others serve everything
//	full      in some plans: all disks become full, and get space again by the drop of a table
//	recovery  in some plans: clients stop, all nodes stop, and the lock service is recovered from a minority of its voters
//	end       all data is read, the follower becomes equal; METADATA, replicas and the history are judged
//
// The phases between heal and end are left out after short faults (endsFrom). Shortly after the first violation the run ends (afterViolation), and
// the history is judged.
//
// # Faults
//
// A fault is limited to what the cluster promises to survive. Only one disk of a world returns errors or corrupts sectors. Operators
// lose a disk for good only when all extents and commit logs have all replicas and all voters are alive, and not in plans with
// corruption. A recovery of the lock service may lose what the remaining voters did not get; in half of the recoveries they get everything
// first, so that nothing that was acknowledged may be lost, and in the others only SW14 is judged afterwards.
//
// # Goroutines
//
//	goroutine            started by     ends with            does
//	supervise            begin          the run              restarts a process that has ended by itself
//	one fault            nemesis        the fault            makes a fault and ends it
//	watchServed          run            the run              samples which node serves which tablet (SW2)
//	watchMetadata        run            the healed phase     reads METADATA again and again (SW3)
//	stir                 run            the faults       writes the lock service, in some plans
//	collect              run            the run              frees memory
//
// # Invariants
//
// Their prefix is SW. Those of histories are in package judge (SJ).
//
//	SW1. Service: within healMax after all faults have ended all nodes serve, the lock service takes changes, all rows of all tables
//	     can be read, and each tablet takes writes. A change of the members that an operator has begun can be finished within
//	     operatorDone.
//	SW2. One server: at no instant do two nodes serve a row, each with a lease that is valid by its own clock.
//	SW3. METADATA: at each time the tablets of each table that exists cover the key space once. In the end servers serve exactly these.
//	SW4. Replicas: in the end all extents and logs have all replicas within redundancyMax, and all of them can be read, except those on the one disk
//	     that corrupts sectors until the scrub, if it is frequent, has come to them.
//	SW5. Exits: a process ends by itself only after a fault of its disk, or if its goroutines were late by as much, when its node was removed, or when the
//	    lock service was recovered on it although old voters elected a leader.
//	SW6. Bounds: a healed node has about as many goroutines as one before the faults.
//	SW7. Recovery: the lock service can be recovered from the log of any voter that was up to date, and loses nothing then.
//	SW8. Garbage: nothing that is needed is quarantined. In the end, garbage is removed within garbageMax.
//	SW9. Voters: voters that have applied the same entries of the log have the same state of the lock service.
//	SW10. Removed: nodes that were removed are on no node's list.
//	SW11. One fault: as long as one host is down, isolated, or its disk is full or stalled, the others serve everything.
//	SW12. Full disks: a table can be dropped while all disks are full, also without one of the hosts, and when not even the reserve is left: then all
//	     servers release its tablets within releaseMax. When the disks have space again, SW1 holds.
//	SW13. Voters: within votersMax after all faults all voters have what the leader's log had then, and there are as many as there should be.
//	SW14. Ids: an id of a table or tablet is issued once, also if the lock service is recovered from a voter that lacks changes.
//	SW15. Memory: no memory is charged to writes when no client works.
//	SW16. Quotas: without faults, all servers together admit no more than the quota of a table, and not much less if clients ask for more.
//	SW17. Panics: no handler of a request panics.
//	SW18. Follower: within equalMax after all faults and writes have ended, tables of the follower have the cells of those that they follow, with their timestamps.
package world
