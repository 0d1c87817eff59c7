// Package metadata defines the format of the METADATA table (paper §5.1), which holds the location
// and the contents of each tablet. It does no I/O: clients read METADATA rows to find tablets, and
// tablet servers and the master change them by compare-and-set.
//
// # Rows
//
// METADATA has a row for each tablet of each table, itself included. The row key is the table's id,
// eight bytes big-endian, and the tablet's end row:
//
//	id 00 end row     a tablet that ends there, inclusive
//	id 01             the tablet without end
//
// Keys therefore sort in the order of tablets. A tablet holds the rows above the end of its
// predecessor, up to its own end. A split adds a row and a merge removes one, so there is never a
// gap or an overlap (I5). The tablet of a user's row is that of the first key at or after SeekKey.
//
// # The three levels
//
// The lock service's file /root holds the location of the root tablet. This is METADATA's first
// tablet; it has the rows of METADATA's own tablets and is never split. Those tablets have the rows
// of all other tables.
//
// # Columns
//
//	loc:generation    8 bytes, big-endian; grows by one with each change of the row
//	loc:server        MessagePack [server, address]: the tablet server instance to which the
//	                  tablet is assigned; no cell: unassigned
//	files:meta        the tablet's contents, in the format of package tablet
//	files:split       the contents of the lower part, while the tablet is being split
//	log:recoveries    MessagePack array of servers whose commit logs hold mutations of the
//	                  tablet that are in none of its files
//	event:            the tablet's history: text, the last 64
//	gone:generation   of a removed row, for a week: its last generation
//
// A split has three steps: it writes files:split to the tablet's row, creates the row of the lower
// part, and updates the tablet's row. The second step makes the split take effect. A server that has
// lost the tablet cannot make the first step. If it stops between the first and the second, the
// tablet's next server makes the second. So the new row cannot appear later and take rows from a
// server that does not know of the split.
//
// A row removed by a merge must not reappear. A server may be stopped before the second step of a
// split and make it long afterwards, when another server has made it and the parts were merged
// again. So a row is created only with a generation above that of the removed row.
//
// Every change checks the generation, so a server that has lost a tablet can no longer change its
// row. A row's first generation is the tablet's id times 2^24. The generations of a row that is
// removed and created again therefore differ.
//
// The file /root has the same contents, as the MessagePack array
// [1, server, address, meta, [server…]]. Its generation is the file's own.
//
// # Departure from the paper
//
// The paper's keys contain the end row as well, but its ranges are given by both ends.
//
// # Invariants
//
//	MD1. Key keeps the order of ranges: by table, then by end, no end last.
//	MD2. Decode accepts what the functions that make mutations write; anything else
//	    is a *FormatError.
//	MD3. A row describes the tablet that its key names. The lower part of a split is
//	    of the same table and ends below the row's end.
package metadata
