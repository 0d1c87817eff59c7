package keydir

import (
	"bytes"
	"os"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

// TestOnAnotherFileSystem: a directory of keys on a file system in memory survives a power loss, and
// nothing of it is on the disk.
func TestOnAnotherFileSystem(t *testing.T) {
	const dir = "/stele-keydir-test/security"
	mem := vfs.NewMem(vfs.MemOptions{})
	if err := mem.MkdirAll("/stele-keydir-test"); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if _, err := On(mem, dir).Init("n1", nil, epoch); err != nil {
		t.Fatal(err)
	}
	f := On(mem.Crash(nil), dir)
	c, err := f.Load()
	if err != nil || c.Authority == nil || c.Credential.Peer().Name != "n1" {
		t.Fatalf("loaded %+v, %v", c, err)
	}
	if _, err := f.Init("n1", nil, epoch); err == nil {
		t.Error("keys were replaced")
	}
	if err := f.SetGossipKeys([][]byte{bytes.Repeat([]byte{7}, 32)}); err != nil {
		t.Fatal(err)
	}
	if err := f.DropAuthority(); err != nil {
		t.Fatal(err)
	}
	if c, err = f.Load(); err != nil || c.Authority != nil || c.GossipKeys[0][0] != 7 {
		t.Errorf("loaded %+v, %v", c, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("on the disk: %v", err)
	}
}
