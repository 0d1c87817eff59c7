package local

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

var (
	// masterA has no run of zeros, which files have too.
	masterA = MasterKey([]byte("thirty-two bytes of a master key"))
	masterB = MasterKey{0xb}
)

func keyedConfig(fsys vfs.FS, masters ...MasterKey) Config {
	return Config{Folders: []string{"/d"}, FS: fsys, ExtentBytes: ChunkBytes, LogExtentsReady: -1, ReserveBytes: -1, MasterKeys: masters}
}

func openKeyed(t *testing.T, fsys vfs.FS, masters ...MasterKey) *Store {
	t.Helper()
	s, err := Open(keyedConfig(fsys, masters...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fillKeyed writes one file of each type with the given words, and returns the blob's handle.
func fillKeyed(t *testing.T, s *Store, words []byte) Handle {
	t.Helper()
	ctx := context.Background()
	data := bytes.Repeat(words, 9000)
	w, err := s.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	h, err := w.Seal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	log, err := s.CreateLog(ctx, NewID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(ctx, data[:5000]); err != nil {
		t.Fatal(err)
	}
	id := NewID()
	if _, err := s.OpenLogReplica(ctx, LogOpen{Log: id, Server: "n1", Seq: 1, Epoch: 1, Salt: 7}); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, LogFrameBytes(300))
	EncodeLogFrame(frame, data[:300], 0, 1, 300, 7, 0, 0)
	if s.QueueLog(LogAppend{Log: id, Seq: 1, Epoch: 1, Frames: frame}, func(_ int64, err error) {
		if err != nil {
			t.Error(err)
		}
	}) {
		s.FlushLog(id, 1)
	}
	return h
}

func readsWords(t *testing.T, s *Store, h Handle, words []byte) {
	t.Helper()
	r, err := s.OpenBlob(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := make([]byte, h.Length)
	if _, err := r.ReadAt(p, 0); err != nil || !bytes.Equal(p, bytes.Repeat(words, 9000)) {
		t.Fatalf("the blob reads otherwise, %v", err)
	}
	if err := s.Verify(context.Background(), func(p Problem) { t.Error(p) }); err != nil {
		t.Fatal(err)
	}
}

// storedFiles returns the raw content of all files below a folder.
func storedFiles(t *testing.T, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if name == blobsDir || name == logsDir {
			for sub, content := range storedFiles(t, fsys, path) {
				files[sub] = content
			}
			continue
		}
		files[path] = readFile(t, fsys, path)
	}
	return files
}

// An encrypted folder has no file with the plaintext of blobs, logs and replicas, or with keys.
func TestEncryptedFolderHoldsNoPlaintext(t *testing.T) {
	words := []byte("attack at dawn! ")
	for _, masters := range [][]MasterKey{nil, {masterA}} {
		mem := vfs.NewMem(vfs.MemOptions{})
		s := openKeyed(t, mem, masters...)
		h := fillKeyed(t, s, words)
		readsWords(t, s, h, words)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		found := 0
		for name, content := range storedFiles(t, mem, "/d") {
			if bytes.Contains(content, words) {
				found++
				if masters != nil {
					t.Errorf("%s holds plaintext", name)
				}
			}
			if bytes.Contains(content, masterA[:]) {
				t.Errorf("%s holds the master key", name)
			}
		}
		if masters == nil && found != 5 {
			t.Errorf("%d files of a folder in the clear hold the words, so the search is wrong", found)
		}
		s = openKeyed(t, mem, masters...)
		readsWords(t, s, h, words)
		s.Close()
	}
}

// A folder opens only with its master key, and the error has the missing key.
func TestMasterKeys(t *testing.T) {
	words := []byte("sixteen letters.")
	open := func(mem vfs.FS, readOnly bool, masters ...MasterKey) error {
		cfg := keyedConfig(mem, masters...)
		cfg.ReadOnly = readOnly
		s, err := Open(cfg)
		if err == nil {
			s.Close()
		}
		return err
	}
	keyed, clear := vfs.NewMem(vfs.MemOptions{}), vfs.NewMem(vfs.MemOptions{})
	s := openKeyed(t, keyed, masterA)
	h := fillKeyed(t, s, words)
	s.Close()
	s = openKeyed(t, clear)
	fillKeyed(t, s, words)
	s.Close()
	for _, c := range []struct {
		name    string
		fs      vfs.FS
		masters []MasterKey
		want    error
		needs   []MasterKeyID
	}{
		{"no key", keyed, nil, ErrMasterKey, []MasterKeyID{masterA.ID()}},
		{"another key", keyed, []MasterKey{masterB}, ErrMasterKey, []MasterKeyID{masterA.ID()}},
		{"a key for data in the clear", clear, []MasterKey{masterA}, ErrNotEncrypted, nil},
		{"its key", keyed, []MasterKey{masterA}, nil, nil},
		{"its key, second", keyed, []MasterKey{masterB, masterA}, nil, nil},
		{"in the clear", clear, nil, nil, nil},
	} {
		for _, readOnly := range []bool{true, false} {
			err := open(c.fs, readOnly, c.masters...)
			var e *EncryptionError
			if c.want == nil && err != nil || c.want != nil && (!errors.Is(err, c.want) || !errors.As(err, &e) || e.Folder != "/d" || !slices.Equal(e.Needs, c.needs)) {
				t.Errorf("%s, read-only %t: %v", c.name, readOnly, err)
			}
		}
	}
	// The keys are now wrapped by B, and A is no longer needed.
	s = openKeyed(t, keyed, masterB)
	defer s.Close()
	readsWords(t, s, h, words)
}

// A rotation wraps the data keys with the new master key, and new files use a new data key. A
// read-only store changes nothing. After a power loss in a rotation, the folder opens with both
// keys configured.
func TestMasterKeyRotation(t *testing.T) {
	words := []byte("sixteen letters.")
	mem := vfs.NewMem(vfs.MemOptions{})
	s := openKeyed(t, mem, masterA)
	h := fillKeyed(t, s, words)
	s.Close()
	mem = mem.Crash(nil)
	before := readFile(t, mem, "/d/encryption")

	cfg := keyedConfig(mem, masterB, masterA)
	cfg.ReadOnly = true
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	readsWords(t, s, h, words)
	s.Close()
	if !bytes.Equal(readFile(t, mem, "/d/encryption"), before) {
		t.Fatal("a read-only store changed the file of keys")
	}

	done := 0
	for at := int64(1); done == 0; at++ {
		world := mem.Crash(nil)
		world.SetHook(func(op vfs.Op) error {
			if op.N >= at {
				return vfs.ErrPowerCut
			}
			return nil
		})
		s, err := Open(keyedConfig(world, masterB, masterA))
		if err == nil {
			world.SetHook(nil)
			s.Close()
			done++
		}
		for seed := range uint64(8) {
			crashed := world.Crash(rand.New(rand.NewPCG(seed, uint64(at))))
			s = openKeyed(t, crashed, masterB, masterA)
			readsWords(t, s, h, words)
			added := fillKeyed(t, s, words)
			s.Close()
			s = openKeyed(t, crashed, masterB)
			readsWords(t, s, h, words)
			readsWords(t, s, added, words)
			if of, n := keyOf(t, crashed, s, h), keyOf(t, crashed, s, added); of != 1 || n != 2 {
				t.Fatalf("the old blob has data key %d, the new one %d", of, n)
			}
			s.Close()
			if err := func() error { _, err := Open(keyedConfig(crashed, masterA)); return err }(); !errors.Is(err, ErrMasterKey) {
				t.Fatalf("with the old key alone: %v", err)
			}
		}
	}
}

// keyOf returns the number of the data key of a blob's first extent.
func keyOf(t *testing.T, fsys vfs.FS, s *Store, h Handle) uint32 {
	t.Helper()
	s.extents.mu.Lock()
	p := s.partsLocked(ExtentID{Blob: h.ID})[0]
	s.extents.mu.Unlock()
	return uint32(readFile(t, fsys, p.path(h.ID))[12])
}

// The number of data keys is bounded; later rotations add none.
func TestManyRotations(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	last := MasterKey{}
	for i := range dataKeysMax + 3 {
		next := MasterKey{1, byte(i)}
		s := openKeyed(t, mem, next, last)
		s.Close()
		last = next
	}
	keys, err := readKeyFile(mem, "/d/encryption")
	if err != nil || len(keys) != dataKeysMax || keys.staleFor(last) {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	s := openKeyed(t, mem, last)
	defer s.Close()
	readsWords(t, s, fillKeyed(t, s, []byte("sixteen letters.")), []byte("sixteen letters."))
}

// Every bit of the key file is checked: one copy suffices to open the folder, and Verify reports
// damage in the other.
func TestKeyFileDamage(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	words := []byte("sixteen letters.")
	s := openKeyed(t, mem, masterA)
	h := fillKeyed(t, s, words)
	s.Close()
	raw, err := mem.Open("/d/encryption")
	if err != nil {
		t.Fatal(err)
	}
	content := readFile(t, mem, "/d/encryption")
	for at := 0; at < len(content); at += 1 + at%pageBytes/200*31 {
		raw.WriteAt([]byte{content[at] ^ 1<<(at%8)}, int64(at))
		s := openKeyed(t, mem, masterA)
		var problems []Problem
		if err := s.Verify(context.Background(), func(p Problem) { problems = append(problems, p) }); err != nil {
			t.Fatal(err)
		}
		if len(problems) != 1 || problems[0].File != "/d/encryption" || problems[0].Offset != int64(at/pageBytes*pageBytes) {
			t.Fatalf("byte %d: %v", at, problems)
		}
		s.Close()
		raw.WriteAt(content[at:at+1], int64(at))
	}
	for _, at := range []int64{20, pageBytes + 20} {
		raw.WriteAt([]byte{content[at] ^ 1}, at)
	}
	var corrupt *CorruptError
	if _, err := Open(keyedConfig(mem, masterA)); !errors.As(err, &corrupt) || corrupt.File != "/d/encryption" {
		t.Errorf("both copies damaged: %v", err)
	}
	raw.WriteAt(content, 0)
	s = openKeyed(t, mem, masterA)
	readsWords(t, s, h, words)
	s.Close()
	raw.Truncate(100)
	if _, err := Open(keyedConfig(mem, masterA)); !errors.As(err, &corrupt) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("cut: %v", err)
	}
}

// The package comment's example equals what is written, and can be read.
func TestGoldenKeys(t *testing.T) {
	master := MasterKey(bytes.Repeat([]byte{1}, MasterKeyBytes))
	data := vfs.DataKey{Number: 1, Secret: [vfs.DataKeyBytes]byte(bytes.Repeat([]byte{2}, vfs.DataKeyBytes))}
	w := wrappedKey{number: 1, master: master.ID(), nonce: [12]byte(bytes.Repeat([]byte{3}, 12))}
	file := keyFile{w.seal(data, master)}
	compare(t, "a file of keys", file.encode())
	mem := vfs.NewMem(vfs.MemOptions{})
	writeImage(t, mem, "keys", example(t, "a file of keys", 2*pageBytes))
	got, err := readKeyFile(mem, "keys")
	if err != nil {
		t.Fatal(err)
	}
	if keys, missing := got.unwrap([]MasterKey{master}); len(missing) > 0 || len(keys) != 1 || keys[0] != data {
		t.Errorf("the example holds %v, lacks %v", keys, missing)
	}
}

// After a rotation no log file with an old data key is recycled, neither a spare nor a released
// extent.
func TestRotationEndsOldSpares(t *testing.T) {
	ctx := context.Background()
	for _, rotated := range []bool{false, true} {
		mem := vfs.NewMem(vfs.MemOptions{})
		s := openKeyed(t, mem, masterA)
		held := LogOpen{Log: NewID(), Server: "n1", Seq: 1, Epoch: 1, Salt: 7}
		if _, err := s.OpenLogReplica(ctx, held); err != nil {
			t.Fatal(err)
		}
		f, err := s.spares.take(false)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.spares.recycleFile(f); err != nil {
			t.Fatal(err)
		}
		s.Close()
		masters, want := []MasterKey{masterA}, 1
		if rotated {
			masters, want = []MasterKey{masterB, masterA}, 0
		}
		s = openKeyed(t, mem, masters...)
		if n := s.Stats().LogExtentsReady; n != want {
			t.Errorf("rotated %t: %d spares, want %d", rotated, n, want)
		}
		if err := s.DropLogReplica(ctx, held.Log, held.Seq); err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().LogExtentsReady; n != 2*want {
			t.Errorf("rotated %t, released: %d spares, want %d", rotated, n, 2*want)
		}
		names, err := mem.ReadDir("/d/logs")
		if err != nil || len(names) != 2*want {
			t.Errorf("rotated %t: files %q, %v", rotated, names, err)
		}
		s.Close()
	}
}

// An encrypted folder without its key file is corrupt, not in the clear, and is not written to.
func TestKeyFileLost(t *testing.T) {
	words := []byte("sixteen letters.")
	mem := vfs.NewMem(vfs.MemOptions{})
	s := openKeyed(t, mem, masterA)
	h := fillKeyed(t, s, words)
	s.Close()
	content := readFile(t, mem, "/d/encryption")
	if err := mem.Remove("/d/encryption"); err != nil {
		t.Fatal(err)
	}
	before := storedFiles(t, mem, "/d")
	for _, masters := range [][]MasterKey{nil, {masterA}} {
		var corrupt *CorruptError
		if _, err := Open(keyedConfig(mem, masters...)); !errors.As(err, &corrupt) || corrupt.File != "/d/encryption" {
			t.Errorf("with %d master keys: %v", len(masters), err)
		}
		if after := storedFiles(t, mem, "/d"); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("with %d master keys: the folder was changed", len(masters))
		}
	}
	writeImage(t, mem, "/d/encryption", content)
	s = openKeyed(t, mem, masterA)
	readsWords(t, s, h, words)
	s.Close()
}

// A log file with a corrupt encryption header is one corrupt file, and does not retire its folder.
func TestCorruptHeaderRetiresNothing(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	s := openKeyed(t, mem, masterA)
	defer s.Close()
	f, err := s.spares.take(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{20, 2048 + 20} {
		flipByte(t, mem, f.path(), at)
	}
	var damage *vfs.DamageError
	if err := s.spares.recycleFile(f); !errors.As(err, &damage) {
		t.Errorf("recycled: %v", err)
	}
	if n := s.RetiredFolders(); n > 0 {
		t.Errorf("%d folders are retired", n)
	}
	if _, err := s.spares.take(false); err != nil {
		t.Error(err)
	}
}
