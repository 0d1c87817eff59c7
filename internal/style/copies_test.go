package style

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCopies: the role for Ansible, which is shipped alone, has copies of the package's files.
func TestCopies(t *testing.T) {
	copies, err := filepath.Glob(filepath.Join(root, "ansible/roles/stele/files/*"))
	if err != nil || len(copies) == 0 {
		t.Fatalf("no files of the role: %v", err)
	}
	for _, path := range copies {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		original := filepath.Join("packaging", filepath.Base(path))
		if want, err := os.ReadFile(filepath.Join(root, original)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s: cp %[2]s %[1]s (%[3]v)", path[len(root)+1:], original, err)
		}
	}
}
