package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var testKeys = []DataKey{{Number: 1, Secret: [DataKeyBytes]byte{1}}, {Number: 2, Secret: [DataKeyBytes]byte{2}}}

func allFiles(string) bool { return true }

func newMemCrypt() (*Mem, *Crypt) {
	mem := NewMem(MemOptions{})
	return mem, NewCrypt(mem, testKeys, allFiles)
}

// TestCryptIsAFile compares an encrypted file with a slice under random operations, with handles
// opened repeatedly.
func TestCryptIsAFile(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		_, fsys := newMemCrypt()
		file, err := fsys.Create("f")
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for step := range 60 {
			off := rng.Int64N(3 * cryptUnitBytes * int64(1+rng.IntN(100)))
			if rng.IntN(2) == 0 {
				off = off / cryptUnitBytes * cryptUnitBytes
			}
			switch n := rng.IntN(10); {
			case n < 6:
				p := make([]byte, 1+rng.IntN(1+rng.IntN(80*cryptUnitBytes)))
				for i := range p {
					p[i] = byte(rng.Uint32())
				}
				if n, err := file.WriteAt(p, off); n != len(p) || err != nil {
					t.Fatalf("seed %d, step %d: write: %d, %v", seed, step, n, err)
				}
				want = memWrite{off: off, data: p}.apply(want)
			case n == 6:
				err = file.Truncate(off)
				want = memWrite{off: off, truncate: true}.apply(want)
			case n == 7:
				err = file.Preallocate(off)
				if off > int64(len(want)) {
					want = memWrite{off: off, truncate: true}.apply(want)
				}
			default:
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
				file, err = fsys.Open("f")
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			checkCryptFile(t, fsys, file, want, rng)
		}
		file.Close()
	}
}

func checkCryptFile(t *testing.T, fsys FS, file File, want []byte, rng *rand.Rand) {
	t.Helper()
	size, err := file.Size()
	stat, _, errStat := fsys.Stat("f")
	if size != int64(len(want)) || stat != size || err != nil || errStat != nil {
		t.Fatalf("size is %d and %d, want %d; %v, %v", size, stat, len(want), err, errStat)
	}
	off := rng.IntN(len(want) + 1)
	p := make([]byte, 1+rng.IntN(len(want)+10))
	n, err := file.ReadAt(p, int64(off))
	from := want[off:]
	if len(p) <= len(from) {
		if n != len(p) || err != nil && err != io.EOF {
			t.Fatalf("read %d at %d of %d: %d, %v", len(p), off, len(want), n, err)
		}
	} else if n != len(from) || err != io.EOF {
		t.Fatalf("read %d at %d of %d: %d, %v, want EOF", len(p), off, len(want), n, err)
	}
	if !bytes.Equal(p[:n], from[:n]) {
		t.Fatalf("read %d at %d of %d returned other bytes", len(p), off, len(want))
	}
}

// TestCryptHidesBytes: none of the plaintext except the first page is in the stored file, and equal
// bytes are stored differently.
func TestCryptHidesBytes(t *testing.T) {
	mem, fsys := newMemCrypt()
	secret := bytes.Repeat([]byte("attack at dawn. "), 1024)
	file, _ := fsys.Create("f")
	for range 2 { // again, in place
		if _, err := file.WriteAt(secret, cryptClearBytes); err != nil {
			t.Fatal(err)
		}
		stored := readStored(t, mem, "f")
		if bytes.Contains(stored, []byte("attack")) {
			t.Fatal("the stored file holds plaintext")
		}
		seen := map[string]bool{}
		for at := slotStart(0); at+cryptSlotBytes <= int64(len(stored)); at += cryptSlotBytes {
			for i := int64(cryptNonceBytes); i+16 <= cryptSlotBytes; i += 16 {
				block := string(stored[at+i:][:16])
				if seen[block] {
					t.Fatal("two blocks of equal plaintext are stored as the same bytes")
				}
				seen[block] = true
			}
		}
	}
}

func readStored(t *testing.T, fsys FS, name string) []byte {
	t.Helper()
	file, err := fsys.OpenRead(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size, _ := file.Size()
	b := make([]byte, size)
	if n, err := file.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	return b
}

// TestCryptNoncesDiffer: no nonce is used twice with a key, across rewrites and handles.
func TestCryptNoncesDiffer(t *testing.T) {
	mem, fsys := newMemCrypt()
	file, _ := fsys.Create("f")
	seen := map[string]bool{}
	p := make([]byte, 3*cryptUnitBytes)
	p[0] = 1
	for i := range 20 {
		if i%4 == 3 {
			file.Close()
			file, _ = fsys.Open("f")
		}
		if _, err := file.WriteAt(p, cryptClearBytes); err != nil {
			t.Fatal(err)
		}
		stored := readStored(t, mem, "f")
		for index := range int64(3) {
			nonce := string(stored[slotStart(index):][:cryptNonceBytes])
			if seen[nonce] {
				t.Fatalf("write %d uses a nonce again", i)
			}
			seen[nonce] = true
		}
	}
}

// TestCryptFindsEveryFlip flips each bit of a stored file. Either copy of the header suffices.
func TestCryptFindsEveryFlip(t *testing.T) {
	mem, fsys := newMemCrypt()
	file, _ := fsys.Create("f")
	plain := bytes.Repeat([]byte{7}, cryptClearBytes+cryptUnitBytes+100)
	if _, err := file.WriteAt(plain, 0); err != nil {
		t.Fatal(err)
	}
	raw, _ := mem.Open("f")
	stored := readStored(t, mem, "f")
	p := make([]byte, len(plain)-cryptClearBytes)
	for at := slotStart(0); at < int64(len(stored)); at++ {
		for bit := range 8 {
			raw.WriteAt([]byte{stored[at] ^ 1<<bit}, at)
			var damage *DamageError
			n, err := file.ReadAt(p, cryptClearBytes)
			if want := (at - slotStart(0)) / cryptSlotBytes * cryptUnitBytes; !errors.As(err, &damage) || int64(n) != want || damage.Offset != cryptClearBytes+want {
				t.Fatalf("bit %d at %d: read %d bytes, %v", bit, at, n, err)
			}
		}
		raw.WriteAt(stored[at:at+1], at)
	}
	for _, copyAt := range []int64{0, cryptSecondCopy} {
		for at := copyAt; at < copyAt+cryptCopyBytes; at++ {
			raw.WriteAt([]byte{stored[at] ^ 4}, at)
			f, err := fsys.OpenRead("f")
			if err != nil {
				t.Fatalf("byte %d of the header: %v", at, err)
			}
			if err := VerifyHeader(f); err == nil {
				t.Fatalf("byte %d of the header: the flip is not found", at)
			}
			raw.WriteAt(stored[at:at+1], at)
		}
	}
	if f, err := fsys.OpenRead("f"); err != nil || VerifyHeader(f) != nil {
		t.Fatal("an intact header is not verified")
	}
}

// TestCryptBounds: nothing before the file is read or written, and a handle stays usable after a
// partly failed write.
func TestCryptBounds(t *testing.T) {
	mem, fsys := newMemCrypt()
	file, _ := fsys.Create("f")
	for _, off := range []int64{-1, -cryptHeaderBytes} {
		if n, err := file.ReadAt(make([]byte, 10), off); n != 0 || err == nil {
			t.Errorf("read at %d: %d, %v", off, n, err)
		}
		if n, err := file.WriteAt(make([]byte, 10), off); n != 0 || err == nil {
			t.Errorf("write at %d: %d, %v", off, n, err)
		}
	}
	mem.SetHook(func(op Op) error {
		if op.Kind == OpWrite {
			return ErrTorn
		}
		return nil
	})
	p := bytes.Repeat([]byte{5}, 2*cryptUnitBytes)
	if _, err := file.WriteAt(p, cryptClearBytes); !errors.Is(err, ErrTorn) {
		t.Fatalf("torn: %v", err)
	}
	mem.SetHook(nil)
	if _, err := file.WriteAt(p, cryptClearBytes); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(p))
	if n, err := file.ReadAt(got, cryptClearBytes); n != len(p) || !bytes.Equal(got, p) {
		t.Errorf("after a torn write: %d, %v", n, err)
	}
}

// TestCryptKeepsUnitsInPlace: a slot is valid only at its position in its file.
func TestCryptKeepsUnitsInPlace(t *testing.T) {
	mem, fsys := newMemCrypt()
	for _, name := range []string{"a", "b"} {
		file, _ := fsys.Create(name)
		file.WriteAt(make([]byte, 2*cryptUnitBytes), cryptClearBytes)
		file.Close()
	}
	a, b := readStored(t, mem, "a"), readStored(t, mem, "b")
	for name, slot := range map[string][]byte{"another place": a[slotStart(1):][:cryptSlotBytes], "another file": b[slotStart(0):][:cryptSlotBytes]} {
		raw, _ := mem.Open("a")
		raw.WriteAt(slot, slotStart(0))
		f, err := fsys.OpenRead("a")
		if err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if _, err := f.ReadAt(make([]byte, 10), cryptClearBytes); !errors.As(err, &damage) {
			t.Errorf("a slot of %s: %v", name, err)
		}
	}
}

// TestCryptKeys: a file records its key, the newest when it was created.
func TestCryptKeys(t *testing.T) {
	mem := NewMem(MemOptions{})
	old := NewCrypt(mem, testKeys[:1], allFiles)
	file, _ := old.Create("old")
	file.WriteAt([]byte("old"), cryptClearBytes)
	both := NewCrypt(mem, testKeys, allFiles)
	file, _ = both.Create("new")
	file.WriteAt([]byte("new"), cryptClearBytes)
	for _, name := range []string{"old", "new"} {
		f, err := both.OpenRead(name)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 3)
		if _, err := f.ReadAt(p, cryptClearBytes); string(p) != name || err != nil && err != io.EOF {
			t.Errorf("%s holds %q, %v", name, p, err)
		}
	}
	var damage *DamageError
	if _, err := old.OpenRead("new"); !errors.As(err, &damage) {
		t.Errorf("opened with a key that it does not have: %v", err)
	}
}

// TestStableKeepsBytes: rewriting equal bytes changes nothing on disk; different bytes are written.
func TestStableKeepsBytes(t *testing.T) {
	mem, fsys := newMemCrypt()
	file, _ := fsys.Create("f")
	p := bytes.Repeat([]byte{9}, 4*cryptUnitBytes)
	file.WriteAt(p, cryptClearBytes)
	before := readStored(t, mem, "f")
	again, _ := fsys.Open("f")
	p[cryptUnitBytes+5] = 1
	if _, err := Stable(again).WriteAt(p, cryptClearBytes); err != nil {
		t.Fatal(err)
	}
	after := readStored(t, mem, "f")
	for index := range int64(4) {
		same := bytes.Equal(before[slotStart(index):][:cryptSlotBytes], after[slotStart(index):][:cryptSlotBytes])
		if same != (index != 1) {
			t.Errorf("unit %d: same is %v", index, same)
		}
	}
	got := make([]byte, len(p))
	if again.ReadAt(got, cryptClearBytes); !bytes.Equal(got, p) {
		t.Error("other bytes are read")
	}
}

// TestAppendKeepsWhatWasSynced appends pages with a power loss in each append. Data synced before
// is intact, because the earlier slot's part of a shared sector does not change.
func TestAppendKeepsWhatWasSynced(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		mem, fsys := newMemCrypt()
		file, _ := fsys.Create("f")
		const pages = 20
		file.Preallocate(cryptClearBytes + pages*cryptUnitBytes)
		if err := WriteZeros(file, make([]byte, pages*cryptUnitBytes), cryptClearBytes); err != nil {
			t.Fatal(err)
		}
		file.Sync()
		mem.SyncDir(".")
		synced := 0
		for synced < pages-4 {
			n := 1 + rng.IntN(3)
			p := bytes.Repeat([]byte{byte(synced + 1)}, n*cryptUnitBytes)
			if _, err := AppendAt(file, p, unitStart(int64(synced))); err != nil {
				t.Fatal(err)
			}
			crashed, err := NewCrypt(mem.Crash(rng), testKeys, allFiles).Open("f")
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, synced*cryptUnitBytes)
			if _, err := crashed.ReadAt(got, cryptClearBytes); err != nil {
				t.Fatalf("seed %d, %d pages: %v", seed, synced, err)
			}
			if want := readStored(t, fsys, "f")[cryptClearBytes:][:len(got)]; !bytes.Equal(got, want) {
				t.Fatalf("seed %d, %d pages: other bytes after a crash", seed, synced)
			}
			file.Sync()
			synced += n
		}
	}
}

// heldFS blocks reads and writes of its files until goOn is closed, and counts the concurrent ones.
type heldFS struct {
	FS
	goOn       chan struct{}
	busy, most atomic.Int32
}

type heldFile struct {
	File
	fs *heldFS
}

func (h *heldFS) OpenRead(name string) (File, error) { return h.hold(h.FS.OpenRead(name)) }
func (h *heldFS) Open(name string) (File, error)     { return h.hold(h.FS.Open(name)) }

func (h *heldFS) hold(f File, err error) (File, error) { return heldFile{f, h}, err }

func (h *heldFS) wait() func() {
	n := h.busy.Add(1)
	for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); most = h.most.Load() {
	}
	<-h.goOn
	return func() { h.busy.Add(-1) }
}

func (f heldFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= cryptHeaderBytes {
		defer f.fs.wait()()
	}
	return f.File.ReadAt(p, off)
}

func (f heldFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.fs.wait()()
	return f.File.WriteAt(p, off)
}

// TestCryptMemory: the number of calls with buffers is bounded while the disk stalls, and writes do
// not wait for reads.
func TestCryptMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, fsys := newMemCrypt()
		file, _ := fsys.Create("f")
		file.WriteAt(make([]byte, 100<<10), 0)
		held := &heldFS{FS: mem, goOn: make(chan struct{})}
		fsys = NewCrypt(held, testKeys, allFiles)
		var calls sync.WaitGroup
		call := func(run func(f File, p []byte) (int, error)) {
			f, err := fsys.Open("f")
			if err != nil {
				t.Fatal(err)
			}
			calls.Go(func() {
				if n, err := run(f, make([]byte, 10<<10)); n != 10<<10 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			})
		}
		for range 4 * cryptCalls {
			call(func(f File, p []byte) (int, error) { return f.ReadAt(p, 20<<10) })
		}
		if synctest.Wait(); held.most.Load() != cryptCalls {
			t.Errorf("%d reads are under way", held.most.Load())
		}
		for range 4 * cryptCalls {
			call(func(f File, p []byte) (int, error) { return f.WriteAt(p, 20<<10) })
		}
		if synctest.Wait(); held.most.Load() != 2*cryptCalls {
			t.Errorf("%d reads and writes are under way", held.most.Load())
		}
		close(held.goOn)
		calls.Wait()
		if held.most.Load() != 2*cryptCalls {
			t.Errorf("%d reads and writes were under way", held.most.Load())
		}
	})
}
