package storage

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/vfs"
)

// TestCheckThroughBackend: the check that reads a log through its store returns what that of a bbolt
// file returns, and finds what is wrong with a value.
func TestCheckThroughBackend(t *testing.T) {
	s, _ := newLogStore(t)
	for key, value := range map[string]string{StableServerID: "n1", StableJoining: "\x00\x00\x00\x00\x00\x00\x00\x01"} {
		if err := s.Set([]byte(key), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	storeEntries(t, s, 1, 150, 10)
	if err := s.DeleteRange(1, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.bolt.Close(); err != nil {
		t.Fatal(err)
	}
	want, _ := checkLog(t, s.opt.File)
	open := OpenFunc(OpenBolt)
	got, problems, err := open.checkLog(vfs.OS(), s.opt.File)
	if err != nil || len(problems) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, %v, want %+v", got, problems, err, want)
	}

	bolt, err := OpenBolt(s.opt.File)
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.Join(bolt.StoreLog(&raft.Log{Index: 30, Term: 1}), bolt.Set([]byte("CurrentTerm"), []byte("x")), bolt.DeleteRange(40, 40), bolt.Close())
	if bad != nil {
		t.Fatal(bad)
	}
	_, problems, err = open.checkLog(vfs.OS(), s.opt.File)
	if err != nil || len(problems) < 3 {
		t.Errorf("of a damaged log: %v, %v", problems, err)
	}
	for _, p := range problems {
		if !errors.Is(p, ErrCorrupt) {
			t.Errorf("problem is %v", p)
		}
	}

	missing := filepath.Join(t.TempDir(), LogName)
	if _, _, err := open.checkLog(vfs.OS(), missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a missing log: %v", err)
	}
	if is, err := vfs.Exists(vfs.OS(), missing); is || err != nil {
		t.Errorf("the check has created the log: %v, %v", is, err)
	}
}
