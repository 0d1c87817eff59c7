// Package backup has the formats of backups inside the cluster: the record of a backup, a file of the lock service, and its manifest, a
// sealed blob that names the files of all tablets. The paper has no backups; they follow from its immutable SSTables (§6, "Exploiting
// immutability"): a backup copies no data, it keeps files from being deleted. Package backups makes and restores them.
//
// # Record
//
// The file /backups/ID is the MessagePack array
//
//	[1, state, created, ended, expires, by, error, [table…], tablets, bytes, manifest, replay, imported, schedule]
//
// with times in ms since 1970 (0: none), the name of the user who asked for it, and the handle of the manifest, nil until the backup is
// made. States: 1 making, 2 made, 3 failed. replay is [id of another backup, table, time in µs] of a backup that is made from the other one and the
// table's changes, otherwise nil; while it is being made, it has no tables. imported is a bool. Both are absent from a backup that is
// neither. schedule is the name of the schedule that has made the backup, and absent if none has. Later versions append values; readers skip those that they do not know.
//
// # Schedule
//
// The file /schedules/NAME is the MessagePack array
//
//	[1, created, by, every, keep, first, last, id of the last backup, error, [[id of a table, its name]…]]
//
// with times and durations in ms, the due time of the last run (0: none), and nil instead of the tables if all are backed up.
//
// # Manifest
//
//	frame…  footer  length of the footer, 4 bytes big-endian
//
// A frame is a length, 4 bytes big-endian, and the metadata of one tablet as in METADATA (tablet.EncodeMeta). The frames of a table are
// in order of the tablets' ranges, which cover all rows. The footer is the MessagePack array
//
//	[1, [[schema, offset of the first frame, frames, bytes of the files]…]]
//
// with the schema of each table (table.AppendSchema) as a binary value. The blob store verifies checksums of all of it.
//
// # Invariants
//
//	BF1. The tablets of a table in a manifest that was written whole cover all its rows, each once.
//	BF2. Decoding never allocates more than a constant factor of what it reads. Damage is an error, not a smaller backup.
//
// The package starts no goroutine.
package backup
