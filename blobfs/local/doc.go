// Package local is one node's part of the block store, on its data folders: it keeps
// blobs, which are written once and sealed, and logs, which are appended to.
//
// The store's index is made from the names and headers of its files whenever it is
// opened. DESIGN.md beside this file says why things are as they are.
//
// # Nouns
//
//   - A blob is a run of bytes that never changes. A [Writer] streams it in, Seal
//     makes it durable, a [Reader] reads it at any offset.
//   - An extent is a part of a blob or log that is kept whole in one file of one folder.
//     An [ExtentWriter] writes one of a blob, an [ExtentReader] reads it. Writer and
//     Reader are made of those, or of others, whose bytes are elsewhere.
//   - The quarantine is where extents are put that nothing seems to need, before they are removed. An
//     alarm says that one of them was needed after all.
//   - The holders of an extent are the nodes that should have it.
//   - A chunk is 64 KiB of a blob's extent, the unit of its checksums.
//   - A log is a run of payloads. A [LogWriter] appends, a [LogReader] recovers.
//   - A position is a place in a log, in bytes of frames since its beginning. It only grows.
//   - A frame is what one disk write adds to a log: whole pages of 4 KiB.
//   - A replica is one node's copy of an extent of a log that is on several nodes. What it does is
//     decided by package logproto.
//   - An extent is vital if the store gives back space only once it is written, or without it nobody could
//     delete anything.
//   - A spare is a log extent that no log uses: zeroed or used before, ready to be overwritten.
//   - A folder is a data folder, one per disk. It is retired for good, as long
//     as the process lives, by its first failed write, sync, rename or removal.
//
// # Goroutines
//
//	who     started by           stopped by   owns
//	keeper  the first CreateLog  Store.Close  making and recycling spares; as many as folders, each in one folder at a time
//	remover a removal            Store.Close  freeing the space of large files of one folder; ends when there are none
//	note    ExtentWriter.Seal    its end      appending one list of holders
//	beside  Writer.Write         Seal, Abort  sealing one extent, if its sink waits
//
// The keeper's queue holds one job for each call of Release that frees an extent, so
// it is bounded by the log extents on disk. All else runs in the callers' goroutines.
//
// # Invariants
//
//	B1. A handle is returned only when every byte of the blob and the names of its files
//	    are durable.
//	B2. A position is returned only when every payload up to it is durable.
//	B3. Bytes whose checksum is wrong are never returned as data: the error is a
//	    CorruptError with file and offset.
//	B4. After a write or sync of a folder failed, nothing more is written there, and
//	    nothing is believed that the failed call may have covered.
//	B5. A log yields, in order, the payloads that were acknowledged, and possibly those whose
//	    Append failed or never returned; each whole, none twice.
//	B6. Once OpenLog has returned, the log's writer is acknowledged nothing,
//	    and every later OpenLog finds the same payloads.
//	B7. No bytes left from a file's earlier use are ever taken for a frame.
//	B8. A full disk is told before anything is written of what does not fit. Only what is vital
//	    takes a folder's reserve, and at most half of it.
//	B9. Of an extent's lists of holders that were acknowledged the one of the highest
//	    epoch is found again, as long as the extent is there.
//	B10. A replica's fence, cut and bytes are on disk before they are answered; after a restart it
//	    takes no appends.
//	B11. What is in quarantine is served, and no longer in quarantine then, to who knows its checksum, or of
//	    a log its list.
//	B12. In an encrypted folder no byte of a blob or a log is on the disk in the clear, and bytes that were changed or moved
//	    are a CorruptError.
//
// # Folders
//
//	LOCK                         held while a store has the folder open
//	ALARM                        why sweeps must not go on, a line of text; there until a person clears it
//	holders                      who else should have the extents
//	scrub                        how far a scrub has come
//	encryption                   data keys, if extents and logs are encrypted
//	blobs/<id>.<i>               sealed extent i, from 0, of blob id, which goes on
//	blobs/<id>.<i>of<n>          the last of its n extents
//	blobs/<id>.<i>.tmp           an extent being written
//	<one of these>.q<r>-<s>      the same, put into quarantine by round r of the sweep, s seconds after 1970
//	logs/<16 hex digits>.log     a log extent or a spare; the header says which
//	logs/<16 hex digits>.log.tmp a spare being made
//
// Rounds and seconds are decimal. The first version named all extents in the second way. Temporary files in subfolders are removed
// when the store is opened. All integers below are
// little-endian, all checksums CRC-32C (Castagnoli), all unnamed bytes zero.
//
// # Extents of blobs
//
//	+-----------------+--------------+--------------------+-------------+
//	| header, 4096    | payload, L   | table, 4*ceil(L/C) | footer, 64  |
//	+-----------------+--------------+--------------------+-------------+
//
// The payload starts on a page so that chunks of C = 65536 bytes are read with
// aligned reads. The table has the checksum of each chunk, the last of which may be short.
// The file is sealed, or it is temporary; nothing is ever changed in it.
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
// The footer's checksum of the table is also in the handle, so a handle is good for
// exactly these bytes. Index, offset and flags rebuild the store's index should names be lost.
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
// The file begins with 16 bytes, magic "STELEHLD", version 1 and a checksum of those. Behind
// it are frames, appended one at a time and synced, so that only the last one can be
// torn; with a good frame after it what is none is damage.
//
//	frame                             record
//	 0   4  checksum of the rest       0  16  blob id
//	 4   4  magic "HOLD"              16   4  index of the extent
//	 8   4  bytes, a multiple of 16   20   8  epoch, not 0
//	12   4  number of records         28   1  number of nodes
//	16   8  place in the file         29      of each: 1 byte of length, name
//	24      records, zeros
//
// Of an extent's records the last of the highest epoch counts, if the extent is in the
// folder. When most of a file is outdated it is written anew and renamed.
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
// If the configuration has master keys, files in blobs/ and logs/ are stored as package vfs specifies for encrypted files:
// with their first page, which is the header of an extent or a log, in the clear. All offsets below are of the plaintext, as are
// those of errors. A folder is encrypted from its beginning or never. The file of data keys has two equal pages, of which one is enough:
//
//	page                              data key
//	   0   8  magic "STELEKEY"         0   4  number
//	   8   4  version, 1               8   8  id of the master key
//	  12   4  number of data keys     16  12  nonce
//	  16      data keys, 80 each      28  48  AES-256-GCM of the data key by the master key, with its tag
//	4092   4  checksum of the rest
//
// The additional data are the magic, the number and the id. The id is HKDF-SHA256 of the master key, without salt, with "stele
// master key id 1". New files use the data key of the highest number. When the first master key is not the one that wraps them, the
// file is written anew and renamed: all data keys wrapped by that one, and one more of them, up to 50. Log files with an older data key are not
// recycled. A folder with encrypted files but no file of keys is a *CorruptError.
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
// Data key 1, of bytes 0x02, by the master key of bytes 0x01 with a nonce of bytes 0x03.
//
// # Marks of a scrub
//
//	 0   8  magic "STELESCB"
//	 8   4  version, 1
//	12   4  1 + index of the last extent that was scrubbed in this pass, or 0
//	16  16  its blob
//	32   8  when the pass began, in seconds since 1970; 0: none did
//	40   8  when the last whole pass ended; 0: none did
//	60   4  checksum of the rest
//
// The file is written anew and renamed, and its name is not synced: an older mark will do.
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
// to which later versions may append; readers skip what they do not know.
//
// Example: a handle
//
//	0000  94 01 c4 10 00 11 22 33 44 55 66 77 88 99 aa bb
//	0010  cc dd ee ff 0d 91 94 00 0d ce f0 98 3d 53 90
//
// # Extents of logs
//
// A log file has a fixed size, the store's extent size, and is overwritten in place: there is
// no metadata for a sync to write. It begins with a page of two copies of a header, at 0 and 2048.
// Of copies that are whole the one of the higher generation counts. A disk writes a sector
// of 512 bytes whole or not at all, so a power loss leaves each copy old or
// new, and a rotten one does not take the log with it.
//
//	  0   8  magic "STELELOG"
//	  8   4  version, 1
//	 12   4  state: 1 = spare, 2 = extent of a log
//	 16   8  generation: counts the headers written to this file
//	 24   8  size of the file
//	 32  16  log id
//	 48   8  number of the extent in the log, from 1, rising, with gaps
//	 56   8  number of the extent before it, 0 if there is none
//	 64   8  bytes of frames in that one; what lies beyond is cut
//	 72   8  position of the first frame
//	 80   8  salt, random, new each time the file is taken into use
//	 88   8  lowest number that is not released; all ones: the log is removed
//	508   4  checksum of the rest
//
// Of all extents that carry a log's id, the newest and those that it names, directly or
// through others, are the log. Others were released, or begun on a folder
// that failed before anything in them was acknowledged. From the second page on there are frames
// without a gap, each of whole pages, at most 1 MiB. The last page is kept for a seal.
//
//	+--------------------------------+------------+------------------+
//	| frame header, 40               | payload    | zeros to a page  |
//	+--------------------------------+------------+------------------+
//	   0   4  checksum of the rest, the zeros as well
//	   4   1  kind: 1 whole payload, 2 first part, 3 middle part, 4 last part, 5 seal
//	   8   4  bytes of payload in the frame
//	  12   4  pages just before it that were not acknowledged when it was made
//	  16   8  position of the frame
//	  24   8  salt of the extent
//	  32   8  bytes of the whole payload
//
// A payload that does not fit a frame is spread over several, in as many extents as
// it takes; without its last part it was never appended. One frame is written at a
// time and synced before the next. Therefore the first thing that is no frame is the end,
// torn by a crash, if no good frame comes after it on any page; otherwise it is damage. In all
// extents but the newest the end is known, from the header of the extent after.
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
// Here the log has one extent, of the 10 bytes "hello, log", and is sealed.
//
// # Replicas of extents of logs
//
// A log that is on several nodes is kept in files of the same form. Which extents it has is not in
// them but in a list elsewhere. The state is 3 = replica, and the header has no 56, 64 and 88 but
//
//	 96   8  epoch of who opened the extent
//	104   8  fence: the highest epoch that has fenced it, or 0
//	112   8  bytes of frames, once it was cut
//	120   4  flags: 1 = started, so 72 counts; 2 = cut, so 112 counts, and no more is appended
//	124   1  bytes of the server's name
//	128  64  name of the server whose log it is
//	192   8  round of the sweep that put it into quarantine
//	200   8  when that was, in seconds since 1970; 0: it is not in quarantine
//
// The salt is the same in all replicas, and so are the frames. There may be frames up to the end of
// the file, and several in one write, synced together; so a crash may leave a hole before a
// good frame. It is damage if some good frame after it says that the place was
// acknowledged, and else the end.
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
// Server n1's log was fenced at epoch 4 and then cut: the second frame does not count.
package local
