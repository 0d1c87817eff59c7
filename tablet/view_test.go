package tablet

import (
	"testing"

	"github.com/steledb/stele/tablet/budget"
)

// TestViewSet: reads keep the view that they acquired, whatever is installed. Its memtables count as
// memory until the last read ends.
func TestViewSet(t *testing.T) {
	_, vs := newFence()
	vs.applied.Store(7)
	before, seq, err := vs.acquire()
	if err != nil || seq != 7 || before.active == nil {
		t.Fatalf("view %v at %d, %v", before, seq, err)
	}
	full := before.active
	if _, err := full.Table.Add([]byte("key"), make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	full.count()
	full.minSeq.Store(8)
	if n := vs.activeBytes(); n < 1000 || vs.unflushed() != 8 || vs.bytes() < 1000 {
		t.Errorf("%d bytes from sequence number %d", n, vs.unflushed())
	}
	fresh := newMem(vs.memory)
	if !vs.install(func(v *view) { v.frozen, v.active = append(v.frozen, v.active), fresh }) {
		t.Fatal("not installed")
	}
	if before.active != full || len(before.frozen) != 0 || vs.activeBytes() != 0 || vs.unflushed() != 8 {
		t.Error("a view that a read has must not change")
	}
	files, err := vs.acquireFiles()
	if err != nil || files.active != nil || len(files.frozen) != 0 {
		t.Errorf("files only: %+v, %v", files, err)
	}
	files.release()
	vs.install(func(v *view) { v.frozen = nil })
	full.disown()
	if vs.memory.Memtables() != 0 || vs.memory.Lingering() < 1000 {
		t.Errorf("%d bytes of memtables, %d held by a read", vs.memory.Memtables(), vs.memory.Lingering())
	}
	if before.release(); vs.memory.Lingering() != 0 {
		t.Errorf("%d bytes are still held", vs.memory.Lingering())
	}
	vs.drop()
	vs.take(false).release()
	if _, _, err := vs.acquire(); err != errGone || !vs.isUnloaded() || !vs.isDropped() || vs.install(func(*view) {}) || vs.take(true) != nil {
		t.Errorf("an unloaded tablet has a view: %v", err)
	}
}

// TestViewSetStalls: writers wait while a group has too many files, and are woken when it has fewer.
func TestViewSetStalls(t *testing.T) {
	_, vs := newFence()
	vs.memory = budget.NewWrites(1<<20, func() {})
	set := func(files int) {
		vs.install(func(v *view) {
			v.groups = []group{{files: nil}}
			for range files {
				v.groups[0].files = append(v.groups[0].files, newTestFile())
			}
		})
	}
	set(vs.cfg.FilesMax)
	if !vs.stalled.Load() || !vs.backlogs.behind() {
		t.Error("not stalled with FilesMax files")
	}
	freed := vs.memory.Freed()
	set(1)
	<-freed
	if vs.stalled.Load() || vs.backlogs.worst() != noBacklog {
		t.Error("stalled with one file")
	}
	set(vs.cfg.FilesMax / 2)
	if vs.take(false); vs.backlogs.worst() != noBacklog {
		t.Error("an unloaded tablet counts as a backlog")
	}
}

// newTestFile returns a file without contents, which is never closed.
func newTestFile() *file {
	f := &file{}
	f.refs.Store(1)
	return f
}
