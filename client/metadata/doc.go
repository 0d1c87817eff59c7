// Package metadata is the form of the METADATA table (paper §5.1): where tablets are and
// what they consist of. It does no I/O: clients read rows of METADATA to find tablets, and tablet
// servers and the master change them, by compare-and-set.
//
// # Rows
//
// METADATA has a row for each tablet of each table, itself included. The key is the table's
// id, eight bytes big-endian, and the tablet's end row:
//
//	id 00 end row     a tablet that ends there, inclusive
//	id 01             the tablet without end
//
// so that the order of keys is that of ranges. A tablet has the rows above the end of the one before
// it, up to its own end: a split is a row that appears, and a merge one that goes, and there is no moment
// with a gap or an overlap (I5). The tablet of a row is the first at or after SeekKey.
//
// # The three levels
//
// The lock service's file /root tells of the root tablet: METADATA's first, which has the rows of
// METADATA's own tablets and is never split. Those have the rows of all other tables.
//
// # Columns
//
//	loc:generation    8 bytes, big-endian; grows by one with each change of the row
//	loc:server        MessagePack [server, address]: the instance of a tablet server that has the tablet;
//	                  no cell: none has
//	files:meta        what the tablet consists of, in the form of package tablet
//	files:split       what the lower part is to consist of, while the tablet is being split
//	log:recoveries    MessagePack array of the servers from whose commit logs the tablet has yet to get
//	                  what is in no file of it
//	event:            what happened to the tablet: text, the last 64
//	gone:generation   of a row that was removed, for a week: the generation that it had
//
// A split has three steps: files:split in the tablet's row, the row of the lower part, which is when it takes
// effect, and the tablet's row again. A server that has lost the tablet cannot make the first; and when
// it has made that and not the second, whoever gets the tablet does, so that the row cannot appear
// later and take rows away from a server that does not know of it.
//
// A row that is removed, by a merge, must not come back: a server that was stopped before the second step of a
// split may take that step long after another has taken it and the halves were merged again. So a row is made
// only with a generation above the one that was removed.
//
// Every change checks the generation, so whoever has lost a tablet can change its row no more. A row's
// first generation is the tablet's id times 2^24: the generations of a row that went and came again
// differ.
//
// The file /root has the same, as the MessagePack array [1, server, address, meta, [server…]]; its
// generation is the file's own.
//
// # Departure from the paper
//
// The paper's keys have the end row as well, but ranges are told by both ends.
//
// # Invariants
//
//	M1. KeyOf keeps the order of ranges: by table, then by end, no end last.
//	M2. What Decode takes, the functions that make mutations have written; anything else is a *FormatError.
//	M3. A row describes the tablet that its key names, and what is being split off is of the same table and below its end.
package metadata
