package vfs_test

import (
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
)

// TestMakeDirIsDurable checks that a directory that MakeDir has returned, and what is synced in it,
// survives a power loss, also if an earlier process was killed while it created the directory.
func TestMakeDirIsDurable(t *testing.T) {
	seed := testseed.New(t)
	for i := range uint64(200) {
		m := vfs.NewMem(vfs.MemOptions{})
		if i%2 == 0 {
			if err := m.MkdirAll("/a/b"); err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 0 {
			if err := m.MkdirAll("/a/b/c"); err != nil {
				t.Fatal(err)
			}
		}
		if err := vfs.MakeDir(m, "/a/b/c"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(m, "/a/b/c/file", []byte("x")); err != nil {
			t.Fatal(err)
		}
		after := m.Crash(rand.New(rand.NewPCG(seed, i)))
		if b, err := vfs.ReadFile(after, "/a/b/c/file"); err != nil || string(b) != "x" {
			t.Fatalf("try %d: after the power loss: %q, %v", i, b, err)
		}
	}
}
