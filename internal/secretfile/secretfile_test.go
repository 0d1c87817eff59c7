package secretfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteThenRead(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "security", "deep", "key")
	for _, content := range []string{"one", "two"} {
		if err := Write(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := Read(name); err != nil || string(b) != content {
			t.Fatalf("read %q, %v; want %q", b, err, content)
		}
	}
	for file, want := range map[string]os.FileMode{name: 0o600, filepath.Dir(name): 0o700, filepath.Join(dir, "security"): 0o700} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", file, got, want)
		}
	}
	left, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(left) != 1 {
		t.Errorf("%d files are left, %v; want the one", len(left), err)
	}
	if err := errors.Join(Remove(name), Remove(name), Remove(filepath.Join(dir, "nowhere", "key"))); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the file is there after Remove: %v", err)
	}
}

// TestWriteRestrictsPermissions: a file that was readable by all is not after Write.
func TestWriteRestrictsPermissions(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
}

func TestReadRefusesExposed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{
		0o600: true, 0o400: true, 0o640: true, 0o440: true,
		0o644: false, 0o604: false, 0o660: false, 0o620: false, 0o602: false, 0o601: false, 0o666: false, 0o777: false,
	} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		b, err := Read(name)
		var exposed *ExposedError
		switch {
		case good && (err != nil || string(b) != "hush"):
			t.Errorf("mode %o: %q, %v", mode, b, err)
		case !good && (!errors.As(err, &exposed) || exposed.Mode != mode || exposed.File != name || b != nil):
			t.Errorf("mode %o: %q, %v; want an ExposedError", mode, b, err)
		}
	}
}

func TestReadRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "large")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), BytesMax+1), 0o600); err != nil {
		t.Fatal(err)
	}
	var large *TooLargeError
	if _, err := Read(name); !errors.As(err, &large) {
		t.Errorf("a large file: %v", err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a folder was read")
	}
	if _, err := Read(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
