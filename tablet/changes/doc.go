// Package changes holds the changes of a tablet whose table has a change stream: the records of its mutations, in memory
// and in change files, and how far back they are complete. Package tablet decides when they are written and dropped.
//
//   - A Record is one row mutation as the commit log has it: its first sequence number, its time, its body.
//   - A Buffer holds the records of one memtable. It is written out, and released, together with the memtable.
//   - A File is an SSTable of records, beside the SSTables of entries.
//   - A Floor is the sequence number up to which changes of a range of rows may be missing.
//   - A Set is the part of a tablet's metadata that names its files and floors.
//   - A Clear is a deletion of a range of rows. It is in no file: the set keeps it, for readers that request clears and to restore a table to a time.
//   - A Source yields records in order of their sequence numbers. Merge merges sources.
//
// There is no second log: what is in no change file is in the commit log, and recovery fills buffers from the same records
// as memtables.
//
// # Change file
//
// A change file is an SSTable (package sstable) without a filter. A key is the record's first sequence number, eight bytes
// big-endian, and the row's part of its internal keys (package ikey). The row makes keys unique: tablets that were merged may have used the same
// numbers, for different rows. A value is the record's time in µs, a uvarint, and its body (package logbody).
//
// # Departures from the paper
//
// The paper has no change streams.
//
// # Goroutines
//
// The package starts none. One goroutine adds to a Buffer; any may read it.
//
// # Invariants
//
//	CS1. In a chain of tokens each acknowledged mutation of a row comes exactly once, in order of sequence numbers.
//	CS2. A reader sees only durable records.
//	CS3. A position above the floor of its rows is good on every server. At or below it, the reader gets an error.
//	CS4. The files of a tablet hold at most the retention times the write rate, and one file more.
//	CS5. A record is in a buffer of the tablet or in exactly one file that the metadata names, and only the second if its
//	     sequence number is at or below the redo point.
//	CS6. A row that is read after a position has all entries below the position, also those without a record.
//	CS7. A clear has a sequence number that no mutation of its rows has. A reader that requests clears gets each of them once for each row, between the
//	     mutations before it and those after it, or an error if its position is at or below the clear floor of its rows.
package changes
