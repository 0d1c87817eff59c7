package local

import (
	"testing"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// Space is freed with pauses while there is plenty; without pauses if space is short, if too many
// files wait, and after Close.
func TestSpaceFreer(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{Capacity: 1 << 30})
	if err := mem.MkdirAll("/a"); err != nil {
		t.Fatal(err)
	}
	free, err := mem.FreeBytes("/a")
	if err != nil {
		t.Fatal(err)
	}
	f, scarce := &folder{path: "/a", fs: mem}, &folder{path: "/a", fs: mem, ampleBytes: free + 1}
	r := newSpaceFreer()
	begun, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan struct{}, removedMax+10)
	slow := removed{f, func(pause func(time.Duration)) {
		close(begun)
		<-goOn
		pause(time.Hour)
		done <- struct{}{}
	}}
	quick := func(f *folder) removed {
		return removed{f, func(pause func(time.Duration)) {
			pause(0)
			done <- struct{}{}
		}}
	}
	want := func(what string, n int) {
		t.Helper()
		if len(done) != n {
			t.Errorf("%s: the space of %d files was freed, want %d", what, len(done), n)
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

// A disk that stalls while space is freed does not delay the removal of files of another disk.
func TestSpaceFreerOfEachFolder(t *testing.T) {
	s, err := Open(Config{Folders: []string{"/a", "/b"}, FS: vfs.NewMem(vfs.MemOptions{Capacity: 1 << 30}), ReserveBytes: -1, ExtentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	begun, goOn, freed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	stalled, well := s.folders[0], s.folders[1]
	stalled.spaceFreer.add(removed{stalled, func(func(time.Duration)) { close(begun); <-goOn }})
	<-begun
	well.spaceFreer.add(removed{well, func(func(time.Duration)) { close(freed) }})
	select {
	case <-freed:
	case <-time.After(10 * time.Second):
		t.Error("the space of a file on a healthy disk is not freed while another disk stalls")
	}
	close(goOn)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
