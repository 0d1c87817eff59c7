package blobfs_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
)

// filesWith returns the files below dir that contain the bytes.
func filesWith(t *testing.T, fsys vfs.FS, dir string, secret []byte) (found []string) {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	noError(t, err)
	for _, name := range names {
		name = dir + "/" + name
		f, err := fsys.OpenRead(name)
		if err != nil {
			found = append(found, filesWith(t, fsys, name, secret)...)
			continue
		}
		size, err := f.Size()
		noError(t, err)
		p := make([]byte, size)
		if size > 0 {
			_, err = f.ReadAt(p, 0)
			noError(t, err)
		}
		f.Close()
		if bytes.Contains(p, secret) {
			found = append(found, name)
		}
	}
	return found
}

// I10: released data of a log without further appends is in no file some time later, whether its
// files are reused or not, and unreleased data is there. By default that takes 12 h.
func TestReleasedLogIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLists()
		cfg := quick
		const age = 20 * time.Second
		cfg.Lists, cfg.Logs.ExtentAge = l, age
		c := newNodes(t, nodesConfig{n: 3, cluster: cfg, spare: age, virtual: true})
		where := func(secret string) (found []string) {
			synctest.Wait() // no file is created, removed or renamed during the walk: time stands still
			for _, n := range c.all {
				for _, dir := range []string{"/a", "/b"} {
					for _, name := range filesWith(t, n.fs, dir, []byte(secret)) {
						found = append(found, n.id+name)
					}
				}
			}
			return found
		}
		id := blobfs.NewID()
		w, err := c.all[0].ReplicatedLogs().Create(t.Context(), "n1", id)
		noError(t, err)
		for range 3 { // the third extent reuses a file
			pos, err := w.Append(t.Context(), []byte("a secret that is deleted"))
			noError(t, err)
			if len(where("a secret")) < 3 {
				t.Fatalf("it is in %v: the test does not look where it is", where("a secret"))
			}
			time.Sleep(age / 4)
			w.Release(pos)
			time.Sleep(age)
		}
		_, err = w.Append(t.Context(), []byte("something that is kept"))
		noError(t, err)
		time.Sleep(2 * age)
		if left := where("a secret"); len(left) > 0 {
			t.Errorf("twice the age later: %v", left)
		}
		if len(where("something that is kept")) < 3 {
			t.Errorf("what was not released is in %v", where("something that is kept"))
		}
		list := l.list(t, "n1", id)
		if n := len(list.Extents); n > 3 {
			t.Errorf("%d extents of a log of one record", n)
		}
		got := readLog(t, c.all[1].Store, "n1", id)
		if n := len(got); n == 0 || string(got[n-1].p) != "something that is kept" {
			t.Errorf("read back: %d records", n)
		}
		for _, n := range c.all {
			n.kill()
		}
	})
}
