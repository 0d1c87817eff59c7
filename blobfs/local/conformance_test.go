package local_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

func TestConformance(t *testing.T) {
	for _, folders := range []int{1, 3} {
		name := map[int]string{1: "one-folder", 3: "three-folders"}[folders]
		t.Run("memory/"+name, func(t *testing.T) {
			blobtest.Run(t, func(t *testing.T) blobtest.Store {
				return open(t, vfs.NewMem(vfs.MemOptions{}), "/data", folders)
			})
			blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
				return blobtest.LocalLogs{Store: open(t, vfs.NewMem(vfs.MemOptions{}), "/data", folders)}
			})
		})
		t.Run("encrypted/"+name, func(t *testing.T) {
			key := local.MasterKey{1}
			blobtest.Run(t, func(t *testing.T) blobtest.Store {
				return open(t, vfs.NewMem(vfs.MemOptions{}), "/data", folders, key)
			})
			blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
				return blobtest.LocalLogs{Store: open(t, vfs.NewMem(vfs.MemOptions{}), "/data", folders, key)}
			})
		})
		t.Run("local/"+name, func(t *testing.T) {
			blobtest.Run(t, func(t *testing.T) blobtest.Store {
				return open(t, vfs.OS(), t.TempDir(), folders)
			})
			blobtest.RunLogs(t, func(t *testing.T) blobtest.LogStore {
				return blobtest.LocalLogs{Store: open(t, vfs.OS(), t.TempDir(), folders)}
			})
		})
	}
}

func open(t *testing.T, fs vfs.FS, root string, folders int, keys ...local.MasterKey) *local.Store {
	cfg := local.Config{FS: fs, ExtentBytes: 256 << 10, ReserveBytes: -1, Node: "n1", MasterKeys: keys}
	for i := range folders {
		cfg.Folders = append(cfg.Folders, filepath.Join(root, string(rune('a'+i))))
	}
	s, err := local.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ctx = context.Background()
