package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestFileSystemsAgree: every file system behaves the same for programs.
func TestFileSystemsAgree(t *testing.T) {
	t.Run("os", func(t *testing.T) { testFS(t, OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) { testFS(t, NewMem(MemOptions{}), "/data") })
	t.Run("faulty", func(t *testing.T) { testFS(t, NewFaulty(OS()), t.TempDir()) })
	t.Run("encrypted", func(t *testing.T) { testFS(t, NewCrypt(OS(), testKeys, allFiles), t.TempDir()) })
}

func testFS(t *testing.T, f FS, root string) {
	dir := filepath.Join(root, "a", "b")
	must(t, f.MkdirAll(dir))
	must(t, f.MkdirAll(dir))
	name := filepath.Join(dir, "x")
	file := create(t, f, name)
	if _, err := f.Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create twice: %v", err)
	}
	for _, missing := range []error{
		ignore(f.Open(name + "y")), ignore(f.OpenRead(name + "y")), f.Remove(name + "y"),
		f.Rename(name+"y", name+"z"), ignore(f.Create(filepath.Join(root, "no", "such"))),
	} {
		if !errors.Is(missing, fs.ErrNotExist) {
			t.Errorf("missing file: %v", missing)
		}
	}
	write(t, file, "hello", 3)
	if got := readAll(t, file); got != "\x00\x00\x00hello" {
		t.Errorf("content %q", got)
	}
	if n, err := file.ReadAt(make([]byte, 4), 6); n != 2 || err != io.EOF {
		t.Errorf("read over the end: %d, %v", n, err)
	}
	must(t, file.Truncate(4))
	must(t, file.Preallocate(2)) // never shrinks
	must(t, file.Preallocate(6))
	if got := readAll(t, file); got != "\x00\x00\x00h\x00\x00" {
		t.Errorf("content after truncate and preallocate %q", got)
	}
	must(t, file.StartSync(2, 100)) // partly beyond the end of the file
	must(t, file.Sync())
	must(t, file.Close())
	if file.Sync() == nil || file.StartSync(0, 1) == nil || file.Close() == nil {
		t.Error("a closed file can be used")
	}

	other := filepath.Join(root, "a", "y")
	must(t, create(t, f, other).Close())
	must(t, f.Rename(name, other))
	must(t, f.SyncDir(dir))
	if size, mod, err := f.Stat(other); size != 6 || mod.IsZero() || err != nil {
		t.Errorf("stat: %d, %v, %v", size, mod, err)
	}
	if names, err := f.ReadDir(filepath.Join(root, "a")); err != nil || !slices.Equal(names, []string{"b", "y"}) {
		t.Errorf("names: %v, %v", names, err)
	}
	if f.Remove(filepath.Join(root, "a")) == nil {
		t.Error("a full folder was removed")
	}
	ro, err := f.OpenRead(other)
	must(t, err)
	if _, err := ro.WriteAt([]byte("x"), 0); err == nil {
		t.Error("wrote to a file opened for reading")
	}
	must(t, f.Remove(other))
	if got := readAll(t, ro); len(got) != 6 {
		t.Errorf("removed file reads %q through an open handle", got)
	}
	must(t, ro.Close())
	must(t, f.Remove(dir))
	if free, err := f.FreeBytes(root); free <= 0 || err != nil {
		t.Errorf("free: %d, %v", free, err)
	}
	must(t, f.MkdirAll(filepath.Join(root, "dirs")))
	testDirs(t, f, filepath.Join(root, "dirs"))
}

func testDirs(t *testing.T, f FS, root string) {
	in := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	must(t, f.MkdirAll(in("from", "sub")))
	must(t, f.MkdirAll(in("empty")))
	must(t, create(t, f, in("from", "sub", "file")).Close())
	must(t, create(t, f, in("file")).Close())
	for name, err := range map[string]error{
		"into itself":             f.Rename(in("from"), in("from", "sub", "from")),
		"a directory over a file": f.Rename(in("from"), in("file")),
		"a file over a directory": f.Rename(in("file"), in("empty")),
		"over an empty directory": f.Rename(in("from"), in("empty")),
	} {
		if err == nil {
			t.Errorf("rename %s: no error", name)
		}
	}
	must(t, f.Remove(in("empty")))
	must(t, f.Rename(in("from"), in("to")))
	if _, _, err := f.Stat(in("to", "sub", "file")); err != nil {
		t.Errorf("file in a renamed directory: %v", err)
	}
	for name, want := range map[string]bool{in("from"): false, in("to", "sub", "file"): true, in("none", "file"): false} {
		if is, err := Exists(f, name); is != want || err != nil {
			t.Errorf("%s exists: %v, %v", name, is, err)
		}
	}
	if !SameFile(f, in("to"), in("to", "sub", "..")) || SameFile(f, in("to"), in("file")) || SameFile(f, in("none"), in("none")) {
		t.Error("wrong files are the same")
	}
	must(t, RemoveAll(f, in("to")))
	must(t, RemoveAll(f, in("to")))
	must(t, RemoveAll(f, in("file")))
	if names, err := f.ReadDir(root); len(names) > 0 || err != nil {
		t.Errorf("left are %v, %v", names, err)
	}
	d, err := DiskOf(f, root)
	if other, _ := DiskOf(f, filepath.Dir(root)); err != nil || d.FreeBytes <= 0 || d.FreeBytes > d.TotalBytes || d.ID != other.ID {
		t.Errorf("disk %v, of the parent %v, %v", d, other, err)
	}
}

func TestRemoveAllKeepsWhatLinksLeadTo(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept", "file")
	must(t, OS().MkdirAll(filepath.Dir(kept)))
	must(t, create(t, OS(), kept).Close())
	must(t, OS().MkdirAll(filepath.Join(dir, "gone")))
	must(t, os.Symlink(filepath.Dir(kept), filepath.Join(dir, "gone", "link")))
	must(t, os.Symlink(filepath.Join(dir, "nothing"), filepath.Join(dir, "dangling")))
	if is, err := Exists(OS(), filepath.Join(dir, "dangling")); !is || err != nil {
		t.Errorf("a dangling link exists: %v, %v", is, err)
	}
	if !SameFile(OS(), filepath.Join(dir, "gone", "link"), filepath.Dir(kept)) {
		t.Error("a link is not the same as what it leads to")
	}
	must(t, RemoveAll(OS(), filepath.Join(dir, "gone")))
	if _, _, err := OS().Stat(kept); err != nil {
		t.Error(err)
	}
}

func TestLockExcludesOthers(t *testing.T) {
	mem := NewMem(MemOptions{})
	must(t, mem.MkdirAll("/data"))
	must(t, mem.SyncDir("/"))
	for name, f := range map[string]FS{filepath.Join(t.TempDir(), "LOCK"): OS(), "/data/LOCK": mem, "/data/OTHER": NewCrypt(mem, testKeys, allFiles)} {
		l, err := f.(Locker).Lock(name)
		must(t, err)
		if _, err := f.(Locker).Lock(name); !errors.Is(err, ErrLocked) {
			t.Errorf("second lock of %s: %v", name, err)
		}
		must(t, l.Close())
		l, err = f.(Locker).Lock(name)
		must(t, err)
		must(t, l.Close())
		if _, err := f.(Locker).Lock(filepath.Join(name+"none", "LOCK")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("lock in a missing directory: %v", err)
		}
	}
	old, err := mem.Lock("/data/LOCK")
	must(t, err)
	after := mem.Crash(nil)
	l, err := after.Lock("/data/LOCK")
	must(t, err)
	must(t, old.Close())
	if _, err := after.Lock("/data/LOCK"); !errors.Is(err, ErrLocked) {
		t.Errorf("the lock of the crashed file system released another one: %v", err)
	}
	must(t, l.Close())
	must(t, l.Close())
	_, err = after.Lock("/data/LOCK")
	must(t, err)
	must(t, l.Close())
	if _, err := after.Lock("/data/LOCK"); !errors.Is(err, ErrLocked) {
		t.Errorf("a released lock released another one: %v", err)
	}
	after.ReleaseLocks()
	_, err = after.Lock("/data/LOCK")
	must(t, err)
}

// TestCrashMovesDirectoriesWhole: V3 for a renamed directory. After a crash all its files have the
// old name or all the new one, whatever else was synced.
func TestCrashMovesDirectoriesWhole(t *testing.T) {
	m := NewMem(MemOptions{})
	must(t, m.MkdirAll("/d/a/sub"))
	must(t, m.SyncDir("/"))
	must(t, m.SyncDir("/d"))
	must(t, m.SyncDir("/d/a"))
	must(t, create(t, m, "/d/a/sub/1").Close())
	must(t, m.SyncDir("/d/a/sub"))
	must(t, create(t, m, "/d/a/sub/2").Close()) // not synced
	must(t, m.Rename("/d/a", "/d/b"))
	seen := map[string]bool{}
	rng := rand.New(rand.NewPCG(9, 9))
	for range 100 {
		seen[namesBelow(t, m.Crash(rng), "/d")] = true
	}
	for _, want := range []string{"/d/a/sub/1 ", "/d/a/sub/1 /d/a/sub/2 ", "/d/b/sub/1 ", "/d/b/sub/1 /d/b/sub/2 "} {
		if !seen[want] {
			t.Errorf("never found %q", want)
		}
		delete(seen, want)
	}
	if len(seen) > 0 {
		t.Errorf("found %v", seen)
	}
	must(t, m.SyncDir("/d"))
	if got := namesBelow(t, m.Crash(nil), "/d"); got != "/d/b/sub/1 " {
		t.Errorf("after a sync of the parent: %q", got)
	}
	must(t, m.SyncDir("/d/b/sub"))
	if got := namesBelow(t, m.Crash(nil), "/d"); got != "/d/b/sub/1 /d/b/sub/2 " {
		t.Errorf("after a sync of the directory: %q", got)
	}
	must(t, m.Rename("/d/b", "/d/c"))
	must(t, create(t, m, "/d/c/sub/3").Close())
	must(t, m.SyncDir("/d/c/sub")) // and so the rename that it depends on
	if got := namesBelow(t, m.Crash(nil), "/d"); got != "/d/c/sub/1 /d/c/sub/2 /d/c/sub/3 " {
		t.Errorf("after a sync below a renamed directory: %q", got)
	}
	must(t, RemoveAll(m, "/d/c"))
	must(t, m.MkdirAll("/d/c/sub"))
	must(t, m.SyncDir("/d"))
	must(t, m.SyncDir("/d/c"))
	if got := namesBelow(t, m.Crash(nil), "/d"); got != "" {
		t.Errorf("a directory that was created again has %q", got)
	}
}

// namesBelow returns the files below a directory, sorted.
func namesBelow(t *testing.T, f FS, dir string) (all string) {
	t.Helper()
	names, err := f.ReadDir(dir)
	if err != nil {
		return dir + " "
	}
	for _, name := range names {
		all += namesBelow(t, f, filepath.Join(dir, name))
	}
	return all
}

// TestMemDisks: directories under one bound are on one disk.
func TestMemDisks(t *testing.T) {
	m := NewMem(MemOptions{Capacity: 1000})
	m.SetCapacity("/a", 100)
	must(t, m.MkdirAll("/a/b"))
	write(t, create(t, m, "/a/file"), "0123456789", 0)
	for dir, want := range map[string]Disk{"/": {"/", 1000, 990}, "/c": {"/", 1000, 990}, "/a": {"/a", 100, 90}, "/a/b": {"/a", 100, 90}} {
		if d, err := DiskOf(m, dir); d != want || err != nil {
			t.Errorf("%s is on %v, %v, want %v", dir, d, err, want)
		}
	}
}

// TestCrashDropsWhatWasNotSynced: V1. Bytes are durable after Sync, names after SyncDir.
func TestCrashDropsWhatWasNotSynced(t *testing.T) {
	m := NewMem(MemOptions{})
	must(t, m.MkdirAll("/d"))
	must(t, m.SyncDir("/"))
	a, b := create(t, m, "/d/a"), create(t, m, "/d/b")
	must(t, m.SyncDir("/d"))
	write(t, a, "synced", 0)
	must(t, a.Sync())
	write(t, a, "lost", 0)
	write(t, b, "lost", 0)
	c := create(t, m, "/d/c")
	write(t, c, "no name", 0)
	must(t, c.Sync())
	must(t, m.Rename("/d/b", "/d/b2"))

	after := m.Crash(nil)
	if names, _ := after.ReadDir("/d"); !slices.Equal(names, []string{"a", "b"}) {
		t.Fatalf("names %v", names)
	}
	for name, want := range map[string]string{"/d/a": "synced", "/d/b": ""} {
		if got := contentOf(t, after, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	write(t, a, "x", 0) // the old file system shares nothing with the new one
	if got := contentOf(t, after, "/d/a"); got != "synced" {
		t.Errorf("the crashed copy changed to %q", got)
	}
}

func TestUnsyncedDirectoryLosesItsFiles(t *testing.T) {
	m := NewMem(MemOptions{})
	must(t, m.MkdirAll("/d/e"))
	must(t, m.SyncDir("/d"))
	create(t, m, "/d/e/f")
	must(t, m.SyncDir("/d/e"))
	if names, err := m.Crash(nil).ReadDir("/"); len(names) != 0 || err != nil {
		t.Errorf("names %v, %v", names, err)
	}
	must(t, m.SyncDir("/"))
	if names, err := m.Crash(nil).ReadDir("/d/e"); len(names) != 1 || err != nil {
		t.Errorf("names %v, %v", names, err)
	}
}

// TestCrashTearsBySector: V2. Each sector is old or new, in any combination.
func TestCrashTearsBySector(t *testing.T) {
	m := NewMem(MemOptions{})
	f := create(t, m, "/f")
	must(t, m.SyncDir("/"))
	write(t, f, string(slices.Repeat([]byte{'o'}, 4*SectorBytes)), 0)
	must(t, f.Sync())
	write(t, f, string(slices.Repeat([]byte{'n'}, 3*SectorBytes)), SectorBytes/2)
	seen := map[string]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		got := contentOf(t, m.Crash(rng), "/f")
		if len(got) != 4*SectorBytes {
			t.Fatalf("%d bytes", len(got))
		}
		pattern := ""
		for _, span := range [][2]int{{0, 256}, {256, 512}, {512, 1024}, {1024, 1536}, {1536, 1792}, {1792, 2048}} {
			for i := span[0]; i < span[1]; i++ {
				if got[i] != got[span[0]] {
					t.Fatalf("torn inside a sector at %d", i)
				}
			}
			pattern += got[span[0] : span[0]+1]
		}
		seen[pattern] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d of the 16 ways to tear four sectors seen", len(seen))
	}
}

// TestCrashKeepsNamesInOrder: V3. A rename is atomic, and changes that depend on a lost change are
// lost.
func TestCrashKeepsNamesInOrder(t *testing.T) {
	m := NewMem(MemOptions{})
	must(t, m.MkdirAll("/d"))
	must(t, m.MkdirAll("/e"))
	must(t, m.SyncDir("/"))
	f := create(t, m, "/d/tmp")
	write(t, f, "1", 0)
	must(t, f.Sync())
	must(t, m.Rename("/d/tmp", "/e/final"))
	seen := map[string]bool{}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		c := m.Crash(rng)
		d, _ := c.ReadDir("/d")
		e, _ := c.ReadDir("/e")
		seen[string(slices.Concat([]byte("d:"), join(d), []byte(" e:"), join(e)))] = true
	}
	if len(seen) != 3 || !seen["d: e:"] || !seen["d:tmp e:"] || !seen["d: e:final"] {
		t.Errorf("outcomes %v", seen)
	}
	must(t, m.SyncDir("/e")) // includes the create in /d
	for range 50 {
		if got := contentOf(t, m.Crash(rng), "/e/final"); got != "1" {
			t.Fatalf("content %q", got)
		}
	}
}

// TestFailedSyncLies: V4. A failed sync loses data that reads still return.
func TestFailedSyncLies(t *testing.T) {
	for kind, sync := range map[OpKind]func(File) error{
		OpSync:      File.Sync,
		OpStartSync: func(f File) error { return f.StartSync(0, 4) },
	} {
		m := NewMem(MemOptions{})
		f := create(t, m, "/f")
		must(t, m.SyncDir("/"))
		write(t, f, "gone", 0)
		eio := errors.New("io")
		m.SetHook(func(op Op) error {
			if op.Kind == kind {
				return eio
			}
			return nil
		})
		if err := sync(f); err != eio {
			t.Fatalf("%s: %v", kind, err)
		}
		m.SetHook(nil)
		must(t, f.Sync())
		if got := readAll(t, f); got != "gone" {
			t.Errorf("%s: cache reads %q", kind, got)
		}
		rng := rand.New(rand.NewPCG(5, 6))
		for range 20 {
			if got := contentOf(t, m.Crash(rng), "/f"); got != "" {
				t.Fatalf("%s: disk has %q", kind, got)
			}
		}
	}
}

// TestStartSyncPromisesNothing: StartSync makes nothing durable.
func TestStartSyncPromisesNothing(t *testing.T) {
	m := NewMem(MemOptions{})
	f := create(t, m, "/f")
	must(t, m.SyncDir("/"))
	write(t, f, "maybe", 0)
	must(t, f.StartSync(0, 5))
	if got := contentOf(t, m.Crash(nil), "/f"); got != "" {
		t.Errorf("disk has %q", got)
	}
}

func TestHookCountsAndTears(t *testing.T) {
	m := NewMem(MemOptions{})
	var kinds []OpKind
	m.SetHook(func(op Op) error {
		kinds = append(kinds, op.Kind)
		if op.N != int64(len(kinds)) || op.String() == "" {
			t.Errorf("operation %v has number %d, want %d", op, op.N, len(kinds))
		}
		if op.Kind == OpWrite {
			return ErrTorn
		}
		return nil
	})
	must(t, m.MkdirAll("/d"))
	f := create(t, m, "/d/f")
	if n, err := f.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, ErrTorn) {
		t.Errorf("torn write: %d, %v", n, err)
	}
	must(t, f.Truncate(3))
	must(t, f.Preallocate(8))
	must(t, f.StartSync(0, 8))
	must(t, f.Sync())
	must(t, m.SyncDir("/d"))
	must(t, m.Rename("/d/f", "/d/g"))
	must(t, m.Remove("/d/g"))
	want := []OpKind{OpMkdir, OpCreate, OpWrite, OpTruncate, OpPreallocate, OpStartSync, OpSync, OpSyncDir, OpRename, OpRemove}
	if !slices.Equal(kinds, want) || m.Ops() != int64(len(want)) {
		t.Errorf("operations %v", kinds)
	}
}

func TestMemCapacity(t *testing.T) {
	m := NewMem(MemOptions{Capacity: 100})
	must(t, m.MkdirAll("/small"))
	m.SetCapacity("/small", 10)
	f := create(t, m, "/small/f")
	write(t, f, "12345678", 0)
	n, err := f.WriteAt([]byte("9abc"), 8)
	if n != 2 || !IsDiskFull(err) {
		t.Errorf("write into a full disk: %d, %v", n, err)
	}
	if err := f.Preallocate(20); !IsDiskFull(err) {
		t.Errorf("preallocate: %v", err)
	}
	write(t, f, "over", 0) // takes no space
	big := create(t, m, "/big")
	must(t, big.Preallocate(90))
	if free, _ := m.FreeBytes("/"); free != 0 {
		t.Errorf("%d bytes free", free)
	}
	m.SetCapacity("/small", 0)
	if _, err := f.WriteAt([]byte("y"), 10); !IsDiskFull(err) {
		t.Errorf("the outer bound is ignored: %v", err)
	}
	must(t, m.Remove("/big"))
	write(t, f, "y", 10)
	if IsDiskFull(syscall.EIO) {
		t.Error("EIO is taken for a full disk")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ignore(_ File, err error) error { return err }

func create(t *testing.T, f FS, name string) File {
	t.Helper()
	file, err := f.Create(name)
	must(t, err)
	return file
}

func write(t *testing.T, f File, s string, off int64) {
	t.Helper()
	if n, err := f.WriteAt([]byte(s), off); n != len(s) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func readAll(t *testing.T, f File) string {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	p := make([]byte, size)
	if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(p)
}

func contentOf(t *testing.T, f FS, name string) string {
	t.Helper()
	file, err := f.OpenRead(name)
	must(t, err)
	defer file.Close()
	return readAll(t, file)
}

func join(names []string) []byte {
	var out []byte
	for _, n := range names {
		out = append(out, n...)
	}
	return out
}

// TestRemoveLater: the name is removed at once. Space is freed before the last handle is closed
// only if no other process can read the file.
func TestRemoveLater(t *testing.T) {
	const size = 5<<20 + 5
	leases := func() bool { // whether the file system supports leases
		f, err := os.Create(filepath.Join(t.TempDir(), "x"))
		must(t, err)
		defer f.Close()
		must(t, os.Remove(f.Name()))
		return soleHandle(int(f.Fd()))
	}()
	t.Logf("the file system supports leases: %v", leases)
	content := bytes.Repeat([]byte("stele"), size/5)
	file := func(t *testing.T, size int) (name string) {
		name = filepath.Join(t.TempDir(), "x")
		must(t, os.WriteFile(name, content[:size], 0o600))
		return name
	}
	remove := func(t *testing.T, f FS, name string, want int) {
		t.Helper()
		parts := 0
		free, err := RemoveLater(f, name)
		must(t, err)
		if _, _, err := f.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the name is still there: %v", err)
		}
		if free != nil {
			free(func(time.Duration) { parts++ })
		}
		if parts != want {
			t.Errorf("removed in %d parts, want %d", parts, want)
		}
	}
	whole := func(t *testing.T, r io.ReaderAt) {
		t.Helper()
		p := make([]byte, size)
		if _, err := r.ReadAt(p, 0); err != nil || !bytes.Equal(p, content) {
			t.Errorf("an open handle does not read the content: %v", err)
		}
	}
	all := 0
	if leases {
		all = 6
	}
	t.Run("large", func(t *testing.T) { remove(t, OS(), file(t, size), all) })
	t.Run("small", func(t *testing.T) { remove(t, OS(), file(t, 1<<20), 0) })
	t.Run("empty", func(t *testing.T) { remove(t, OS(), file(t, 0), 0) })
	t.Run("elsewhere", func(t *testing.T) { remove(t, NewFaulty(OS()), file(t, size), 0) })
	for mode, open := range map[string]func(name string) (File, error){"reading": OS().OpenRead, "writing": OS().Open} {
		t.Run("open for "+mode, func(t *testing.T) {
			name := file(t, size)
			f, err := open(name)
			must(t, err)
			defer f.Close()
			remove(t, OS(), name, 0)
			whole(t, f)
		})
	}
	t.Run("linked", func(t *testing.T) {
		name := file(t, size)
		must(t, os.Link(name, name+"2"))
		remove(t, OS(), name, 0)
		r, err := OS().OpenRead(name + "2")
		must(t, err)
		defer r.Close()
		whole(t, r)
	})
	t.Run("a folder", func(t *testing.T) { remove(t, OS(), t.TempDir(), 0) })
	if _, err := RemoveLater(OS(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

// TestOpenBesideRemoveLater: opening a file during its removal finds all of it or none.
func TestOpenBesideRemoveLater(t *testing.T) {
	dir := t.TempDir()
	const size = 2 << 20
	for i := range 10_000 {
		name := filepath.Join(dir, strconv.Itoa(i))
		must(t, os.WriteFile(name, nil, 0o600))
		must(t, os.Truncate(name, size))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for {
					f, err := OS().OpenRead(name)
					if errors.Is(err, fs.ErrNotExist) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n, err := f.Size(); n != size || err != nil {
						t.Errorf("%d bytes of %d, %v", n, size, err)
					}
					f.Close()
				}
			})
		}
		free, err := RemoveLater(OS(), name)
		must(t, err)
		free(func(time.Duration) {})
		all.Wait()
	}
}
