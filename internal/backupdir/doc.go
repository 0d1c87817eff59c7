// Package backupdir keeps backups outside the cluster, in a directory: of another disk, or of a file server. The paper has no backups.
//
// A directory holds any number of backups, also of several clusters. Each is a list of files, as the RPC backup_files returns them: the
// manifest, then SSTables. Contents are objects, named by their hash, so that backups share equal files. A file of the cluster never
// changes: one that an earlier backup has, with equal id, bytes and check, is not read again.
//
// # Format
//
//	lock               locked while a copy or a deletion is at work
//	objects/ab/SHA256  the content of a file; ab are the first two digits of the hash
//	backups/ID.json    a backup; it is written last
//	backups/ID.partial the files that an unfinished copy has stored
//	tmp/               objects that are being written
//
// ID.json is
//
//	{"format":1,"sha256":"HASH OF backup","backup":{"id":"ID","created":"TIME","copied":"TIME","tables":["NAME"],"tablets":1,"bytes":4,
//	"files":[{"id":"32 DIGITS","bytes":4,"check":"8 DIGITS","sha256":"64 DIGITS"}]}}
//
// in one line. The outer sha256 is that of the bytes of the value of "backup". The first file is the manifest. Digits are hexadecimal, in
// lower case; times have the form of RFC 3339. Readers skip fields that they do not know. A change that they must not skip gets another
// format number, which they reject.
//
// Each line of ID.partial is a file, as in ID.json, a space and the CRC-32C of what precedes, in 8 digits. Lines that are damaged count for
// nothing. TestGolden has an example of both files.
//
// # Invariants
//
//	BD1. A backup that is listed is whole: its objects were durable before ID.json was written.
//	BD2. An interrupted copy lists nothing, and what it has stored is not copied again.
//	BD3. Delete removes no object that a listed backup, or an unfinished copy of another one, needs. If it cannot read what they need, it
//	    deletes nothing.
//	BD4. Bytes that are read from the directory are used only if they have the hash that the backup names. Damage is a CorruptError that
//	    names the file. Memory is bounded by the sizes of files, whatever is in them.
//
// # Goroutines
//
//	goroutine  started by       ends with
//	workers    Copy, Import     its return
package backupdir
