package verify

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/tablet/sstable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFolders returns two data folders of a node that is a voter, with a blob of bytes and one that is an SSTable of two entries.
func newFolders(t *testing.T) []string {
	t.Helper()
	dirs := []string{t.TempDir(), t.TempDir()}
	f, err := identity.Inspect(dirs)
	if err == nil {
		err = errors.Join(f.Begin(), f.Join("c1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	raft, err := f.BeginVoter(1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := raftmeta.Open(raftmeta.Config{Dir: raft, ID: "n1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.WaitReady(t.Context()), g.Close(), f.CompleteVoter()); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dirs)
	defer s.Close()
	var table bytes.Buffer
	w := sstable.NewWriter(&table, sstable.Options{})
	if err := errors.Join(w.Add([]byte("a"), []byte("1")), w.Add([]byte("b"), []byte("2"))); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(nil); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{bytes.Repeat([]byte("bytes of no table "), 1000), table.Bytes()} {
		b, err := s.Create(t.Context())
		if err == nil {
			_, err = b.Write(data)
		}
		if err == nil {
			_, err = b.Seal(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

func openStore(t *testing.T, dirs []string) *blobfs.Store {
	t.Helper()
	folders := identity.BlobFolders(dirs)
	for _, d := range folders {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s, err := blobfs.Open(blobfs.Config{Folders: folders})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check verifies folders and returns what it has found.
func check(t *testing.T, dirs []string) (Summary, []Problem, error) {
	t.Helper()
	var all []Problem
	sum, err := Folders(t.Context(), dirs, masterkeys.Source{}, func(p Problem) { all = append(all, p) })
	return sum, all, err
}

// contents returns all files in folders but the locks.
func contents(t *testing.T, dirs []string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(strings.ToLower(d.Name()), "lock") {
				return err
			}
			b, err := os.ReadFile(path)
			files[path] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestSound: sound folders have no problems, in any order, and all blobs and SSTables are counted. Nothing is changed.
func TestSound(t *testing.T) {
	dirs := newFolders(t)
	before := contents(t, dirs)
	for range 2 {
		sum, problems, err := check(t, dirs)
		if err != nil || len(problems) != 0 || sum.Blobs != 2 || sum.SSTables != 1 || sum.Entries != 2 || sum.Bytes == 0 || sum.Logs != 0 {
			t.Errorf("found %+v, problems %+v, %v", sum, problems, err)
		}
		slices.Reverse(dirs)
	}
	after := contents(t, dirs)
	for path, data := range before {
		if after[path] != data {
			t.Errorf("%s was changed", path)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files became %d", len(before), len(after))
	}
}

// TestDamaged: a flipped bit of a blob is reported with its file, and damage of the lock service's log is found, too. A damaged part does not keep
// the others from being checked.
func TestDamaged(t *testing.T) {
	dirs := newFolders(t)
	blobs, logs := 0, 0
	for path, data := range contents(t, dirs) {
		bad, at := []byte(data), strings.Index(data, "bytes of no table")
		inLog := strings.Contains(path, "raft") && len(data) > 1<<14
		switch {
		case at >= 0:
			blobs++
			bad[at] ^= 1
		case inLog:
			logs++
			for i := range bad {
				bad[i] ^= 0xff
			}
		default:
			continue
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		sum, problems, err := check(t, dirs)
		if inLog && err == nil && len(problems) == 0 || !inLog && (err != nil || len(problems) == 0 || sum.SSTables != 1) {
			t.Errorf("%s: found %+v, problems %+v, %v", path, sum, problems, err)
		}
		for _, p := range problems {
			if p.Err == nil || p.File == "" {
				t.Errorf("%s: %+v", path, p)
			}
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if blobs == 0 || logs == 0 {
		t.Errorf("damaged %d files with the blob, and %d of the log", blobs, logs)
	}
	if _, problems, err := check(t, dirs); err != nil || len(problems) != 0 {
		t.Errorf("repaired: %+v, %v", problems, err)
	}
}

// TestNotChecked: the data of a running node, of a node that never served, and folders that are incomplete or none of a node, are not
// checked, which is an error.
func TestNotChecked(t *testing.T) {
	dirs := newFolders(t)
	s := openStore(t, dirs)
	if _, _, err := check(t, dirs); err == nil {
		t.Error("the block store of a running node was checked")
	}
	s.Close()
	f, err := identity.Inspect(dirs)
	if err != nil {
		t.Fatal(err)
	}
	g, err := raftmeta.Open(raftmeta.Config{Dir: f.RaftDir(), ID: "n1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := check(t, dirs); err == nil {
		t.Error("the log of a running node was checked")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := check(t, dirs[:1]); err == nil {
		t.Error("one of two folders was checked")
	}
	if _, _, err := check(t, []string{t.TempDir()}); err == nil {
		t.Error("an empty folder was checked")
	}
	founding := []string{t.TempDir()}
	if f, err = identity.Inspect(founding); err == nil {
		err = errors.Join(f.Begin(), f.Found("c1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	openStore(t, founding).Close()
	if _, _, err := check(t, founding); err == nil || !strings.Contains(err.Error(), "never served") {
		t.Errorf("a node that never served: %v", err)
	}
	if _, _, err := check(t, dirs); err != nil {
		t.Errorf("a node that has stopped: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Folders(ctx, dirs, masterkeys.Source{}, func(Problem) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a check that is given up: %v", err)
	}
	missing := masterkeys.Source{File: filepath.Join(t.TempDir(), "keys")}
	if _, err := Folders(t.Context(), dirs, missing, func(Problem) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file of master keys: %v", err)
	}
}
