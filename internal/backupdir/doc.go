// Package backupdir keeps backups outside the cluster, in a directory, of another disk or of a file server, or in a bucket (package s3store). Both have the same
// objects, and are a Store. The paper has no backups.
//
// A directory holds any number of backups, also of several clusters. Each is a list of files, as the RPC backup_files returns them: the
// manifest, then SSTables. Contents are objects, named by their hash, so that backups share equal files. A file of the cluster never
// changes: one that an earlier backup has, with equal id, bytes and check, is not read again.
//
// # Format
//
//	lock                 locked while a copy or a deletion is at work; in a bucket lock/N
//	objects/ab/SHA256    the content of a file; ab are the first two digits of the hash
//	backups/ID.json      a backup; it is written last
//	backups/ID.partial.N the files that an unfinished copy has stored
//	tmp/                 objects that are being written
//
// ID.json is
//
//	{"format":1,"sha256":"HASH OF backup","backup":{"id":"ID","created":"TIME","copied":"TIME","tables":["NAME"],"tablets":1,"bytes":4,
//	"files":[{"id":"32 DIGITS","bytes":4,"check":"8 DIGITS","sha256":"64 DIGITS"}]}}
//
// in one line. "access" may follow "files": users without credentials, grants, owners and quotas, when the backup was copied (type Access). The outer sha256 is that of the bytes of the value of "backup". The first file is the manifest. Digits are hexadecimal, in
// lower case; times have the form of RFC 3339. Readers skip fields that they do not know. A change that they must not skip gets another
// format number, which they reject.
//
// Each line of ID.partial.N is a file, as in ID.json, a space and the CRC-32C of what precedes, in 8 digits. Lines that are damaged count for
// nothing. TestGolden has an example of both files.
//
// # Encryption
//
// A directory is encrypted by one key of 32 bytes, or by none. From the key K, HKDF-SHA256 without salt derives three: the public id of the
// key, 8 bytes, with the info "stele backup key id 1"; a key for names, with "stele backup names 1"; and one for content, with "stele backup
// content 1". HMAC-SHA256 with the key for names replaces SHA-256 everywhere: a hash would reveal which known files the directory has.
//
// An object is
//
//	magic "STELEBKO"   8 bytes
//	salt              32 bytes, random
//	chunk...          64 KiB of content each, the last one 0 to 64 KiB, and a tag of 16 bytes each
//
// A chunk is AES-256-GCM by HKDF-SHA256 of the key for content, with that salt and the same info. Its nonce is 3 bytes 0, the number of the
// chunk, 8 bytes big-endian, and 1 for the last chunk, else 0. So no nonce is used twice with a key, and chunks cannot be exchanged or cut off.
//
// In ID.json, "key" is the id of the key, in 16 digits, and "sealed", in base64, replaces "backup", whose bytes are encrypted as an object. A
// line of ID.partial.N has the field "key", too. Sizes of files, their ids in the cluster, and the times of ids are not hidden.
//
// Why not the age format: with one secret key the standard library suffices, and names that depend on a key are needed in any case.
// TestGoldenSeal has an example.
//
// # Invariants
//
//	BD1. A backup that is listed is whole: its objects were durable before ID.json was written.
//	BD2. An interrupted copy lists nothing, and what it has stored is not copied again, but for what it has stored since its last record if it was
//	    killed.
//	BD3. Delete removes no object that a listed backup, or an unfinished copy of another one, needs. If it cannot read what they need, it
//	    deletes nothing.
//	BD4. Bytes that are read from the directory are used only if they have the hash that the backup names. Damage is a CorruptError that
//	    names the file. The key of a Dir must be that of its backups. Memory is bounded by the sizes of files, whatever is in them.
//
// # Goroutines
//
//	goroutine  started by       ends with
//	workers    Copy, Import     its return
package backupdir
