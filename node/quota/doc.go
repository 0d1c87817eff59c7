// Package quota limits what tables and principals use: the rates of their reads and writes, and the
// bytes that tables occupy. The paper (§2) has accounting by column family and leaves quotas to
// administrators.
//
// # Nouns
//
//   - A Record is a quota of a table or a principal, as stored in the lock service.
//   - A Meter is one server's state of one quota: a bucket for each kind of rate.
//   - A bucket admits units at a rate, with a burst. Its state is one number, the moment at which all
//     admitted units are paid for. A cost that is not known beforehand, such as the bytes of a read, is
//     charged afterwards; later requests wait until it is paid.
//   - A share is the part of a cluster-wide rate that one server may admit, from 0 to 1.
//   - A Reporter selects what a server reports to the master. A round is one set of such reports.
//   - An Allocator divides the rates among the servers. It runs on the master.
//   - A Ledger adds up the bytes that tables occupy. It runs on the master.
//
// # Shares
//
// Rates are cluster-wide. Each server admits its share without asking anyone. Twice a second it reports
// its demand and its shares to the master, and gets new shares in the answer. If the rate covers the
// demand of all servers, each gets its demand and an equal part of the remainder. Otherwise servers that
// need more get equal parts (max-min fairness). A server that rejects requests counts as needing all of
// the rate. An idle server keeps a small part, so that the first request after a pause is not rejected.
//
// A server reports the quotas that were used since its last round. It reports all of them when it or the
// master is new, and once a minute. A thousand idle quotas therefore cost one empty message. For a quota
// that a server does not report, the master assumes no use and an unchanged share. It changes such a share
// only if another server needs it, or after all servers have stopped using the quota, to make the shares
// equal again.
//
// A share taken from one server is assigned to another only after the first has reported the smaller
// share. The sum of the shares therefore never exceeds one, whichever answers are lost. The exception is a
// new server, which uses an equal part until the master has answered. A new master collects the shares of
// all servers, for three seconds at most, before it changes any. A server without answers keeps its shares,
// and the master leaves them to it.
//
// When a share changes, a bucket keeps its saved units, not the saved time. Shares that move back and
// forth therefore admit no more than the rate.
//
// # Goroutines
//
// None. Meters are used concurrently without a lock. An Allocator and a Ledger each have a lock, which is
// never held across I/O.
//
// # Invariants
//
//	Q1. In any period a bucket admits no more than its rate times the period, its burst, and one request.
//	Q2. A rejected request that is retried after its wait is admitted, if nothing else was admitted
//	    meanwhile, unless the server's share is still a small part then.
//	Q3. The shares of servers that have heard from a master sum to at most 1, unless the master took one of
//	    them for dead.
package quota
