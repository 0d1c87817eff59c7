package simdisk

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// Config configures a Disk.
type Config struct {
	// Rand decides about times, faults, and what survives a power loss. It is used by the disk only.
	// Required.
	Rand *rand.Rand
	// Events receives each event, with the disk's lock held. It must not block, and must not call the
	// disk. May be nil.
	Events func(Event)
	// Now returns the true time since the start, whichever process calls it. The default is the time
	// since New by the caller's clock.
	Now func() time.Duration
	// Read, Write and Sync are how long operations take. Zero means no time. See SSD.
	Read, Write, Sync Latency
	// Capacity is the size of the disk in bytes. Default 1 TiB.
	Capacity int64
}

// Latency is a distribution of times: uniform between Min and Max, and with the probability Tail
// between Max and TailMax. The zero value is no time, without a switch of goroutines.
type Latency struct {
	Min, Max time.Duration
	Tail     float64
	TailMax  time.Duration
}

// SSD is the times of a disk of a data center. Writes go to the cache of the operating system and
// take no time.
var SSD = struct{ Read, Write, Sync Latency }{
	Read: Latency{Min: 50 * time.Microsecond, Max: 200 * time.Microsecond},
	Sync: Latency{Min: 200 * time.Microsecond, Max: 2 * time.Millisecond, Tail: 0.01, TailMax: 50 * time.Millisecond},
}

func (l Latency) draw(rng *rand.Rand) time.Duration {
	low, high := l.Min, l.Max
	if l.Tail > 0 && rng.Float64() < l.Tail {
		low, high = l.Max, l.TailMax
	}
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)))
}

// Faults are the probabilities of EIO. After a failed sync, the unsynced bytes of the file are lost
// at the next power loss, although reads return them. A failed write has stored a part of its bytes.
type Faults struct {
	Read, Write, Sync float64
	// Names is for the creation, the removal and the renaming of files.
	Names float64
	// Match selects the files. Nil means all.
	Match func(name string) bool
}

// Disk is the disk of one machine.
type Disk struct {
	cfg Config

	// mu guards everything below (SD2).
	mu       sync.Mutex
	mem      *vfs.Mem
	fs       *FS // of the running process
	files    map[string]*inode
	locks    map[string]*lock
	used     int64
	capacity int64
	faults   Faults
	stalled  [2]time.Duration // the end of the stall of all operations, and of syncs
	inject   error            // the result of the next operation of mem
}

// inode is what a Disk knows of a file.
type inode struct {
	size   int64
	open   int  // handles
	linked bool // it has a name
	dirty  bool // it may have unsynced changes
}

// New returns an empty disk.
func New(cfg Config) *Disk {
	start := time.Now()
	if cfg.Now == nil {
		cfg.Now = func() time.Duration { return time.Since(start) }
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = 1 << 40
	}
	d := &Disk{cfg: cfg, capacity: cfg.Capacity, files: map[string]*inode{}}
	d.useLocked(vfs.NewMem(vfs.MemOptions{}))
	return d
}

// useLocked begins the FS of the next process, on top of mem.
func (d *Disk) useLocked(mem *vfs.Mem) {
	d.mem = mem
	mem.SetHook(func(vfs.Op) error {
		err := d.inject
		d.inject = nil
		return err
	})
	d.locks = map[string]*lock{}
	d.fs = &FS{disk: d}
}

// FS returns the file system of the running process.
func (d *Disk) FS() *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fs
}

// Crash ends the process that uses the disk, and returns the file system for the next one. With power
// the machine stops too, and unsynced changes survive by chance, in units of sectors. Otherwise all
// of them survive.
func (d *Disk) Crash(power bool) *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fs.dead = true
	mem, kind := d.mem, ProcessKilled
	if power {
		mem, kind = mem.Crash(d.cfg.Rand), PowerLost
	}
	d.useLocked(mem)
	old := d.files
	d.files, d.used = map[string]*inode{}, 0
	d.walkLocked("/", func(name string, size int64) {
		was := old[name]
		d.files[name] = &inode{size: size, linked: true, dirty: !power && was != nil && was.dirty}
		d.used += size
	})
	d.emitLocked(Event{Kind: kind})
	return d.fs
}

// walkLocked calls f for each file below dir.
func (d *Disk) walkLocked(dir string, f func(name string, size int64)) {
	names, err := d.mem.ReadDir(dir)
	if err != nil {
		panic("BUG: walk simulated disk: " + err.Error())
	}
	for _, base := range names {
		name := path.Join(dir, base)
		if file, err := d.mem.OpenRead(name); errors.Is(err, syscall.EISDIR) {
			d.walkLocked(name, f)
		} else if size, sizeErr := file.Size(); err == nil && sizeErr == nil {
			f(name, size)
			_ = file.Close()
		}
	}
}

// SetCapacity changes the size of the disk. It may be less than the used space.
func (d *Disk) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// Used returns the used space in bytes.
func (d *Disk) Used() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// SetFaults replaces the faults. The zero value ends them.
func (d *Disk) SetFaults(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = f
}

// Stall makes all operations, or only syncs, take at least until a time from now. It includes those
// that have begun. A later call replaces the time; stalled operations notice an earlier one within a second.
func (d *Disk) Stall(t time.Duration, syncsOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	which := 0
	if syncsOnly {
		which = 1
	}
	d.stalled[which] = d.cfg.Now() + t
}

// Corrupt flips one bit that is on disk, of a random file that match selects: each directory has the same chance, and then
// each of its files. It selects no file with unsynced changes. It returns the name and the offset of the byte, or false if there is no such file.
func (d *Disk) Corrupt(match func(name string) bool) (name string, off int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := map[string][]string{} // by directory
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if n := d.files[name]; n.size > 0 && !n.dirty && match(name) {
			names[path.Dir(name)] = append(names[path.Dir(name)], name)
		}
	}
	if len(names) == 0 {
		return "", 0, false
	}
	dirs := slices.Sorted(maps.Keys(names))
	of := names[dirs[d.cfg.Rand.IntN(len(dirs))]]
	name = of[d.cfg.Rand.IntN(len(of))]
	off = d.cfg.Rand.Int64N(d.files[name].size)
	if err := d.flipLocked(name, off, 1<<d.cfg.Rand.IntN(8)); err != nil {
		panic("BUG: corrupt simulated disk: " + err.Error())
	}
	d.emitLocked(Event{Kind: Corrupted, Name: name, Off: off, Len: 1})
	return name, off, true
}

func (d *Disk) flipLocked(name string, off int64, bits byte) error {
	file, err := d.mem.Open(name)
	if err != nil {
		return err
	}
	var b [1]byte
	_, readErr := file.ReadAt(b[:], off)
	b[0] ^= bits
	_, writeErr := file.WriteAt(b[:], off)
	return errors.Join(readErr, writeErr, file.Sync(), file.Close())
}

// freeLocked returns the free space.
func (d *Disk) freeLocked() int64 { return max(0, d.capacity-d.used) }

// resizeLocked notes a new size of a file.
func (d *Disk) resizeLocked(n *inode, size int64) {
	d.used += size - n.size
	n.size = size
	n.dirty = true
}

// unlinkLocked notes that a file has lost its name.
func (d *Disk) unlinkLocked(name string) {
	if n := d.files[name]; n != nil {
		delete(d.files, name)
		n.linked = false
		d.dropLocked(n)
	}
}

// dropLocked frees the space of a file that has neither name nor handle.
func (d *Disk) dropLocked(n *inode) {
	if !n.linked && n.open == 0 {
		d.used -= n.size
		n.size = 0
	}
}

// moveLocked notes a new name of a file, or of a directory.
func (d *Disk) moveLocked(oldName, newName string) {
	if n := d.files[oldName]; n != nil {
		if oldName != newName {
			d.unlinkLocked(newName)
			delete(d.files, oldName)
			d.files[newName] = n
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if rel, err := filepath.Rel(oldName, name); err == nil && filepath.IsLocal(rel) {
			n := d.files[name]
			delete(d.files, name)
			d.files[path.Join(newName, rel)] = n
		}
	}
}

// clean returns the name in the form of Disk.files.
func clean(name string) string { return path.Clean("/" + filepath.ToSlash(name)) }

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
