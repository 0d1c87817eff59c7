// Package vfs is the one door to the disk. What stores data takes an [FS] and
// never calls package os, so that the same code runs on real folders and, in
// tests, on a memory file system that loses power at any chosen moment.
//
// There are four file systems:
//
//   - [OS] is the machine's own.
//   - [Mem] lives in memory and remembers what was synced and what was not.
//     [Mem.Crash] gives the file system as a machine would find it after a
//     power loss.
//   - [Faulty] stands before any other and asks a hook before each operation
//     that changes something: it fails or tears the Nth one. A Mem has one
//     built in.
//   - [Crypt] encrypts the contents of another's files.
//
// # The disk that Mem plays
//
// V1. File.Sync makes the file's bytes and size durable, not its name. SyncDir
// makes the names of one folder durable, not the bytes behind them.
//
// V2. Of what was written and not synced, any part may survive a crash, in
// units of sectors of 512 bytes; a sector is old or new, never mixed. A file
// whose size grew without its bytes reads as zeros there.
//
// V3. Of name changes not synced, any may survive, but for one name always the
// first so many of them in order. A rename is atomic.
//
// V4. After a Sync, or a StartSync, that failed, what it should have written is lost, though
// reads still show it, and a second Sync succeeds. So behaves Linux (Rebello et
// al., "Can Applications Recover from fsync Failures?", ATC 2020). The exception
// is ErrPowerCut, after which Crash decides.
//
// # Encrypted files
//
// A Crypt stores a file as a page that identifies its key, the first page of the plaintext in the clear, for headers that a
// power loss leaves old or new by sector, and a slot for each further 4,096 bytes, the last of which may be short:
//
//	+---------------+-----------------------+----------------------------+-----
//	| header, 4096  | first page, up to     | slot 0, 28 + up to 4096    | ...
//	|               | 4096, in the clear    | nonce 12, ciphertext, tag  |
//	+---------------+-----------------------+----------------------------+-----
//
// The header has two copies, at 0 and 2048, and zeros beside them. Integers are little-endian, the checksum is CRC-32C.
//
//	 0   8  magic "STELEENC"
//	 8   4  version, 1
//	12   4  number of the data key
//	16  32  salt, random for each file
//	60   4  checksum of the rest
//
// The key of the file is HKDF-SHA256 of the data key with that salt and "stele file key 1". A slot is AES-256-GCM with the
// slot's number, 8 bytes, as additional data, and a tag of 16 bytes. A slot of zeros was never written and reads as zeros.
//
// C1. No nonce is used twice with a key. Each is 12 random bytes, read from the kernel for each write. Therefore neither a crash, nor a copy of
// the disk, nor a virtual machine that is restored from a snapshot repeats one. Among 2^32 slots written with the key of one file (16 TiB) two
// nonces are equal with a probability of 2^-33.
//
// C2. Writing a slot changes no bit of others, though they share a sector. So a power loss in an append leaves what was synced
// before, provided that the disk writes sectors atomically: the end of a synced slot shares a sector with the next slot. To rewrite
// acknowledged bytes with equal ones use [Stable], which keeps their slots.
//
// C3. A slot that was changed, moved, or taken from another file is a [DamageError]. A Crypt does not detect old bytes of the same slot, zeros in
// its place, an exchanged file, a changed first page, or a file that ends early. The checksums of the format above detect them if they are
// accidents. Encryption protects the confidentiality of a stolen disk, not the integrity of a disk that an attacker writes to.
//
// Example: 3 bytes after the first page, "abc", by data key 1 of 32 bytes 0x01, with a salt of bytes 0x02 and a nonce
// of bytes 0x03
//
//	0000  53 54 45 4c 45 45 4e 43 01 00 00 00 01 00 00 00
//	0010  02 02 02 02 02 02 02 02 02 02 02 02 02 02 02 02
//	0020  02 02 02 02 02 02 02 02 02 02 02 02 02 02 02 02
//	0030  00 00 00 00 00 00 00 00 00 00 00 00 92 50 03 75
//	0800  53 54 45 4c 45 45 4e 43 01 00 00 00 01 00 00 00
//	0810  02 02 02 02 02 02 02 02 02 02 02 02 02 02 02 02
//	0820  02 02 02 02 02 02 02 02 02 02 02 02 02 02 02 02
//	0830  00 00 00 00 00 00 00 00 00 00 00 00 92 50 03 75
//	2000  03 03 03 03 03 03 03 03 03 03 03 03 1f 8a d3 44
//	2010  3b 37 15 ee 69 c9 14 11 de e8 62 da 76 30 46
//
// # Goroutines
//
// The package starts none. Every FS may be used by several goroutines at once, and
// so may a File, except that Close must not run beside other calls on it.
package vfs
