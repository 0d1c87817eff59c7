package identity_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/node/identity"
)

// asideOf returns the only log that was set aside from a folder of a Raft log.
func asideOf(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob(dir + ".aside.*")
	ok(t, err)
	if len(all) != 1 {
		t.Fatalf("set aside: %q, want one", all)
	}
	return all[0]
}

// TestRemoveAside: a log that was set aside is removed when it is older than AsideKept, and nothing else is.
func TestRemoveAside(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	f := inspect(t, a, b)
	ok(t, f.Join("c1"))
	var logs []string
	for range 2 { // in the same second, mostly
		dir, err := f.BeginVoter(1)
		ok(t, err)
		makeLog(t, dir)
		ok(t, f.CompleteVoter())
		ok(t, f.EndVoter())
		all, err := filepath.Glob(dir + ".aside.*")
		ok(t, err)
		logs = all
	}
	if len(logs) != 2 {
		t.Fatalf("set aside: %q, want two", logs)
	}
	dir, err := f.BeginVoter(1)
	ok(t, err)
	makeLog(t, dir)
	ok(t, f.CompleteVoter())
	other := filepath.Join(b, "raft.aside.mine")
	ok(t, os.Mkdir(other, 0o700))

	var self identity.Self
	self.Open(f)
	now := time.Now()
	removed, err := self.RemoveAside(now.Add(identity.AsideKept - time.Minute))
	if len(removed) > 0 || err != nil {
		t.Errorf("a minute too early: removed %q, %v", removed, err)
	}
	removed, err = self.RemoveAside(now.Add(identity.AsideKept + time.Minute))
	ok(t, err)
	slices.Sort(removed)
	if !slices.Equal(removed, logs) {
		t.Errorf("removed %q, want %q", removed, logs)
	}
	for _, path := range logs {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{dir, other} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	inspect(t, a, b)
}

// TestRemoveAsideBeside: a folder that cannot be read does not keep the logs of the other ones from being removed.
func TestRemoveAsideBeside(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	f := inspect(t, a, b)
	ok(t, f.Join("c1"))
	old := time.Now().Add(-2 * identity.AsideKept).UTC().Format("20060102T150405Z")
	var logs []string
	for _, dir := range []string{a, b} {
		logs = append(logs, filepath.Join(dir, "raft.aside."+old))
		ok(t, os.Mkdir(logs[len(logs)-1], 0o700))
	}
	var self identity.Self
	self.Open(f)
	ok(t, os.RemoveAll(a))
	if removed, err := self.RemoveAside(time.Now()); !slices.Equal(removed, logs[1:]) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed %q, %v, want %q and that a folder does not exist", removed, err, logs[1:])
	}
}
