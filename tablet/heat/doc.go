// Package heat measures which rows of a tablet are read and written. A Tablet has exact counters and a bounded sample of rows; Take returns
// the counters since the last Take, divided among ranges of rows by the sample. Not in the paper: its §9 asks for monitoring of what a
// system does, and a map of keys over time shows why a table is slow. TiDB's Key Visualizer has the counters of whole regions instead; a
// tablet is larger than a region, so it needs parts.
//
// A note costs three atomic additions, a scan as much for all of its rows, and a sampled row a lock. A read costs one reading of the clock for each
// tablet; a write none, because the commit log has read it. Times are from the arrival of the request at the node until the row is read or the
// mutation is durable. Those of a scan are shared by its rows. Each side, reads and writes, keeps every row until its sample is full.
// Then half of the sample is dropped, and half as many rows are kept from there on. So few operations are recorded exactly, and many at the
// same cost for all. Reads and writes have samples of their own, so that a few writes among many reads are seen.
//
// A sampled operation has the name of its user, so that the users of a hot row can be named. Names are interned: a tablet keeps a pointer.
//
// The package starts no goroutine.
//
//	HM1. The sum of the buckets that Take returns, over all calls, equals what was noted: operations, bytes and µs, of reads and of writes.
//	HM2. A tablet takes at most TabletBytesMax of memory for this, whatever its rows are, apart from the names of users, of which there is one copy of at most userMax
//	     bytes in the process.
//	HM3. Buckets ascend and do not overlap. Those of Take are within the tablet.
package heat
