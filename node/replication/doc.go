// Package replication lets tables follow those of other clusters: the follower's cluster pulls the change streams of the source, and makes the changes in tables
// of the same names. The paper's Bigtable replicates so (§8, "Personalized Search"; its clients had done it themselves before).
//
//   - A replication has a name, addresses of the source, a credential for it, and tables. Its record is a file of the lock service: /replication/NAME.
//   - A follower is one of its tables. Its schema names the replication: servers reject other changes of it until it is promoted.
//   - The progress of a follower is a file, /replicating/NAME/TABLE: how far its rows are copied, and a token of the change stream.
//   - The position of a row is a cell that reads do not return, in the family table.PositionFamily of the follower: the sequence number of the last
//     change of the row. It is written with the change, in the same commit.
//
// The master's node runs all replications: a goroutine for each table copies rows, and then makes changes as they come, up to 64 of different rows at a time. If
// the master dies, the next one continues at the saved token. What its predecessor has made since then comes again, and tablet servers leave it out by the positions
// of the rows (tablet.For.Follow).
//
// # The copy
//
// Rows of the source are scanned after a position of their tablet's stream was taken, and the stream is read after the scan. A row without a change since the position
// was read as it is at the position, which then is the row's position in the follower. Each other row is read again, alone, with the position of what is read. A follower's rows
// that the source does not have are deleted. So the copy needs the right to read only, and can begin again at any row; it does so when the source does
// not keep the changes any more that are needed next.
//
// A row of more than 4 MiB is copied in parts, each a change of at most 20,000 cells. Each part is read with its position, up to which the changes of the row since the last one are
// made in the cells that are copied. Its position names the copy and the number of its parts until the last one is made. An incomplete row gets no other changes (tablet.For.Follow).
//
// # Departures from the paper
//
// The paper replicates eventually between several clusters that all accept writes. Here one cluster of a table does: see DESIGN.md.
//
// # Goroutines
//
//	goroutine   started by   ends with                            does
//	Run         the node     Ctx                                  starts and stops replications, while the node is the master
//	work        Run          Run, or a change of the replication  connects to the source
//	loop        work         work                                 copies and follows a table
//
// # Invariants
//
//	RE1. A change of the source is made once in the follower, also those of aggregates. A row's position is n only if all of its changes up to n are made, or that of an incomplete copy.
//	RE2. Once the source is quiet, follower and source have equal cells.
//	RE3. A table that follows accepts only changes of its replication, and a promoted one none of them.
//	RE4. The saved token is at or below the positions of all rows that are copied.
//	RE5. Memory is bounded, whatever a source answers: for each replication four pages of changes or batches of 4 MiB of rows, and for each of its tables what it waits
//	     for, at most 192 KiB; for the node one cell that is larger, and one change.
//	RE6. A source, which may be another administrator's, can change nothing but the tables that follow it, and hold up no replication but its own. What it
//	     answers is checked before it is made: the state of the table shows a SourceError.
package replication
