package removal

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

// TestRemovedFile: the form of the file, and what is no such file.
func TestRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	if gone, err := readFile(vfs.OS(), path, "c1"); err != nil || gone != nil {
		t.Errorf("no file: %v, %v", gone, err)
	}
	want := map[string]bool{"n2": true, "n1": true}
	if err := writeFile(vfs.OS(), path, "c1", want); err != nil {
		t.Fatal(err)
	}
	const golden = `{
  "format": 1,
  "cluster": "c1",
  "nodes": [
    "n1",
    "n2"
  ]
}
`
	b, err := os.ReadFile(path)
	if err != nil || string(b) != golden {
		t.Errorf("the file is %s, %v", b, err)
	}
	if gone, err := readFile(vfs.OS(), path, "c1"); err != nil || !maps.Equal(gone, want) {
		t.Errorf("read back: %v, %v", gone, err)
	}
	if gone, err := readFile(vfs.OS(), path, "c2"); err == nil {
		t.Errorf("another cluster's: %v", gone)
	}
	for _, bad := range []string{"", golden[:20], `{"format": 2, "cluster": "c1", "nodes": []}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if gone, err := readFile(vfs.OS(), path, "c1"); err == nil {
			t.Errorf("%q is taken: %v", bad, gone)
		}
	}
}
