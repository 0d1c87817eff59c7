package secretfile

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/vfs"
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

// TestWritePowerLoss: SF1, with a power loss at each disk operation, and what survives chosen at
// random.
func TestWritePowerLoss(t *testing.T) {
	const name = "/etc/stele/key"
	before, after := strings.Repeat("old", 500), strings.Repeat("new", 500)
	for cut := int64(1); ; cut++ {
		lost := false
		for seed := range uint64(20) {
			mem := vfs.NewMem(vfs.MemOptions{})
			if err := On(mem).Write(name, []byte(before)); err != nil {
				t.Fatal(err)
			}
			first := mem.Ops()
			mem.SetHook(func(op vfs.Op) error {
				if op.N-first >= cut {
					lost = true
					return vfs.ErrPowerCut
				}
				return nil
			})
			err := On(mem).Write(name, []byte(after))
			got, readErr := On(mem.Crash(rand.New(rand.NewPCG(uint64(cut), seed)))).Read(name)
			if readErr != nil || string(got) != after && (err == nil || string(got) != before) {
				t.Fatalf("power loss at operation %d, seed %d: Write returned %v, then the file has %d bytes, %v", cut, seed, err, len(got), readErr)
			}
		}
		if !lost {
			return
		}
	}
}

// TestFirstWritePowerLoss: a file that Write reported is found after a power loss, with the
// directories that Write created for it.
func TestFirstWritePowerLoss(t *testing.T) {
	const name = "/etc/stele/key"
	mem := vfs.NewMem(vfs.MemOptions{})
	if err := On(mem).Write(name, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if b, err := vfs.ReadFile(mem.Crash(nil), name); err != nil || string(b) != "x" {
		t.Errorf("after a power loss the file has %q, %v", b, err)
	}
	if err := On(mem).Remove(name); err != nil {
		t.Fatal(err)
	}
	if b, err := vfs.ReadFile(mem.Crash(nil), name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Remove and a power loss the file has %q, %v", b, err)
	}
}
