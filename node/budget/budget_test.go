package budget

import (
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/dataapi"
	"github.com/steledb/stele/node/lockserver"
	"github.com/steledb/stele/tablet/sstable"
)

// fixed returns the shares that a node has.
func fixed(memory int64, folders int) Fixed {
	locks := lockserver.ShareOf(memory, authz.OpenClients)
	return Fixed{Locks: locks.AllBytes + locks.AllLeaderBytes, Cursors: memory / dataapi.CursorMemoryShare, EncryptedFolders: folders}
}

// TestBudgetAdmitsMessages: the read buffer of the largest message can grow.
func TestBudgetAdmitsMessages(t *testing.T) {
	for _, memory := range []int64{256 << 20, 1 << 30, 64 << 30} {
		b := Of(memory, fixed(memory, 0))
		if b.RPC < 2*b.Message || b.Message > 320<<20 {
			t.Errorf("memory %d: %+v", memory, b)
		}
		if streams := b.GossipStreams; streams < 8<<20 || streams > 12<<20 {
			t.Errorf("memory %d: %d for gossip", memory, streams)
		}
		sum := b.Locks + b.Cursors + b.Memtables + b.MetadataMemtables + b.Cache + b.MetadataCache + b.RPC + b.Results + b.Large + b.Compaction + b.MetadataCompaction + b.Learn + b.logBytes() + b.blobBytes() + sstable.ZstdMemory
		if sum > b.Runtime {
			t.Errorf("memory %d: %d are given away", memory, sum)
		}
		with := fixed(memory, 0)
		with.Gateway = memory / 10
		g := Of(memory, with)
		if less := (b.Memtables + b.Cache + b.Results + b.Large) - (g.Memtables + g.Cache + g.Results + g.Large); less < g.Gateway-4 || less > g.Gateway+4 || g.Memtables < b.Memtables/2 {
			t.Errorf("memory %d: %d for the gateway of %d", memory, less, g.Gateway)
		}
		for _, folders := range []int{1, 100} {
			e := Of(memory, fixed(memory, folders))
			more := (b.Memtables + b.Cache + b.Results + b.Large) - (e.Memtables + e.Cache + e.Results + e.Large)
			if more != e.encryption || more < blobfs.EncryptionMemory || more > memory/16 && folders > 1 || e.Memtables < b.Memtables/2 {
				t.Errorf("memory %d: %d for the encryption of %d folders", memory, more, folders)
			}
		}
	}
}
