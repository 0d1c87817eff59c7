package simdisk

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

func newDisk(cfg Config) *Disk {
	cfg.Rand = rand.New(rand.NewPCG(1, 2))
	return New(cfg)
}

func mustCreate(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func mustSync(t *testing.T, fsys vfs.FS, f vfs.File) {
	t.Helper()
	if err := errors.Join(f.Sync(), fsys.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, fsys vfs.FS, name, want string) {
	t.Helper()
	if got, err := vfs.ReadFile(fsys, name); err != nil || string(got) != want {
		t.Errorf("%s is %q, %v, want %q", name, got, err, want)
	}
}

func took(t *testing.T, least, most time.Duration, do func()) {
	t.Helper()
	start := time.Now()
	do()
	if d := time.Since(start); d < least || d > most {
		t.Errorf("took %v, want %v to %v", d, least, most)
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(Config{Read: SSD.Read, Sync: SSD.Sync, Write: Latency{Min: 7 * time.Microsecond}})
		var f vfs.File
		took(t, 7*time.Microsecond, 7*time.Microsecond, func() { f = mustCreate(t, d.FS(), "f", "x") })
		took(t, 50*time.Microsecond, 200*time.Microsecond, func() { _, _ = f.ReadAt(make([]byte, 1), 0) })
		var most time.Duration
		for range 1000 {
			start := time.Now()
			_ = f.Sync()
			most = max(most, time.Since(start))
		}
		if most < 3*time.Millisecond || most > 50*time.Millisecond {
			t.Errorf("the slowest of 1000 syncs took %v", most)
		}
	})
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(Config{Sync: Latency{Min: time.Millisecond}})
		f := mustCreate(t, d.FS(), "f", "x")
		d.Stall(time.Second, true)
		took(t, 0, 0, func() { _, _ = f.ReadAt(make([]byte, 1), 0) })
		took(t, time.Second, 1001*time.Millisecond, func() { mustSync(t, d.FS(), f) })
		d.Stall(time.Minute, false)
		took(t, time.Minute, time.Minute, func() { _, _ = f.ReadAt(make([]byte, 1), 0) })
		time.AfterFunc(time.Microsecond, func() { d.Stall(time.Hour, false) })
		took(t, time.Hour, time.Hour+time.Second, func() { mustSync(t, d.FS(), f) })
	})
}

func TestCapacity(t *testing.T) {
	d := newDisk(Config{Capacity: 100})
	fsys := d.FS()
	f := mustCreate(t, fsys, "a", strings.Repeat("x", 60))
	g := mustCreate(t, fsys, "b", strings.Repeat("x", 30))
	if n, err := g.WriteAt(make([]byte, 20), 30); n != 10 || !vfs.IsDiskFull(err) {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if n, err := g.WriteAt(make([]byte, 40), 0); n != 40 || err != nil {
		t.Errorf("overwrote %d bytes, %v", n, err)
	}
	if err := g.Preallocate(41); !vfs.IsDiskFull(err) {
		t.Error(err)
	}
	wantFree := func(want int64) {
		t.Helper()
		if free, err := fsys.FreeBytes("/x"); free != want || err != nil || d.Used() != d.capacity-want && want > 0 {
			t.Errorf("%d bytes free, want %d; %d used, %v", free, want, d.Used(), err)
		}
	}
	wantFree(0)
	d.SetCapacity(150)
	wantFree(50)
	if err := fsys.Rename("b", "a"); err != nil { // the old a is open
		t.Fatal(err)
	}
	wantFree(50)
	_ = f.Close()
	wantFree(110)
	if disk, err := vfs.DiskOf(fsys, "/x"); disk.TotalBytes != 150 || disk.FreeBytes != 110 || err != nil {
		t.Errorf("%+v, %v", disk, err)
	}
	_ = errors.Join(g.Truncate(5), fsys.MkdirAll("d"), fsys.Rename("a", "d/a"))
	wantFree(145)
	if err := fsys.Remove("d/a"); err != nil {
		t.Error(err)
	}
	wantFree(145)
	_ = g.Close()
	wantFree(150)
	d.SetCapacity(10)
	if n, err := mustCreate(t, fsys, "c", "").WriteAt(make([]byte, 20), 0); n != 10 || !vfs.IsDiskFull(err) {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	d.SetCapacity(5)
	wantFree(0)
}

// TestUsedSpace: the used space is the sum of the sizes, after random operations and crashes.
func TestUsedSpace(t *testing.T) {
	d := newDisk(Config{Capacity: 100_000})
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		fsys := d.FS()
		_ = fsys.MkdirAll("d")
		for range 20 {
			name := fmt.Sprintf("d/%d", rng.IntN(6))
			switch rng.IntN(6) {
			case 0:
				_ = fsys.Remove(name)
			case 1:
				_ = fsys.Rename(name, fmt.Sprintf("d/%d", rng.IntN(6)))
				_ = errors.Join(fsys.Rename("d", "moved"), fsys.Rename("moved", "d"))
			default:
				f, err := fsys.Open(name)
				if err != nil {
					f, err = fsys.Create(name)
				}
				if err != nil {
					t.Fatal(err)
				}
				_, _ = f.WriteAt(make([]byte, rng.IntN(9000)), int64(rng.IntN(9000)))
				_ = errors.Join(f.Truncate(int64(rng.IntN(20_000))), f.Preallocate(int64(rng.IntN(30_000))), f.Sync(), fsys.SyncDir("/d"), f.Close())
			}
		}
		if rng.IntN(4) == 0 {
			fsys = d.Crash(rng.IntN(2) == 0)
		}
		var sum int64
		for _, dir := range []string{"d", "moved"} { // a crash may undo a move
			names, _ := fsys.ReadDir(dir)
			for _, name := range names {
				size, _, err := fsys.Stat(dir + "/" + name)
				if err != nil {
					t.Fatal(err)
				}
				sum += size
			}
		}
		if d.Used() != sum {
			t.Fatalf("%d bytes used, and the files have %d", d.Used(), sum)
		}
	}
}

func TestFaults(t *testing.T) {
	d := newDisk(Config{})
	fsys := d.FS()
	f, g := mustCreate(t, fsys, "f", "old"), mustCreate(t, fsys, "g", "old")
	mustSync(t, fsys, f)
	mustSync(t, fsys, g)
	d.SetFaults(Faults{Read: 1, Write: 1, Sync: 1, Names: 1, Match: func(name string) bool { return name == "/f" }})
	_, readErr := f.ReadAt(make([]byte, 1), 0)
	n, writeErr := f.WriteAt([]byte("new content"), 0)
	for i, err := range []error{readErr, writeErr, f.Sync(), fsys.Remove("f")} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if n == len("new content") {
		t.Error("a failed write stored all")
	}
	if _, err := g.WriteAt([]byte("new"), 0); err != nil {
		t.Error(err)
	}
	d.SetFaults(Faults{Sync: 1})
	if err := g.Sync(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	d.SetFaults(Faults{})
	mustSync(t, fsys, g) // proves nothing
	wantContent(t, fsys, "g", "new")
	wantContent(t, d.Crash(true), "g", "old")
}

func TestCrash(t *testing.T) {
	d := newDisk(Config{})
	old := d.FS()
	f := mustCreate(t, old, "f", "synced")
	mustSync(t, old, f)
	if _, err := f.WriteAt([]byte("+"), 6); err != nil {
		t.Fatal(err)
	}
	lock, err := old.Lock("LOCK")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Lock("LOCK"); !errors.Is(err, vfs.ErrLocked) {
		t.Error(err)
	}
	killed := d.Crash(false)
	wantContent(t, killed, "f", "synced+")
	if _, err := killed.Lock("LOCK"); err != nil {
		t.Error(err)
	}
	_ = lock.Close() // of the old process
	if _, err := killed.Lock("LOCK"); !errors.Is(err, vfs.ErrLocked) {
		t.Error(err)
	}
	_, createErr := old.Create("late")
	_, writeErr := f.WriteAt([]byte("late"), 0)
	for i, err := range []error{createErr, writeErr, f.Sync(), f.Truncate(0), f.Close(), old.Remove("f"), old.Rename("f", "g"), old.MkdirAll("d")} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("operation %d of the killed process: %v", i, err)
		}
	}
	wantContent(t, killed, "f", "synced+")
	lost := 0
	for range 50 {
		f, err := d.FS().Open("f")
		if err != nil {
			t.Fatal(err)
		}
		_ = errors.Join(f.Truncate(6), f.Sync())
		_, _ = f.WriteAt([]byte("+"), 6)
		content, err := vfs.ReadFile(d.Crash(true), "f")
		if err != nil || !bytes.HasPrefix(content, []byte("synced")) {
			t.Fatalf("%q, %v", content, err)
		}
		if len(content) == 6 {
			lost++
		}
	}
	if lost == 0 || lost == 50 {
		t.Errorf("%d of 50 unsynced writes were lost", lost)
	}
}

// TestKilledWhileItWaits: an operation that has not ended when its process is killed does nothing.
func TestKilledWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(Config{Write: Latency{Min: time.Second}})
		done := make(chan error)
		go func() {
			_, err := vfs.FS(d.FS()).Create("f")
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f, _ := d.FS().Open("f")
		go func() {
			_, err := f.WriteAt([]byte("x"), 0)
			done <- err
		}()
		time.Sleep(time.Millisecond)
		d.Crash(false)
		if err := <-done; !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
		wantContent(t, d.FS(), "f", "")
	})
}

func TestCorrupt(t *testing.T) {
	d := newDisk(Config{})
	fsys := d.FS()
	content := strings.Repeat("x", 10_000)
	f := mustCreate(t, fsys, "table.sst", content)
	mustCreate(t, fsys, "log", content)
	isTable := func(name string) bool { return strings.HasSuffix(name, ".sst") }
	if _, _, ok := d.Corrupt(isTable); ok {
		t.Error("corrupted a file that was not synced")
	}
	mustSync(t, fsys, f)
	name, off, ok := d.Corrupt(isTable)
	if name != "/table.sst" || !ok {
		t.Fatal(name, off, ok)
	}
	got, err := vfs.ReadFile(d.Crash(true), "table.sst")
	if err != nil || len(got) != len(content) {
		t.Fatal(len(got), err)
	}
	for i := range got {
		if (got[i] != 'x') != (int64(i) == off) {
			t.Errorf("byte %d is %x, and byte %d was corrupted", i, got[i], off)
		}
	}
}

// history returns a hash of the events of one run (SD1).
func history(seed uint64) uint64 {
	h := fnv.New64a()
	d := New(Config{Rand: rand.New(rand.NewPCG(seed, 0)), Events: func(e Event) { e.At = 0; fmt.Fprintln(h, e) }})
	d.SetFaults(Faults{Write: 0.1, Sync: 0.1, Names: 0.1})
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		name := fmt.Sprint(rng.IntN(5))
		f, err := d.FS().Open(name)
		if err != nil {
			f, err = d.FS().Create(name)
		}
		if err != nil {
			continue
		}
		content := slices.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(5000))
		if _, err := f.WriteAt(content, int64(rng.IntN(5000))); err == nil {
			_ = errors.Join(f.Sync(), d.FS().SyncDir("/"))
		}
		_, _ = f.ReadAt(make([]byte, 10), 0)
		if rng.IntN(10) == 0 {
			d.Crash(rng.IntN(2) == 0)
			d.Corrupt(func(string) bool { return true })
		}
	}
	return h.Sum64()
}

func TestEqualSeedsEqualEvents(t *testing.T) {
	if history(1) != history(1) || history(1) == history(2) {
		t.Error("the events do not follow the seed")
	}
}

func BenchmarkWrite(b *testing.B) {
	d := newDisk(Config{Events: func(Event) {}})
	f, err := d.FS().Create("f")
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 200)
	for i := 0; b.Loop(); i++ {
		if _, err := f.WriteAt(p, int64(i%1000)*200); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			_ = f.Sync()
		}
	}
}
