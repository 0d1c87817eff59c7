// Package backups makes, lists, deletes and restores backups inside the cluster. The paper has none: its tables are protected by GFS's
// replicas alone, which do not help against a mistaken change or drop.
//
// A backup copies no data. It names the immutable files of all tablets (package backup has the formats), and garbage collection keeps what
// backups name (package roots). A table that is restored shares the files until its compactions have replaced them.
//
//	create_backup    writes the record, "making"; the answer is its id
//	the maker        of each tablet: memtables are written out, and the files marked as shared, so that no server deletes them
//	                 (tablet.Server.Snapshot); then the manifest is sealed, and the record becomes "made"
//	restore_backup   creates the table with the manifest as the source of its tablets; the master creates their rows of METADATA
//
// A backup for a time is made of another backup and the changes of the table's stream since (replay.go): the files of the other backup, and SSTables of the
// changes that package replay writes above them. The change files come from snapshots of the table's present tablets, also of a dropped table, and are marked as
// shared, so that they stay while they are read. What is restored from it is an ordinary restore.
//
// The maker runs on the master's node. If the master dies, the next one begins again: a record is "making" until it is made, deleted, or
// has failed for a reason that does not pass, such as full disks, or for ten minutes.
//
// Schedules (package backup) have the maker begin backups at their times. Their state is in the lock service, so that it survives the master.
//
// Files of a backup outside the cluster are uploaded as staged blobs before import_backup names them. If their client dies, they expire.
//
// # Goroutines
//
//	goroutine   started by   ends with   does
//	Run         the node     Ctx         begins scheduled backups, makes backups, and deletes expired ones and staged blobs, while the node is the master
//	RunReplays  the node     Ctx         makes backups for a time, while the node is the master
//
// # Invariants
//
//	BU1. While a backup is made or kept, garbage collection removes no file that it names, nor its manifest (I6). While it is being made, no
//	    garbage is judged: METADATA is read before the records of backups, and the record is written before the first tablet is recorded.
//	BU2. A restored table has each row as it was at some moment between the request and the time at which the backup was made. Mutations
//	    of a row are in it as a whole or not at all.
//	BU3. A backup has all that was acknowledged before it was requested.
//	BU4. A record is changed only under the mastership in which it was read.
//	BU5. An imported backup names only blobs whose names existed when its record did: garbage collection reads names of blobs before backups.
//	BU6. A backup for a time has all changes of each row since the other backup with commit times up to that time, and no later ones. If changes
//	    are missing, it fails.
//	BU7. Each due time of a schedule has at most one backup, whichever masters die. Due times that were missed are made up for by one backup, of
//	    the newest of them.
//	BU8. The newest backup of a schedule that is made is not deleted when it expires.
package backups
