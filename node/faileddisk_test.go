package node_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/disks"
)

// TestFailedDisks: on an idle node with two disks, one whose syncs fail is listed in the status, with the time and the error, and the node
// goes on with the other. When that fails too, the node ends, although nothing but its check of the disks writes.
func TestFailedDisks(t *testing.T) {
	t.Parallel()
	fs := vfs.NewFaulty(vfs.OS())
	var bad atomic.Pointer[string]
	fs.SetHook(func(op vfs.Op) error {
		if dir := bad.Load(); dir != nil && op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, *dir) {
			return syscall.EIO
		}
		return nil
	})
	dirs := []string{t.TempDir(), t.TempDir()}
	n, err := node.Start(t.Context(), node.Config{DataDirs: dirs, FS: fs, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", Bigtable: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close(t.Context()) }() // of files that cannot be written
	c, err := client.Open(t.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	bad.Store(&dirs[1])
	var failed []client.DiskStatus
	for began := time.Now(); len(failed) == 0; time.Sleep(100 * time.Millisecond) {
		s, err := c.BlockStore().Status(t.Context())
		if err != nil || time.Since(began) > time.Minute {
			t.Fatalf("the failed disk is not listed: %+v, %v", s, err)
		}
		failed = s.Nodes[0].FailedDisks
	}
	s, err := c.Nodes().Status(t.Context(), n.RPCAddr())
	if err != nil || len(s.Disks) != 2 || s.Disks[0].Retired || !s.Disks[1].Retired {
		t.Errorf("status %+v, %v", s, err)
	}
	if d := failed[0]; len(failed) != 1 || !strings.HasPrefix(d.Path, dirs[1]) || !strings.Contains(d.Error, syscall.EIO.Error()) || d.FailedForS <= 0 || d.FailedForS > 60 {
		t.Errorf("failed disks %+v", failed)
	}
	if n.Err() != nil {
		t.Errorf("the node ended with a good disk: %v", n.Err())
	}

	bad.Store(&dirs[0])
	select {
	case <-n.Done():
	case <-time.After(time.Minute):
		t.Fatal("the node goes on with disks that have all failed")
	}
	var all *disks.FailedError
	if !errors.As(n.Err(), &all) || !errors.Is(all, syscall.EIO) {
		t.Errorf("the node ended with %v", n.Err())
	}
}
