// Package judge decides whether the history of a simulated cluster was right. It reads histories of package workload, makes no call,
// and is deterministic: the same history has the same violations, in the same order.
//
// # Nouns
//
//   - A Violation names an invariant that a history breaks, with the operations that show it.
//   - A model is a sequential specification for Porcupine: a row with its table (rows.go), a file, a lock.
//   - A part of a history is the operations on one object of a model. A part whose check takes more than Options.Steps is undecided: it
//     is reported as such. Steps are counted, not time, so that a result does not depend on the machine.
//
// # Invariants
//
// Of histories, for all faults:
//
//	SJ1. Operations on a row are linearizable (rows). This includes those of unknown outcome, which may take effect at any later time,
//	     the creation and the drop of the row's table and families, rows that scans return or omit, and the reads in the end. A cleared range of rows is a
//	     deletion of each of its rows, of each at a moment of its own, and a table that is undropped has what it had when it was dropped. The
//	     cell of an aggregate family has each acknowledged operand once, and one of unknown outcome at most once. A write with an idempotency
//	     token is one operation, however often it is sent. So an
//	     acknowledged cell exists in the end unless it was deleted or overwritten, and a table that is created again is empty. Of two drops of
//	     a table or a family beside each other both may be acknowledged.
//	SJ2. Server timestamps of a row grow, in the order in which its writes take effect (timestamps, rows).
//	SJ3. No operation on a table that was called after its drop returned is acknowledged, nor reads what was written before, unless the
//	     table is created again (dropped tables). A table that was created is there until its drop is called (created tables).
//	SJ4. A scan returns keys of its range in strictly ascending order, at most as many as its limit, and each row that was acknowledged
//	     before and not deleted (scans).
//	SJ5. The reads of different clients in the end are equal (final reads).
//	SJ6. Operations on a file of the lock service are linearizable (files), and those on a lock that is held exclusively (locks).
//	SJ7. Two sessions hold a lock at the same time only if both holds are shared. Generations of a lock grow (holds).
//	SJ8. No operation of a user is acknowledged that was called after the revocation of its right returned (rights),
//	     and none is rejected that was called after the grant returned (granted rights).
//	SJ9. A stored blob is listed, and read as it was written, until its deletion is called. After the deletion returned it is not listed
//	     (blobs).
//	SJ10. The tablets of each table cover the key space once, and no tablet is in two rows of METADATA (METADATA).
//	SJ11. No client gets an error that means corruption, and none finds a violation by itself (clients).
//	SJ12. While there are no faults and everything is served, operations of each kind on rows, and on files, succeed (peace).
//	SJ13. The timestamp of a value is the one of the write's answer, and the same in each read; the versions of a column are in the descending order of
//	     theirs (cell timestamps, rows).
//	SJ14. A server timestamp is one that a server's clock can have shown between the call of the write and its answer, and no cell is
//	     read that is from the future of all clocks (clocks).
//	SJ15. Each row of a table that is restored from a backup is as it was at some moment between the request of the backup and the time at which it
//	     was made, or that servers' clocks can have shown as its time (rows), and remains so: a restored table that no client writes is read the same each time, and so are all tables that are restored
//	     from a backup. A backup that was made is listed and can be restored until its deletion is called (backups).
//	SJ16. In each chain of tokens of a change stream each acknowledged mutation comes exactly once, as a whole, and one of unknown outcome at
//	     most once. Those of a row come with growing numbers, in an order that their calls and returns permit. No other mutation comes. When a
//	     call returns no change, all that was acknowledged before its call has come (change streams).
//	SJ17. A table that is renamed has one name at a time: no operation by its old name that was called after the rename returned is
//	     acknowledged (table names), and none by its new name does not find it (created tables). It has the same rows under each (rows).
//	SJ18. Through a view clients read and change only what is of it (clients), and that as without it (rows). No operation through a view that was called
//	     after its drop returned is acknowledged, and none does not find a view that was added (views).
//	SJ19. A row of a table that follows another cluster's is what it was in the source after some of its changes, in the order of the source's change stream: each
//	     made once. It is never in an earlier state again, unless the table is created again. All changes that were acknowledged before the replication was
//	     created, or longer ago than the lag that the follower reports, as exactly as clocks are, are made in each copied row. The stream's changes make the rows of the source
//	     (followers). Cells of families that were dropped have no order; the last reads of both clusters (SW18 of package world) have them.
package judge
