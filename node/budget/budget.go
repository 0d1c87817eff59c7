package budget

import (
	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/tablet/sstable"
)

// Budget is the division of a node's memory, in bytes (I13). The shares and the memory of the program add up to no more than the whole. The
// garbage collector uses what is free of them: they are hardly ever all full at once.
type Budget struct {
	Memtables, MetadataMemtables   int64
	Cache, MetadataCache           int64
	RPC                            int64 // requests and answers
	Message                        int64 // the largest request or answer
	Results                        int64 // of requests for rows and blobs
	Large                          int64 // large reads
	Compaction, MetadataCompaction int64
	Learn                          int64 // of two-pass compression
	LogBatch, LogWindow            int64 // of commit logs
	BlobWindow                     int64 // of each file being written to other nodes
	Sort                           int64 // of one sort of a piece of a dead server's log
	Sorts                          int   // concurrent sorts
	Copies                         int   // concurrent copies of extents to this node, and from it
	Runtime                        int64 // the memory limit of the Go runtime
	GossipStreams                  int64 // a bound of the memory of gossip streams; not a share: it is hardly used unless the port is flooded
	Fixed
	encryption int64
}

// Fixed has the shares that other packages determine.
type Fixed struct {
	Locks   int64 // of the lock service: users' state, and the leader's for their sessions
	Cursors int64 // of open scans: keys and filter programs
	Gateway int64 // of calls of Cloud Bigtable's API
	// EncryptedFolders is the number of data directories whose files are encrypted.
	EncryptedFolders int
}

// logBytes is the memory of commit logs' buffers: four batches, and what is being written: as it is sent, and twice as it is written here.
// METADATA's log has batches of its own, and little being written.
func (b *Budget) logBytes() int64 { return 4*b.LogBatch + 3*b.LogWindow + 4*b.MetadataLogBatch() }

// blobBytes is the memory of replicas being written: each server writes two files at a time.
func (b *Budget) blobBytes() int64 { return 4*b.BlobWindow + int64(b.Copies)*blobfs.CopyMemory }

// encryptionBytes is the memory of the buffers for encrypted files in a node of that memory. With many disks and little memory it is an estimate
// below their bound, which would need all disks at their highest concurrency.
func (f Fixed) encryptionBytes(memory int64) int64 {
	return min(int64(f.EncryptedFolders)*blobfs.EncryptionMemory, memory/16)
}

// SortBytes is the cache memory that a sort reserves: what is sorted, and the buffers for reading and writing.
func (b *Budget) SortBytes() int64 { return b.Sort + 8<<20 }

// MetadataLogBatch is the size of the batches of METADATA's commit log.
func (b *Budget) MetadataLogBatch() int64 { return b.LogBatch / 8 }

// programBytes is the memory of a process that the Go runtime does not count: pages of the program, and the kernel's memory for its connections.
const programBytes = 56 << 20

// Of divides a memory of m bytes.
func Of(m int64, fixed Fixed) Budget {
	all := m - max(m/10, programBytes)
	b := Budget{Fixed: fixed, Runtime: all, GossipStreams: min(12<<20, m/32), encryption: fixed.encryptionBytes(m), Message: min(320<<20, m/10), Compaction: min(256<<20, all/10)}
	b.RPC = max(m/10, 2*b.Message) // a read buffer doubles until the message fits
	b.Learn = min(24<<20, max(10<<20, all/16))
	b.LogBatch, b.LogWindow = min(4<<20, m/256), min(8<<20, m/128)
	b.Sort, b.Sorts = min(80<<20, m/16), 1
	if m >= 4<<30 {
		b.Sorts = 2
	}
	b.BlobWindow, b.Copies = min(8<<20, m/256), int(min(32, m/(64<<20)))
	rest := all - b.Locks - b.Cursors - b.Gateway - b.RPC - b.Compaction - b.Learn - b.logBytes() - b.blobBytes() - b.encryption - sstable.ZstdMemory
	b.Memtables, b.Results, b.Large = rest*5/16, rest*2/16, rest/16
	b.Cache = rest - b.Memtables - b.Results - b.Large
	b.MetadataMemtables, b.MetadataCache = min(m/80, 64<<20), min(m/40, 256<<20)
	b.Memtables, b.Cache = b.Memtables-b.MetadataMemtables, b.Cache-b.MetadataCache
	b.MetadataCompaction = b.Compaction / 4
	b.Compaction -= b.MetadataCompaction
	return b
}
