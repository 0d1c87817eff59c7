package identity_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
)

// goldenFile is the example in the package documentation.
const goldenFile = `{
  "format": 3,
  "revision": 7,
  "cluster": "c1",
  "node": "n1",
  "folder": "f1",
  "starts": 4,
  "raft": "",
  "raft_epoch": 2,
  "folders": [
    {
      "id": "f1",
      "path": "/data"
    }
  ],
  "crc": "7202b84e"
}
`

// inspectText inspects a data folder with that identity file.
func inspectText(t *testing.T, text string) (*vfs.Mem, *identity.Folders, error) {
	t.Helper()
	mem := vfs.NewMem(vfs.MemOptions{})
	ok(t, mem.MkdirAll("/data"))
	ok(t, vfs.WriteFile(mem, "/data/identity", []byte(text)))
	f, err := identity.InspectFS(mem, []string{"/data"})
	return mem, f, err
}

// The file is written as the documentation shows it, and read back.
func TestGolden(t *testing.T) {
	mem, f, err := inspectText(t, goldenFile)
	ok(t, err)
	if f.Node != "n1" || f.Cluster != "c1" || f.Revision != 7 || f.Starts != 4 || f.RaftEpoch != 2 {
		t.Errorf("got %+v", f.Identity)
	}
	f.Revision-- // the write adds one
	ok(t, f.Write())
	if b, err := vfs.ReadFile(mem, "/data/identity"); err != nil || string(b) != goldenFile {
		t.Errorf("wrote\n%s\nwant\n%s\n%v", b, goldenFile, err)
	}
}

// A file of version 2 has no checksum. It gets one at the next start.
func TestVersionTwo(t *testing.T) {
	old := strings.Replace(goldenFile, `"format": 3`, `"format": 2`, 1)
	old = old[:strings.Index(old, ",\n  \"crc\"")] + "\n}\n"
	mem, f, err := inspectText(t, old)
	ok(t, err)
	ok(t, f.Begin())
	b, err := vfs.ReadFile(mem, "/data/identity")
	ok(t, err)
	if text := string(b); !strings.Contains(text, `"format": 3`) || !strings.Contains(text, `"crc": "`) {
		t.Errorf("wrote\n%s", text)
	}
	if g, err := identity.InspectFS(mem, []string{"/data"}); err != nil || g.Node != "n1" || g.Starts != 5 {
		t.Errorf("got %+v, %v", g, err)
	}
}

// ID5: a file with a wrong bit, or without its end, is a CorruptError that names the file and what to do.
func TestWrongBits(t *testing.T) {
	expect := func(what, text string) {
		_, _, err := inspectText(t, text)
		var corrupt *identity.CorruptError
		if !errors.As(err, &corrupt) || corrupt.File != filepath.FromSlash("/data/identity") || !strings.Contains(err.Error(), "restore it from a copy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for at := range len(goldenFile) {
		for bit := range 8 {
			b := []byte(goldenFile)
			b[at] ^= 1 << bit
			expect("flipped bit in "+goldenFile[max(0, at-9):at+1], string(b))
		}
		expect("cut", goldenFile[:at])
	}
	expect("appended", goldenFile+"\n")
}
