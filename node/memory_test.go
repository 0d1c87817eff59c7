package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/sstable"
)

// TestResultMemory: results stay within their share, and a caller that waits in vain gets a retry-after.
func TestResultMemory(t *testing.T) {
	t.Parallel()
	m := newResultMemory(32 << 20)
	crowded := 0
	m.crowded = func() func() { crowded++; return func() { crowded-- } }
	if got := m.batch(api.ScanBatchBytesMax); got != 4<<20 {
		t.Errorf("a batch may have %d bytes", got)
	}
	var held []func()
	for range 4 {
		release, err := m.take(context.Background(), "", m.batch(api.ScanBatchBytesMax))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
	}
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := m.take(soon, "", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call whose time is up: %v", err)
	}
	var over *api.OverloadedError
	if _, err := m.take(context.Background(), "", 1); !errors.As(err, &over) || over.RetryAfter <= 0 {
		t.Errorf("a call that waited in vain: %v", err)
	}
	held[0]()
	release, err := m.take(context.Background(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	release()
	if crowded != 0 {
		t.Errorf("%d still say that they wait", crowded)
	}
}

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
			e := Config{MemoryBytes: memory, DataDirs: make([]string, folders), Encryption: Encryption{KeyFile: "f"}}
			more := (b.memtables + b.cache + b.results + b.large) - (e.budget().memtables + e.budget().cache + e.budget().results + e.budget().large)
			if more != e.encryptionBytes() || more < blobfs.EncryptionMemory || more > memory/16 && folders > 1 || e.budget().memtables < b.memtables/2 {
				t.Errorf("memory %d: %d for the encryption of %d folders", memory, more, folders)
			}
		}
	}
}

// TestCallContext: a read's context ends with the call's deadline.
func TestCallContext(t *testing.T) {
	past := callContext{context.Background(), time.Now().Add(-time.Second)}
	if err := past.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := (callContext{Context: context.Background()}).Err(); err != nil {
		t.Errorf("without a deadline: %v", err)
	}
}

// TestRefusesWrites: only what meets every row ends the rest of mutate_rows.
func TestRefusesWrites(t *testing.T) {
	if !refusesWrites(&api.OverloadedError{}) || !refusesWrites(api.ErrDiskFull) || refusesWrites(api.ErrNoTable) {
		t.Error("refusals are mistaken")
	}
}
