package replog_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
)

// filesWith returns the files below dir that contain the bytes.
func filesWith(t *testing.T, fsys vfs.FS, dir string, secret []byte) (found []string) {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	clustertest.NoError(t, err)
	for _, name := range names {
		name = dir + "/" + name
		f, err := fsys.OpenRead(name)
		if err != nil {
			found = append(found, filesWith(t, fsys, name, secret)...)
			continue
		}
		size, err := f.Size()
		clustertest.NoError(t, err)
		p := make([]byte, size)
		if size > 0 {
			_, err = f.ReadAt(p, 0)
			clustertest.NoError(t, err)
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
		l := clustertest.NewLists()
		cfg := clustertest.Quick
		const age = 20 * time.Second
		cfg.Lists, cfg.Logs.ExtentAge = l, age
		c := clustertest.New(t, clustertest.Config{N: 3, Cluster: cfg, Spare: age, Virtual: true})
		where := func(secret string) (found []string) {
			synctest.Wait() // no file is created, removed or renamed during the walk: time stands still
			for _, n := range c.All {
				for _, dir := range []string{"/a", "/b"} {
					for _, name := range filesWith(t, n.FS, dir, []byte(secret)) {
						found = append(found, n.ID+name)
					}
				}
			}
			return found
		}
		id := blobfs.NewID()
		w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
		clustertest.NoError(t, err)
		for range 3 { // the third extent reuses a file
			pos, err := w.Append(t.Context(), []byte("a secret that is deleted"))
			clustertest.NoError(t, err)
			if len(where("a secret")) < 3 {
				t.Fatalf("it is in %v: the test does not look where it is", where("a secret"))
			}
			time.Sleep(age / 4)
			w.Release(pos)
			time.Sleep(age)
		}
		_, err = w.Append(t.Context(), []byte("something that is kept"))
		clustertest.NoError(t, err)
		time.Sleep(2 * age)
		if left := where("a secret"); len(left) > 0 {
			t.Errorf("twice the age later: %v", left)
		}
		if len(where("something that is kept")) < 3 {
			t.Errorf("what was not released is in %v", where("something that is kept"))
		}
		list := l.LogList(t, "n1", id)
		if n := len(list.Extents); n > 3 {
			t.Errorf("%d extents of a log of one record", n)
		}
		got := clustertest.ReadLog(t, c.All[1].Store, "n1", id)
		if n := len(got); n == 0 || string(got[n-1].P) != "something that is kept" {
			t.Errorf("read back: %d records", n)
		}
		for _, n := range c.All {
			n.Kill()
		}
	})
}
