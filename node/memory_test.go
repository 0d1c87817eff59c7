package node

import (
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/tablet/sstable"
)

// TestBudgetAdmitsMessages: the read buffer of the largest message can grow.
func TestBudgetAdmitsMessages(t *testing.T) {
	for _, memory := range []int64{MemoryMin, 1 << 30, 64 << 30} {
		b := Config{MemoryBytes: memory}.budget()
		if b.rpc < 2*b.message || b.message > 320<<20 {
			t.Errorf("memory %d: %+v", memory, b)
		}
		if streams := (Config{MemoryBytes: memory}).gossipStreams(); streams < 8<<20 || streams > 12<<20 {
			t.Errorf("memory %d: %d for gossip", memory, streams)
		}
		sum := b.locks + b.cursors + b.memtables + b.metadataMemtables + b.cache + b.metadataCache + b.rpc + b.results + b.large + b.compaction + b.metadataCompaction + b.learn + b.logBytes() + b.blobBytes() + sstable.ZstdMemory
		if sum > memory-max(memory/10, programBytes) {
			t.Errorf("memory %d: %d are given away", memory, sum)
		}
		for _, folders := range []int{1, 100} {
			e := Config{MemoryBytes: memory, DataDirs: make([]string, folders), Encryption: masterkeys.Source{File: "f"}}
			more := (b.memtables + b.cache + b.results + b.large) - (e.budget().memtables + e.budget().cache + e.budget().results + e.budget().large)
			if more != e.encryptionBytes() || more < blobfs.EncryptionMemory || more > memory/16 && folders > 1 || e.budget().memtables < b.memtables/2 {
				t.Errorf("memory %d: %d for the encryption of %d folders", memory, more, folders)
			}
		}
	}
}
