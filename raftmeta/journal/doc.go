// Package journal stores the Raft log of a server of the lock service in one file of any file system,
// for tests and simulations. bbolt, which servers use, maps its file and therefore needs the operating
// system's.
//
// # File
//
// The file is a sequence of records, each of them one call. Integers are big-endian, the checksum is
// CRC-32C of the body.
//
//	+-----------+-------+------+--------
//	| body size | crc   | kind | fields
//	| 4         | 4     | 1    |
//	+-----------+-------+------+--------
//
// Kinds are 1, store entries; 2, set a value; 3, delete entries. Open reads all records into memory, and
// cuts off what follows the last whole one: a call that a crash has interrupted. When a file has become
// large and most of it is deleted, it is replaced by one with what is left.
//
// Nothing but a crash is detected: other damage looks like an interrupted call.
//
// The package starts no goroutine. A Log is safe for concurrent use.
package journal
