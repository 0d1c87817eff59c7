// Package local is one node's part of the block store. It keeps blobs, which are written once and
// sealed, and logs, which are appended to, in the node's data folders.
//
// Open builds the store's index from the names and headers of its files. DESIGN.md in this
// directory gives the reasons for the design.
//
// # Terms
//
//   - A blob is an immutable sequence of bytes. A [Writer] streams it in, Seal makes it durable, and a
//     [Reader] reads it at any offset.
//   - An extent is a part of a blob or log, kept whole in one file of one folder. An [ExtentWriter]
//     writes a blob's extent, an [ExtentReader] reads it. A Writer or Reader is composed of such
//     extents, or of extents elsewhere.
//   - The quarantine holds extents that appear to be garbage, until they are removed. An alarm records
//     that an extent in quarantine was in use after all.
//   - The holders of an extent are the nodes that should store it.
//   - A chunk is 64 KiB of a blob's extent, the unit of its checksums.
//   - A log is a sequence of payloads. A [LogWriter] appends, a [LogReader] recovers: this is a log on
//     this node alone, for tests and offline verification.
//   - A position is a place in a log, in bytes of frames from its beginning. It never decreases.
//   - A frame is the unit of a log on disk: a header and a payload, or a part of one, padded to whole
//     pages of 4 KiB.
//   - A replica is one node's copy of an extent of a log that is stored on several nodes, as all logs
//     of a running node are. Package logproto decides its state transitions.
//   - A high-priority extent may use half of the reserve: writing it lets the store free space, or
//     deletions depend on it.
//   - A spare is a log file that no log uses, ready to be overwritten. It is zeroed, or recycled.
//   - A folder is a data folder, one per disk. The first failed write, sync, rename or removal retires
//     it until the store is opened again.
//
// # Goroutines
//
//	name          started by                  stopped by   owns
//	spare worker  the first log or replica    Store.Close  making and recycling spares; as many workers as folders, at most one at work in a folder
//	space freer   a removal                   Store.Close  freeing the space of large files of one folder; ends when its queue is empty
//	holder write  ExtentWriter.Seal           its end      appending one holder list
//	async seal    Writer.Write                Seal, Abort  sealing one full extent while the next is written, if WriterConfig.Beside is set
//
// The spare workers' queue holds at most a job for each call of Release that frees an extent and
// one for each file to recycle or remove, so the log extents on disk bound it. Everything else runs
// in the callers' goroutines.
//
// # Invariants
//
//	B1. A handle is returned only when every byte of the blob and the names of its files
//	    are durable.
//	B2. A position is returned only when every payload up to it is durable.
//	B3. Bytes with a wrong checksum are never returned as data. The error is a CorruptError
//	    with file and offset.
//	B4. After a failed write or sync in a folder, nothing more is written there, and no state
//	    that the failed call may have covered is trusted.
//	B5. A log yields, in order, every acknowledged payload, and possibly payloads whose Append
//	    failed or never returned. Each is whole, and none is repeated.
//	B6. After OpenLog returns, no append of the log's old writer is acknowledged, and every
//	    later OpenLog finds the same payloads.
//	B7. Bytes left from an earlier use of a file are never taken for a frame.
//	B8. A full disk is reported before any part of what does not fit is written. Only
//	    high-priority extents, and log replicas that replace damaged ones, use a folder's reserve,
//	    and at most half of it.
//	B9. Of the acknowledged holder lists of an extent, the one with the highest epoch is found
//	    again for as long as the extent exists.
//	B10. A replica's fence, cut and bytes are on disk before they are acknowledged. After a
//	    restart a replica accepts no appends. A damaged replica stays until the one that replaces it is on
//	    disk, which then has its good frames.
//	B11. An extent in quarantine is still served to a caller that presents its checksum (of a
//	    log: the entry in the log's extent list), and thereby leaves quarantine. A copy or a check
//	    of an extent in quarantine fails instead.
//	B12. In an encrypted folder no byte of a blob or log payload is on disk in the clear, and
//	    changed or moved bytes are a CorruptError.
//
// # Folders
//
//	LOCK                         locked while a store has the folder open
//	ALARM                        why garbage collection is stopped, a line of text; kept until an operator clears it
//	holders                      the holder lists of the folder's extents
//	scrub                        the progress of the scrub
//	encryption                   data keys, if extents and logs are encrypted
//	blobs/<id>.<i>               sealed extent i, from 0, of blob id; not the last
//	blobs/<id>.<i>of<n>          the last of the blob's n extents
//	blobs/<id>.<i>.tmp           an extent being written
//	<one of these>.q<r>-<s>      a sealed extent in quarantine, put there by round r of the sweep, s seconds after 1970
//	logs/<16 hex digits>.log     a log extent or a spare; its header records which
//	logs/<16 hex digits>.log.tmp a spare being made
//
// Rounds and seconds are decimal. The first version named all extents in the form with "of". Open
// removes temporary files in the subfolders. All integers below are little-endian, all checksums
// CRC-32C (Castagnoli), all unnamed bytes zero.
//
// # Extents of blobs
//
//	+-----------------+--------------+--------------------+-------------+
//	| header, 4096    | payload, L   | table, 4*ceil(L/C) | footer, 64  |
//	+-----------------+--------------+--------------------+-------------+
//
// The payload starts on a page boundary, so chunks of C = 65536 bytes are read with aligned reads.
// The table has the checksum of each chunk; the last chunk may be short. A sealed file never
// changes.
//
//	header                            footer
//	   0   8  magic "STELEEXT"           0  16  blob id
//	   8   4  version, 1                16   4  index of the extent
//	  12   4  C                         20   4  flags: 1 = last of the blob
//	  16  16  blob id                   24   8  offset in the blob
//	  32   4  index of the extent       32   8  L
//	  40   8  offset in the blob        40   4  checksum of the table
//	4092   4  checksum of the rest      48   4  version, 1
//	                                    52   8  magic "STELEEND"
//	                                    60   4  checksum of the rest
//
// A handle contains the footer's checksum of the table, so it identifies exactly these bytes.
// Index, offset and flags suffice to rebuild the index if file names are lost.
//
// Example: an extent
//
//	0000  53 54 45 4c 45 45 58 54 01 00 00 00 00 00 01 00
//	0010  00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff
//	0ff0  00 00 00 00 00 00 00 00 00 00 00 00 89 dd 76 b3
//	1000  68 65 6c 6c 6f 2c 20 65 78 74 65 6e 74 59 40 8b
//	1010  75 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee
//	1020  ff 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00
//	1030  00 0d 00 00 00 00 00 00 00 53 3d 98 f0 00 00 00
//	1040  00 01 00 00 00 53 54 45 4c 45 45 4e 44 d0 fc 42
//	1050  9b
//
// # Holders
//
// The file begins with 16 bytes: magic "STELEHLD", version 1 and a checksum of both. Frames follow,
// each appended and synced before the next, so only the last one can be torn. Invalid bytes before
// a valid frame are damage.
//
//	frame                             record
//	 0   4  checksum of what follows   0  16  blob id
//	 4   4  magic "HOLD"              16   4  index of the extent
//	 8   4  bytes, a multiple of 16   20   8  epoch, not 0
//	12   4  number of records         28   1  number of nodes
//	16   8  offset in the file        29      of each: 1 byte of length, name
//	24      records, zeros
//
// The current list of an extent is its last record with the highest epoch, if the extent is in the
// folder. When most of a file is obsolete, it is rewritten and renamed.
//
// Example: holders
//
//	0000  53 54 45 4c 45 48 4c 44 01 00 00 00 65 0b 0a 8f
//	0010  8c c1 35 1c 48 4f 4c 44 40 00 00 00 01 00 00 00
//	0020  10 00 00 00 00 00 00 00 00 11 22 33 44 55 66 77
//	0030  88 99 aa bb cc dd ee ff 01 00 00 00 01 00 00 00
//	0040  00 00 00 00 03 02 6e 31 02 6e 32 02 6e 33 00 00
//	0050  55 38 53 4b 48 4f 4c 44 40 00 00 00 01 00 00 00
//	0060  50 00 00 00 00 00 00 00 00 11 22 33 44 55 66 77
//	0070  88 99 aa bb cc dd ee ff 01 00 00 00 02 00 00 00
//	0080  00 00 00 00 02 02 6e 31 02 6e 34 00 00 00 00 00
//
// # Encryption
//
// If the configuration has master keys, files in blobs/ and logs/ are stored in the encrypted
// format of package vfs, with their first page, the header of an extent or log, in the clear. All
// offsets in this specification and in errors are of the plaintext. A folder is encrypted from its
// creation or never. The key file has two equal pages, and one is enough to read it:
//
//	page                              data key
//	   0   8  magic "STELEKEY"         0   4  number
//	   8   4  version, 1               8   8  id of the master key
//	  12   4  number of data keys     16  12  nonce
//	  16      data keys, 80 each      28  48  AES-256-GCM of the data key by the master key, with its tag
//	4092   4  checksum of the rest
//
// The additional data are the magic, the number and the id. The id is HKDF-SHA256 of the master
// key, without salt, with info "stele master key id 1". New files use the data key with the highest
// number. If the first configured master key does not wrap the data keys, the file is rewritten and
// renamed: that master key wraps all of them and one new data key, up to 50. Log files with an
// older data key are not recycled. A folder with encrypted files but no key file is a
// *CorruptError.
//
// Example: a file of keys
//
//	0000  53 54 45 4c 45 4b 45 59 01 00 00 00 01 00 00 00
//	0010  01 00 00 00 00 00 00 00 a2 e8 b8 50 2f 42 b7 53
//	0020  03 03 03 03 03 03 03 03 03 03 03 03 fa 63 16 98
//	0030  fd 86 35 6b af fe e4 65 ce 1b 26 aa ba 31 a3 4f
//	0040  85 cd c0 b0 ae 12 bf 44 a8 48 84 71 f5 5f 22 f4
//	0050  58 bd 70 d3 02 f0 e7 a5 03 4b c1 28 00 00 00 00
//	0ff0  00 00 00 00 00 00 00 00 00 00 00 00 29 11 fd 8f
//	1000  53 54 45 4c 45 4b 45 59 01 00 00 00 01 00 00 00
//	1010  01 00 00 00 00 00 00 00 a2 e8 b8 50 2f 42 b7 53
//	1020  03 03 03 03 03 03 03 03 03 03 03 03 fa 63 16 98
//	1030  fd 86 35 6b af fe e4 65 ce 1b 26 aa ba 31 a3 4f
//	1040  85 cd c0 b0 ae 12 bf 44 a8 48 84 71 f5 5f 22 f4
//	1050  58 bd 70 d3 02 f0 e7 a5 03 4b c1 28 00 00 00 00
//	1ff0  00 00 00 00 00 00 00 00 00 00 00 00 29 11 fd 8f
//
// Data key 1 has bytes 0x02. A master key of bytes 0x01 wraps it with a nonce of bytes 0x03.
//
// # Scrub progress
//
//	 0   8  magic "STELESCB"
//	 8   4  version, 1
//	12   4  1 + index of the last extent scrubbed in this pass, or 0
//	16  16  its blob id
//	32   8  start of the pass, in seconds since 1970, or 0
//	40   8  end of the last complete pass, in seconds since 1970, or 0
//	60   4  checksum of the rest
//
// The file is rewritten and renamed. The rename is not synced, because an older file is good
// enough.
//
// Example: a mark
//
//	0000  53 54 45 4c 45 53 43 42 01 00 00 00 03 00 00 00
//	0010  00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff
//	0020  00 f1 53 65 00 00 00 00 00 00 00 00 00 00 00 00
//	0030  00 00 00 00 00 00 00 00 00 00 00 00 bd 85 34 7f
//
// # Handles
//
// A handle is the MessagePack array
//
//	[1, id, length, [[index, length, table checksum, [node, ...]], ...]]
//
// to which later versions may append elements; readers skip unknown ones.
//
// Example: a handle
//
//	0000  94 01 c4 10 00 11 22 33 44 55 66 77 88 99 aa bb
//	0010  cc dd ee ff 0d 91 94 00 0d ce f0 98 3d 53 90
//
// # Extents of logs
//
// A log file has a fixed size, the store's extent size, and is overwritten in place, so a sync
// writes no metadata. It begins with a page that has two copies of a header, at 0 and 2048. The
// valid copy with the higher generation is current. A disk writes a sector of 512 bytes completely
// or not at all, so a power loss leaves each copy old or new. One corrupt copy does not lose the
// log.
//
//	  0   8  magic "STELELOG"
//	  8   4  version, 1
//	 12   4  state: 1 = spare, 2 = extent of a log
//	 16   8  generation: counts the headers written to this file
//	 24   8  size of the file
//	 32  16  log id
//	 48   8  number of the extent in the log, from 1, rising, with gaps
//	 56   8  number of the extent before it, 0 if there is none
//	 64   8  bytes of frames in that one; frames beyond are ignored
//	 72   8  position of the first frame
//	 80   8  salt, random, new each time the file is taken into use
//	 88   8  lowest number that is not released; all ones: the log is removed
//	508   4  checksum of the rest
//
// The log consists of the newest extent with its id and the extents that this one names, directly
// or through others. Other extents with the id were released, or were started on a folder that
// failed before anything in them was acknowledged. Frames start at the second page and follow each
// other without a gap. Each is whole pages, at most 1 MiB. The last page is reserved for a seal.
//
//	+--------------------------------+------------+------------------+
//	| frame header, 40               | payload    | zeros to a page  |
//	+--------------------------------+------------+------------------+
//	   0   4  checksum of what follows, with the zeros
//	   4   1  kind: 1 whole payload, 2 first part, 3 middle part, 4 last part, 5 seal
//	   8   4  bytes of payload in the frame
//	  12   4  pages directly before it that were not acknowledged when it was made
//	  16   8  position of the frame
//	  24   8  salt of the extent
//	  32   8  bytes of the whole payload
//
// A payload too large for one frame is split over several, in as many extents as necessary. Without
// its last part it was never appended. One frame is written at a time and synced before the next.
// The first invalid frame therefore is the end, torn by a crash, if no valid frame follows on any
// later page. Otherwise it is damage. For all extents but the newest, the header of the next extent
// records the end.
//
// Example: a log extent
//
//	0000  53 54 45 4c 45 4c 4f 47 01 00 00 00 02 00 00 00
//	0010  02 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00
//	0020  00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff
//	0030  01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	0050  ef cd ab 89 67 45 23 01 01 00 00 00 00 00 00 00
//	01f0  00 00 00 00 00 00 00 00 00 00 00 00 d0 e8 21 d9
//	0800  53 54 45 4c 45 4c 4f 47 01 00 00 00 02 00 00 00
//	0810  02 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00
//	0820  00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff
//	0830  01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	0850  ef cd ab 89 67 45 23 01 01 00 00 00 00 00 00 00
//	09f0  00 00 00 00 00 00 00 00 00 00 00 00 d0 e8 21 d9
//	1000  d6 2c ec cf 01 00 00 00 0a 00 00 00 00 00 00 00
//	1010  00 00 00 00 00 00 00 00 ef cd ab 89 67 45 23 01
//	1020  0a 00 00 00 00 00 00 00 68 65 6c 6c 6f 2c 20 6c
//	1030  6f 67 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	2000  cb 37 ee 19 05 00 00 00 00 00 00 00 00 00 00 00
//	2010  00 10 00 00 00 00 00 00 ef cd ab 89 67 45 23 01
//
// Here the log has one extent with the 10 bytes "hello, log", and is sealed.
//
// # Replicas of extents of logs
//
// A log on several nodes is kept in files of the same form. The list of its extents is not in the
// files but is kept elsewhere. The state is 3 = replica, and the header has no fields 56, 64 and 88
// but
//
//	 96   8  epoch of the writer that opened the extent
//	104   8  fence: the highest epoch that has fenced it, or 0
//	112   8  bytes of frames, once it was cut
//	120   4  flags: 1 = started, so 72 counts; 2 = cut, so 112 counts, and no more is appended
//	124   1  bytes of the server's name
//	128  64  name of the server that owns the log
//	192   8  round of the sweep that quarantined it
//	200   8  time of that, in seconds since 1970; 0: not in quarantine
//
// All replicas of an extent have the same salt and the same frames. Frames may extend to the end of
// the file, and one write may have several, synced together. A crash may therefore leave a hole
// before a valid frame. The hole is damage if a later valid frame records that the place was
// acknowledged. Otherwise it is the end.
//
// Example: a replica of a log extent
//
//	0000  53 54 45 4c 45 4c 4f 47 01 00 00 00 03 00 00 00
//	0010  05 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00
//	0020  00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff
//	0030  02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	0040  00 00 00 00 00 00 00 00 00 10 00 00 00 00 00 00
//	0050  ef cd ab 89 67 45 23 01 00 00 00 00 00 00 00 00
//	0060  03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00
//	0070  00 10 00 00 00 00 00 00 03 00 00 00 02 00 00 00
//	0080  6e 31 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	01f0  00 00 00 00 00 00 00 00 00 00 00 00 eb 26 ec 7a
//	0800  53 54 45 4c 45 4c 4f 47 01 00 00 00 03 00 00 00
//	0810  05 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00
//	0820  00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff
//	0830  02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	0840  00 00 00 00 00 00 00 00 00 10 00 00 00 00 00 00
//	0850  ef cd ab 89 67 45 23 01 00 00 00 00 00 00 00 00
//	0860  03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00
//	0870  00 10 00 00 00 00 00 00 03 00 00 00 02 00 00 00
//	0880  6e 31 00 00 00 00 00 00 00 00 00 00 00 00 00 00
//	09f0  00 00 00 00 00 00 00 00 00 00 00 00 eb 26 ec 7a
//	1000  f1 fe 31 de 01 00 00 00 05 00 00 00 00 00 00 00
//	1010  00 10 00 00 00 00 00 00 ef cd ab 89 67 45 23 01
//	1020  05 00 00 00 00 00 00 00 68 65 6c 6c 6f 00 00 00
//	2000  d1 cc 87 58 01 00 00 00 05 00 00 00 01 00 00 00
//	2010  00 20 00 00 00 00 00 00 ef cd ab 89 67 45 23 01
//	2020  05 00 00 00 00 00 00 00 61 67 61 69 6e 00 00 00
//
// Server n1's log was fenced at epoch 4 and then cut, so the second frame does not count.
package local
