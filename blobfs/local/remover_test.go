package local

import (
	"testing"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// Room is given back with rests while there is plenty, at once where it is wanted, where too many files wait, and after Close.
func TestRemover(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{Capacity: 1 << 30})
	if err := mem.MkdirAll("/a"); err != nil {
		t.Fatal(err)
	}
	free, err := mem.FreeBytes("/a")
	if err != nil {
		t.Fatal(err)
	}
	f, scarce := &folder{path: "/a", fs: mem}, &folder{path: "/a", fs: mem, plenty: free + 1}
	r := newRemover()
	begun, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan struct{}, removedMax+10)
	slow := removed{f, func(rest func(time.Duration)) {
		close(begun)
		<-goOn
		rest(time.Hour)
		done <- struct{}{}
	}}
	quick := func(f *folder) removed {
		return removed{f, func(rest func(time.Duration)) {
			rest(0)
			done <- struct{}{}
		}}
	}
	want := func(what string, n int) {
		t.Helper()
		if len(done) != n {
			t.Errorf("%s: the room of %d files was given back, want %d", what, len(done), n)
		}
	}
	r.add(slow)
	<-begun
	r.add(quick(scarce))
	want("room is wanted", 1)
	for range removedMax {
		r.add(quick(f))
	}
	want("all others wait for the first", 1)
	r.add(quick(f))
	want("too many wait", 2)
	close(goOn)
	r.close()
	r.close()
	want("closed", removedMax+3)
	r.add(quick(f))
	want("after that", removedMax+4)
}
