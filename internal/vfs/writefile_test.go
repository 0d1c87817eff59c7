package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var (
	oldContent = []byte(strings.Repeat("old", 1000)) // several sectors
	newContent = []byte(strings.Repeat("NEW!", 600))
)

func TestWriteFile(t *testing.T) {
	for name, f := range map[string]FS{"os": OS(), "mem": NewMem(MemOptions{})} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, f.MkdirAll(dir))
			path := filepath.Join(dir, "file")
			if _, err := ReadFile(f, path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("read a missing file: %v", err)
			}
			for _, content := range [][]byte{oldContent, newContent, nil} {
				must(t, WriteFile(f, path, content))
				if got, err := ReadFile(f, path); err != nil || string(got) != string(content) {
					t.Fatalf("read %d bytes, %v; want %d", len(got), err, len(content))
				}
			}
			if names, err := f.ReadDir(dir); err != nil || !slices.Equal(names, []string{"file"}) {
				t.Errorf("the directory has %v, %v", names, err)
			}
			if err := WriteFile(f, filepath.Join(dir, "none", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("write in a missing directory: %v", err)
			}
		})
	}
}

// TestWriteFileMode: a file that all could read is the owner's after it is replaced.
func TestWriteFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, oldContent, 0o644))
	must(t, WriteFile(OS(), path, newContent))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

// TestWriteFilePowerLoss: VW1, with a power loss at each disk operation, and what survives chosen at
// random.
func TestWriteFilePowerLoss(t *testing.T) {
	for _, before := range [][]byte{nil, oldContent} {
		for cut := int64(1); ; cut++ {
			lost := false
			for seed := range uint64(50) {
				mem, err := replaceOn(t, before, func(op Op) error {
					if op.N >= cut {
						lost = true
						return ErrPowerCut
					}
					return nil
				})
				after := mem.Crash(rand.New(rand.NewPCG(uint64(cut), seed)))
				checkReplaced(t, after, fmt.Sprintf("power loss at operation %d, seed %d", cut, seed), before, err)
			}
			if !lost {
				break
			}
		}
	}
}

// TestWriteFileFaults: VW1 when a disk operation fails and the process lives. The temporary file is
// removed.
func TestWriteFileFaults(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, ErrTorn} {
		for _, before := range [][]byte{nil, oldContent} {
			for at := int64(1); ; at++ {
				failed := false
				mem, err := replaceOn(t, before, func(op Op) error {
					if op.N == at {
						failed = true
						return fault
					}
					return nil
				})
				what := fmt.Sprintf("%v at operation %d", fault, at)
				if !failed {
					must(t, err)
					break
				}
				if !errors.Is(err, fault) {
					t.Errorf("%s: error is %v", what, err)
				}
				checkReplaced(t, mem, what, before, err)
				if names, _ := mem.ReadDir("/d"); slices.ContainsFunc(names, func(s string) bool { return s != "file" }) {
					t.Errorf("%s: the directory has %v", what, names)
				}
			}
		}
	}
}

// replaceOn replaces /d/file, which has the content before, or does not exist if that is nil. The
// hook sees the operations of the replacement, from 1.
func replaceOn(t *testing.T, before []byte, hook func(Op) error) (*Mem, error) {
	t.Helper()
	mem := NewMem(MemOptions{})
	must(t, mem.MkdirAll("/d"))
	must(t, mem.SyncDir("/"))
	if before != nil {
		must(t, WriteFile(mem, "/d/file", before))
	}
	first := mem.Ops()
	mem.SetHook(func(op Op) error { op.N -= first; return hook(op) })
	err := WriteFile(mem, "/d/file", newContent)
	mem.SetHook(nil)
	return mem, err
}

func checkReplaced(t *testing.T, f FS, what string, before []byte, result error) {
	t.Helper()
	got, err := ReadFile(f, "/d/file")
	switch {
	case err == nil && string(got) == string(newContent):
	case result != nil && before == nil && errors.Is(err, fs.ErrNotExist):
	case result != nil && before != nil && err == nil && string(got) == string(before):
	default:
		t.Fatalf("%s: the write returned %v, then the file has %d bytes, %v", what, result, len(got), err)
	}
}

// TestWriteFileConcurrent: the file has the content of one of the writers at each time.
func TestWriteFileConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, WriteFile(OS(), path, oldContent))
	var wg sync.WaitGroup
	for _, content := range [][]byte{oldContent, newContent} {
		wg.Go(func() {
			for range 20 {
				if err := WriteFile(OS(), path, content); err != nil {
					t.Error(err)
				}
				if got, err := ReadFile(OS(), path); err != nil || string(got) != string(oldContent) && string(got) != string(newContent) {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
			}
		})
	}
	wg.Wait()
}
