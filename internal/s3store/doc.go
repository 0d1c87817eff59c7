// Package s3store keeps backups in a bucket of a server that speaks the protocol of Amazon S3: it is a backupdir.Store. The format of the objects is that of
// package backupdir, so that a directory of backups can be copied to a bucket, and the other way round.
//
// An object of at most partBytes is collected in memory and stored by one request under its name. A larger one is uploaded in parts to tmp/, and then copied to
// its name by the server: the name is known only at its end. Both appear as a whole or not at all. Each request has the MD5 and the SHA-256 of its bytes,
// which the server verifies.
//
// Requests that fail for a reason that may pass, such as a status of 500 or a lost connection, are repeated with pauses, attempts times at most. A read that breaks off
// continues at its position. An Error names the bucket, the object and what to do.
//
// # The lock
//
//	lock/N   {"holder":"32 DIGITS","free":false}; the one with the largest number counts
//
// A caller acquires the lock by creating the object with the next number, under the condition that it does not exist (If-None-Match), and if after that no
// larger number exists. It may do so if the largest one is free, or was not written for lockLease by the server's clock: its holder was killed. The holder writes its object
// every lockRenew, and stops when it finds a larger number or could not write for lockLease less lockRenew. To release the lock it marks its object as free: the largest object stays, so that no number is used
// twice. Objects with smaller numbers are removed.
//
// # Goroutines
//
//	goroutine   started by   ends with   does
//	renew       Lock         unlock      keeps the lock
//
// # Invariants
//
//	SS1. An object appears as a whole, with the bytes that were sent, or not at all.
//	SS2. Two callers hold the lock only if one of them was stopped for lockLease, and then only until it finds that out, before its next request for the lock.
//	SS3. Memory is bounded: one part for each call of Create, and the answers of listings, which have 1000 objects each.
package s3store
