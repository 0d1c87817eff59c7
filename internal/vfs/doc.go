// Package vfs is the file system interface of all packages that store data. They use an [FS] and
// never call package os. In tests, the same code runs on an in-memory file system that can lose
// power at any chosen point.
//
// There are four file systems:
//
//   - [OS] is that of the operating system.
//   - [Mem] is in memory and tracks what was synced and what was not.
//     [Mem.Crash] returns the file system as found after a power loss.
//   - [Faulty] wraps another FS and calls a hook before each operation that
//     changes something. The hook can fail or tear the operation. A Mem has one
//     built in.
//   - [Crypt] wraps another FS and encrypts the contents of files.
//
// # The disk model of Mem
//
// V1. File.Sync makes the file's bytes and size durable, not its name. SyncDir makes the names in
// one directory durable, not the bytes of the files.
//
// V2. Any part of the data written but not synced may survive a crash, in units of 512-byte
// sectors. A sector is old or new, never mixed. If a file's size survives but its bytes do not,
// they read as zeros.
//
// V3. Any name changes that were not synced may survive; for one name, always a prefix of its
// changes in order. A rename is atomic.
//
// V4. After a failed Sync or StartSync, the data it should have written is lost, although reads
// still return it and a second Sync succeeds. Linux behaves this way (Rebello et al., "Can
// Applications Recover from fsync Failures?", ATC 2020). The exception is ErrPowerCut, after which
// Crash decides.
//
// # Replacing a file
//
// VW1. When [WriteFile] returns nil, the file has the new content, after any crash too. If it returns
// an error, or a crash interrupts it, the file has the old or the new content, never a mixture or a
// part.
//
// # Encrypted files
//
// A Crypt stores a file in three parts: a header page that identifies its key, the first page of
// the plaintext in the clear, and a slot for each further 4,096 bytes. The last slot may be short.
// The first page is in the clear for headers that rely on atomic sector writes:
//
//	+---------------+-----------------------+----------------------------+-----
//	| header, 4096  | first page, up to     | slot 0, 28 + up to 4096    | ...
//	|               | 4096, in the clear    | nonce 12, ciphertext, tag  |
//	+---------------+-----------------------+----------------------------+-----
//
// The header has two copies, at 0 and 2048, and zeros beside them. Integers are little-endian, the
// checksum is CRC-32C.
//
//	 0   8  magic "STELEENC"
//	 8   4  version, 1
//	12   4  number of the data key
//	16  32  salt, random for each file
//	60   4  checksum of the rest
//
// The key of the file is HKDF-SHA256 of the data key with that salt and "stele file key 1". A slot
// is AES-256-GCM with the slot's number, 8 bytes, as additional data, and a tag of 16 bytes. A slot
// of zeros was never written and reads as zeros.
//
// VC1. No nonce is used twice with a key. Each nonce is 12 random bytes, read from the kernel for
// each write. Therefore neither a crash, nor a copy of the disk, nor a virtual machine restored
// from a snapshot repeats one. Among 2^32 slots written with the key of one file (16 TiB), two
// nonces are equal with a probability of 2^-33.
//
// VC2. Writing a slot changes no bit of other slots, although slots share sectors. A power loss
// during an append therefore preserves data synced before, provided that the disk writes sectors
// atomically. To rewrite acknowledged bytes with equal ones, use [Stable], which keeps their slots.
//
// VC3. A slot that was changed, moved, or taken from another file is a [DamageError]. A Crypt does
// not detect an older version of the same slot, zeros in its place, an exchanged file, a changed
// first page, or a truncated file. The checksums of the formats inside detect these if they are
// accidents. Encryption protects the confidentiality of a stolen disk, not the integrity of a disk
// that an attacker writes to.
//
// Example: 3 bytes after the first page, "abc", by data key 1 of 32 bytes 0x01, with a salt of
// bytes 0x02 and a nonce of bytes 0x03
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
// The package starts none. Every FS is safe for concurrent use. So is a File, except that Close
// must not run concurrently with other calls on it.
package vfs
