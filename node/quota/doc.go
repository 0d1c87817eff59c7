// Package quota bounds what tables and principals use: the rates of what they read and write, and
// the bytes that they take. The paper (§2) has accounting by column family and leaves quotas to
// the servers' administrators.
//
// # Nouns
//
//   - A Record is a quota, as the lock service keeps it: of a table or of a principal.
//   - A Meter is what one server knows of one quota: a bucket for each kind of rate.
//   - A bucket lets units in at a rate, and some at once. It is one number, the moment at which all
//     that was let in is paid for. What is not known before, such as the bytes of a read, is
//     charged afterwards; whoever comes next waits until it is paid.
//   - A share is the part of a cluster's rate that one server may let in, from 0 to 1.
//   - A Reporter chooses what a server tells the master of its meters; a round is what it tells at once.
//   - An Allotter is the master's: it divides rates among the servers.
//   - A Ledger is the master's, too: it adds up the bytes that tables take.
//
// # Shares
//
// Rates are the cluster's; each server lets in its share, without asking anybody. It tells the
// master twice a second what it was asked for and which shares it goes by, and is told which to
// go by from then on. The master gives a server what it needs if there is enough for all, and
// what is left in equal parts; else in equal parts to those that need more (max-min fairness).
// A server that refuses has need of all, and one that is idle keeps a small part, so that the first
// request after a pause is not refused.
//
// A server tells of quotas that were used since its last round, and of all when it or the master is new, and once a minute:
// so what a thousand idle quotas cost is a message without any. The master takes it that what a server does not tell of was
// not used there and that its share is what it was. It tells a server that tells nothing of a quota to go by another share only
// if another one needs what it has, or after all have stopped using it, so that they have equal parts again.
//
// A share that is taken from one server is given to another only when the first has said that it
// goes by less. So shares are never more than one together, whatever answers are lost, but for
// a while after a server has begun: that one takes an equal part until the master has answered.
// A master that is new lets all servers tell it what they have, for three seconds at most, before it changes anything. A
// server that hears nothing goes on with what it has, and the master leaves it that.
//
// What a bucket has saved is kept in units when its share changes: shares that go back and forth let no
// more in than the rate.
//
// # Goroutines
//
// None. Meters are used by many at once, without a lock; an Allotter has one, which is never held
// while anything is waited for.
//
// # Invariants
//
//	Q1. In any span of time a bucket lets in no more than its rate times the span, its burst,
//	    and one request.
//	Q2. Whoever is refused and comes back when he was told to, and nobody else meanwhile, is let in, unless the server's
//	    share is a small part then still.
//	Q3. Of servers that have heard from a master, the shares are at most 1 together, unless one of them has seemed
//	    dead to it.
package quota
