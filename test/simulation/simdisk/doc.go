// Package simdisk is the simulated disk of one machine of a simulated cluster. It is a vfs.Mem, whose
// model of power losses it keeps, with the time that operations take, a capacity, and faults.
//
// A [Disk] belongs to the machine. An [FS] belongs to one process of it: [Disk.Crash] ends the
// process's FS and returns that of the next. [RaftLog] stores Raft's log in such an FS. It stands in
// for bbolt, which maps its file into memory and cannot run on a simulated disk.
//
// An operation first sleeps, in the goroutine of the caller, and then happens at once. A process
// that is killed while it sleeps has not done the operation.
//
// # Space
//
// The used space is the sum of the sizes of all files, including files that were removed and are
// still open. A write that does not fit stores what fits and fails with ENOSPC.
//
// # The format of a RaftLog
//
// A file of records, each the effect of one call. Integers are little-endian, checksums CRC-32C.
//
//	+------------+--------+------+-------------+---------+---------+---------
//	| header crc | length | kind | payload crc | payload | padding | next ...
//	| 4          | 4      | 4    | 4           | length  | to 16   |
//	+------------+--------+------+-------------+---------+---------+---------
//
// The checksum of the header covers its other fields. Records begin at multiples of 16, so that no
// header is in two sectors. The padding is 0xa5. Payloads by kind:
//
//	1 entries   of each: length of the rest 4, index 8, term 8, type 1, time in ns 8, has time 1,
//	            length of the data 4, data, extensions
//	2 deletion  first 8, last 8
//	3 value     length of the key 4, key, value
//
// A power loss can tear only the last record, since each is synced before the next is written. A
// torn record lacks its end, or whole sectors, which read as zeros. Any other difference is an error
// that names the offset.
//
// Example: the value "v" of the key "k"
//
//	0000  fc 4b 1a db 06 00 00 00 03 00 00 00 51 ea 4c c6
//	0010  01 00 00 00 6b 76 a5 a5 a5 a5 a5 a5 a5 a5 a5 a5
//
// # Goroutines
//
// The package starts none. All types are safe for concurrent use.
//
// # Invariants
//
// Their prefix is SD.
//
// SD1. Equal seeds and equal calls, in an equal order, cause equal results and equal events.
//
// SD2. Disk.mu is never held by a goroutine that waits.
//
// SD3. After Crash, operations of the old FS and its files fail and change nothing.
//
// SD4. What a call of a RaftLog has stored is there after every crash, once the call has returned
// nil. A crash during the call leaves all or nothing of it.
package simdisk
