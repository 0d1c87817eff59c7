package backupdir

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
)

// cluster is a cluster with backups, as a source and a target.
type cluster struct {
	mu      sync.Mutex
	backups map[string][]client.BackupFile
	content map[string][]byte // of files, by id
	reads   int
	fail    error // of reads

	staged   map[string][]byte
	imported map[string][]byte // contents by the ids that they had
	manifest []byte            // of the last import
}

func newCluster() *cluster {
	return &cluster{backups: map[string][]client.BackupFile{}, content: map[string][]byte{}, staged: map[string][]byte{}}
}

// add makes a backup of files that have these contents. The ids of files are made of their contents.
func (c *cluster) add(id string, contents ...string) *client.Backup {
	b := &client.Backup{ID: id, State: "made", CreatedMS: 1000, Tables: []string{"t"}, Tablets: 1}
	for _, x := range contents {
		f := client.BackupFile{ID: (*Key)(nil).sum([]byte("id " + x))[:fileIDDigits], Bytes: int64(len(x)), Check: (*Key)(nil).sum([]byte(x))[:checkDigits]}
		c.content[f.ID] = []byte(x)
		c.backups[id] = append(c.backups[id], f)
		b.Bytes += f.Bytes
	}
	return b
}

func (c *cluster) Files(_ context.Context, id string, each func(*client.BackupFile) error) error {
	for _, f := range c.backups[id] {
		if err := each(&f); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) Read(ctx context.Context, _ string, f *client.BackupFile, p []byte, off int64) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if err := errors.Join(c.fail, ctx.Err()); err != nil {
		return 0, err
	}
	return copy(p, c.content[f.ID][off:]), nil
}

func (c *cluster) PutStaged(_ context.Context, _ string, r io.Reader) (client.BlobInfo, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return client.BlobInfo{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := fmt.Sprintf("%032x", rand.Uint64())
	c.staged[id] = b
	return client.BlobInfo{ID: id}, nil
}

func (c *cluster) Delete(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.staged, id)
	return nil
}

func (c *cluster) Import(_ context.Context, manifest, files string) (string, error) {
	c.imported = map[string][]byte{}
	for pair := range slices.Chunk(c.staged[files], fileIDDigits) {
		old, id := hex.EncodeToString(pair[:fileIDDigits/2]), hex.EncodeToString(pair[fileIDDigits/2:])
		c.imported[old] = c.staged[id]
	}
	if c.manifest = c.staged[manifest]; c.manifest == nil {
		return "", errors.New("no manifest")
	}
	return "imported", nil
}

// env is a directory in memory, and a cluster.
type env struct {
	t   *testing.T
	fs  *vfs.Mem
	c   *cluster
	key *Key
}

// testKey is a key of bytes 0x01.
func testKey(t *testing.T) *Key {
	t.Helper()
	k, err := NewKey(bytes.Repeat([]byte{1}, KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// withKeys runs a test without a key and with one.
func withKeys(t *testing.T, test func(t *testing.T, newEnv func(*testing.T) *env)) {
	t.Run("plain", func(t *testing.T) { test(t, newEnv) })
	t.Run("encrypted", func(t *testing.T) {
		test(t, func(t *testing.T) *env {
			e := newEnv(t)
			e.key = testKey(t)
			return e
		})
	})
}

func newEnv(t *testing.T) *env {
	e := &env{t: t, fs: vfs.NewMem(vfs.MemOptions{}), c: newCluster()}
	if err := errors.Join(e.fs.MkdirAll("/nfs"), e.fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *env) dir() *Dir {
	e.t.Helper()
	d, err := Create(e.fs, "/nfs/backups", e.key)
	if err != nil {
		e.t.Fatal(err)
	}
	d.recordBytes = 1
	return d
}

func (e *env) copy(b *client.Backup) error {
	d, err := Create(e.fs, "/nfs/backups", e.key)
	if err == nil {
		_, err = d.Copy(e.t.Context(), e.c, b, nil, &Progress{})
	}
	return err
}

func (e *env) mustCopy(b *client.Backup) {
	e.t.Helper()
	if err := e.copy(b); err != nil {
		e.t.Fatal(err)
	}
}

// check checks that each listed backup is whole (BD1), and that it can be imported with the contents that it has in the cluster.
func (e *env) check() (listed []string) {
	e.t.Helper()
	d := e.dir()
	all, err := d.List(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	for _, x := range all {
		if x.Err != nil {
			e.t.Fatalf("backup %s: %v", x.ID, x.Err)
		}
		listed = append(listed, x.ID)
		if _, err := d.Import(e.t.Context(), e.c, x.ID, nil, &Progress{}); err != nil {
			e.t.Fatalf("import %s: %v", x.ID, err)
		}
		if len(e.c.staged) > 0 {
			e.t.Fatalf("an import leaves %d staged blobs", len(e.c.staged))
		}
		if !e.imported(x.ID) {
			e.t.Fatalf("the import of %s has %d files, or other contents", x.ID, len(e.c.imported))
		}
	}
	return listed
}

// imported reports whether the last import has the files of a backup.
func (e *env) imported(id string) bool {
	want := map[string][]byte{}
	for _, f := range e.c.backups[id][1:] { // the manifest is named by itself
		want[f.ID] = e.c.content[f.ID]
	}
	return maps.EqualFunc(e.c.imported, want, bytes.Equal)
}

// TestCopy (BD1): what is copied is listed, and imported with equal contents. A later copy reads only what is new.
func TestCopy(t *testing.T) { withKeys(t, testCopy) }

func testCopy(t *testing.T, newEnv func(*testing.T) *env) {
	e := newEnv(t)
	large := strings.Repeat("large ", 600_000)
	e.mustCopy(e.c.add("b1", "manifest 1", "one", "two", "", large))
	if reads := e.c.reads; reads != 3+4 {
		t.Errorf("%d reads", reads)
	}
	e.c.reads = 0
	e.mustCopy(e.c.add("b2", "manifest 2", "one", "three", large))
	if e.c.reads != 2 {
		t.Errorf("%d reads, want those of a manifest and a file", e.c.reads)
	}
	if got := e.check(); !slices.Equal(got, []string{"b1", "b2"}) {
		t.Errorf("listed: %v", got)
	}
	if left, err := e.dir().Unfinished(t.Context()); len(left) > 0 || err != nil {
		t.Errorf("unfinished: %v, %v", left, err)
	}
	b, err := e.dir().Find(t.Context(), "b2")
	if err != nil || b.Created.UnixMilli() != 1000 || !slices.Equal(b.Tables, []string{"t"}) || b.Bytes == 0 || len(b.Files) != 4 {
		t.Errorf("found %+v, %v", b, err)
	}
	if _, err := e.dir().Find(t.Context(), "../b2"); !errors.Is(err, ErrNoBackup) {
		t.Errorf("an id with a path: %v", err)
	}
	if _, err := Create(e.fs, "/elsewhere/backups", nil); err == nil {
		t.Error("a directory is created below one that does not exist")
	}
}

// TestSelection: of a backup of several tables, only the files of the selected ones are read and uploaded, with a manifest of those. A selection that fails
// leaves nothing.
func TestSelection(t *testing.T) { withKeys(t, testSelection) }

func testSelection(t *testing.T, newEnv func(*testing.T) *env) {
	e := newEnv(t)
	e.mustCopy(e.c.add("b1", "manifest of two", "one", "two", "three"))
	two := e.c.backups["b1"][2].ID
	p := &Progress{}
	_, err := e.dir().Import(t.Context(), e.c, "b1", func(manifest io.ReaderAt, size int64, w io.Writer) (map[string]bool, error) {
		all, err := io.ReadAll(io.NewSectionReader(manifest, 0, size))
		if err != nil || string(all) != "manifest of two" {
			t.Errorf("selected from %q, %v", all, err)
		}
		_, err = w.Write([]byte("manifest of one"))
		return map[string]bool{two: true}, err
	}, p)
	if err != nil || len(e.c.imported) != 1 || string(e.c.imported[two]) != "two" || string(e.c.manifest) != "manifest of one" || len(e.c.staged) != 0 {
		t.Errorf("imported %q with manifest %q, left %d, %v", e.c.imported, e.c.manifest, len(e.c.staged), err)
	}
	if want := int64(len("manifest of two") + len("two")); p.Total() != want || p.Done() != want {
		t.Errorf("progress %d of %d, want %d", p.Done(), p.Total(), want)
	}
	want := errors.New("no such table")
	_, err = e.dir().Import(t.Context(), e.c, "b1", func(io.ReaderAt, int64, io.Writer) (map[string]bool, error) { return nil, want }, p)
	if !errors.Is(err, want) || len(e.c.staged) != 0 {
		t.Errorf("a selection that fails: %v, left %d", err, len(e.c.staged))
	}
}

// TestLimit: a copy, a verification and an import of 4 MiB each last 3 s at 1 MiB/s, after the first MiB.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		b, began := e.c.add("b1", strings.Repeat("four", 1<<20)), time.Now()
		d := e.dir()
		lasted := func(what string, err error) {
			if took := time.Since(began); err != nil || took < 2900*time.Millisecond || took > 4*time.Second {
				t.Errorf("%s lasted %v: %v", what, took, err)
			}
			began = time.Now()
		}
		d.Limit(1 << 20)
		_, err := d.Copy(t.Context(), e.c, b, nil, &Progress{})
		lasted("the copy", err)
		d.Limit(1 << 20)
		lasted("the verification", d.Verify(t.Context(), []string{"b1"}, &Progress{}, func(_ string, err *CorruptError) { t.Error(err) }))
		d.Limit(1 << 20)
		_, err = d.Import(t.Context(), e.c, "b1", nil, &Progress{})
		lasted("the import", err)
	})
}

// TestKilledCopies (BD1, BD2) cuts the power at each change of the directory, and continues the copy. In between nothing is listed that is
// not whole, and a copy that the process alone has survived reads no object twice.
func TestKilledCopies(t *testing.T) { withKeys(t, testKilledCopies) }

func testKilledCopies(t *testing.T, newEnv func(*testing.T) *env) {
	seed := testseed.New(t)
	for _, power := range []bool{false, true} {
		for cut, done := int64(1), false; !done; cut++ {
			e := newEnv(t)
			e.mustCopy(e.c.add("b1", "manifest 1", "one", "two"))
			b := e.c.add("b2", "manifest 2", "two", "three", "four")
			e.c.reads = 0
			from := e.fs.Ops()
			e.fs.SetHook(func(op vfs.Op) error {
				if op.N >= from+cut {
					return vfs.ErrPowerCut
				}
				return nil
			})
			done = e.copy(b) == nil && e.fs.Ops() < from+cut
			e.fs.SetHook(nil)
			if e.fs.ReleaseLocks(); power {
				e.fs = e.fs.Crash(rand.New(rand.NewPCG(seed, uint64(cut))))
			}
			if got := e.check(); !slices.Contains(got, "b1") || len(got) == 1 && done {
				t.Fatalf("after a cut at change %d there are %v", cut, got)
			}
			e.mustCopy(b)
			if got := e.check(); len(got) != 2 {
				t.Fatalf("after a cut at change %d and another copy there are %v", cut, got)
			}
			if _, err := e.dir().Delete(t.Context(), "b1"); err != nil {
				t.Fatal(err)
			}
			if got := e.check(); !slices.Equal(got, []string{"b2"}) {
				t.Fatalf("after the deletion of b1 there are %v", got)
			}
		}
	}
}

// TestFullDisk (BD1, BD2): a copy for which a change of the directory fails, one or all from then on, as on a full disk, fails or is whole, also after
// a power cut. It lists nothing that is not, and succeeds when there is space.
func TestFullDisk(t *testing.T) {
	seed := testseed.New(t)
	for _, once := range []bool{false, true} {
		for cut, done := int64(1), false; !done; cut++ {
			e := newEnv(t)
			e.mustCopy(e.c.add("b1", "manifest 1", "one", "two"))
			b := e.c.add("b2", "manifest 2", "two", "three", "four")
			from := e.fs.Ops()
			e.fs.SetHook(func(op vfs.Op) error {
				if op.N == from+cut || op.N > from+cut && !once {
					return syscall.ENOSPC
				}
				return nil
			})
			err := e.copy(b)
			done = e.fs.Ops() < from+cut
			e.fs.SetHook(nil)
			e.fs.ReleaseLocks()
			e.fs = e.fs.Crash(rand.New(rand.NewPCG(seed, uint64(cut)))) // an fsync that failed has made nothing durable
			if got := e.check(); !slices.Contains(got, "b1") || err == nil && len(got) != 2 {
				t.Fatalf("without space from change %d on (once: %v): %v, and there are %v", cut, once, err, got)
			}
			e.mustCopy(b)
			if got := e.check(); len(got) != 2 {
				t.Fatalf("with space again after change %d there are %v", cut, got)
			}
		}
	}
}

// interrupt copies all files of a backup but the last, which ends early.
func (e *env) interrupt(b *client.Backup) {
	e.t.Helper()
	d, files := e.dir(), e.c.backups[b.ID]
	last := sourceEnd{e.c, files[len(files)-1].ID, func() {
		for {
			if all, err := d.readPartial(e.t.Context(), b.ID); err != nil || len(all) == len(files)-1 {
				return
			}
			runtime.Gosched()
		}
	}}
	if _, err := d.Copy(e.t.Context(), last, b, nil, &Progress{}); err == nil {
		e.t.Fatal("a file that ends early is copied")
	}
}

// sourceEnd has a file that ends early, after a function.
type sourceEnd struct {
	*cluster
	id    string
	after func()
}

func (s sourceEnd) Read(ctx context.Context, id string, f *client.BackupFile, p []byte, off int64) (int, error) {
	if f.ID == s.id {
		s.after()
		return 0, nil
	}
	return s.cluster.Read(ctx, id, f, p, off)
}

// TestResume (BD2): a copy that the cluster interrupts continues with the files that are missing.
func TestResume(t *testing.T) { withKeys(t, testResume) }

func testResume(t *testing.T, newEnv func(*testing.T) *env) {
	e := newEnv(t)
	b := e.c.add("b1", "manifest 1", "one", "two", "three")
	e.interrupt(b)
	if got := e.check(); len(got) != 0 {
		t.Errorf("listed: %v", got)
	}
	e.c.reads = 0
	e.mustCopy(b)
	if e.c.reads != 1 {
		t.Errorf("%d reads, want that of the last file", e.c.reads)
	}
	e.check()
}

// TestDelete (BD3): a deletion keeps what other backups and unfinished copies need. Cut at each change, it leaves whole backups, and the next
// one frees what is left.
func TestDelete(t *testing.T) { withKeys(t, testDelete) }

func testDelete(t *testing.T, newEnv func(*testing.T) *env) {
	seed := testseed.New(t)
	for cut, done := int64(1), false; !done; cut++ {
		e := newEnv(t)
		e.mustCopy(e.c.add("b1", "manifest 1", "one", "two"))
		e.mustCopy(e.c.add("b2", "manifest 2", "two", "three"))
		e.mustCopy(e.c.add("b3", "manifest 3"))
		b4 := e.c.add("b4", "manifest 4", "four")
		e.interrupt(b4)
		from := e.fs.Ops()
		e.fs.SetHook(func(op vfs.Op) error {
			if op.N >= from+cut {
				return vfs.ErrPowerCut
			}
			return nil
		})
		_, err := In(&directory{e.fs, "/nfs/backups"}, e.key).Delete(t.Context(), "b1")
		done = err == nil
		e.fs.SetHook(nil)
		e.fs = e.fs.Crash(rand.New(rand.NewPCG(seed, uint64(cut))))
		if got := e.check(); !slices.Contains(got, "b2") || !slices.Contains(got, "b3") {
			t.Fatalf("after a cut at change %d there are %v", cut, got)
		}
		if _, err := e.dir().Delete(t.Context(), "b3"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.dir().Delete(t.Context(), "b1"); err != nil && !errors.Is(err, ErrNoBackup) {
			t.Fatal(err)
		}
		if got := e.objects(); got != 3 && got != 3+1 { // that of b4 may not have been durable
			t.Fatalf("after a cut at change %d and other deletions there are %d objects", cut, got)
		}
	}
}

// TestDeleteKeepsUnfinished (BD3): a deletion keeps what an unfinished copy has stored, and that copy can be deleted, too.
func TestDeleteKeepsUnfinished(t *testing.T) {
	e := newEnv(t)
	e.mustCopy(e.c.add("b1", "manifest 1", "one"))
	b2 := e.c.add("b2", "manifest 2", "one", "two")
	e.interrupt(b2)
	if freed, err := e.dir().Delete(t.Context(), "b1"); err != nil || freed.Objects != 1 || freed.Bytes != int64(len("manifest 1")) {
		t.Errorf("the first deletion frees %+v, %v", freed, err)
	}
	e.c.reads = 0
	e.mustCopy(b2)
	if e.c.reads != 1 {
		t.Errorf("%d reads, want that of the last file", e.c.reads)
	}
	b3 := e.c.add("b3", "manifest 3", "three")
	e.interrupt(b3)
	if freed, err := e.dir().Delete(t.Context(), "b3"); err != nil || freed.Objects != 1 {
		t.Errorf("the second deletion frees %+v, %v", freed, err)
	}
	if got := e.check(); !slices.Equal(got, []string{"b2"}) {
		t.Errorf("listed: %v", got)
	}
}

// objects returns the number of objects.
func (e *env) objects() (n int) {
	dirs, err := e.fs.ReadDir("/nfs/backups/objects")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, dir := range dirs {
		names, err := e.fs.ReadDir("/nfs/backups/objects/" + dir)
		if err != nil {
			e.t.Fatal(err)
		}
		n += len(names)
	}
	return n
}

// TestBusy: while a copy is at work, a deletion and another copy are refused, and do not disturb it.
func TestBusy(t *testing.T) {
	e := newEnv(t)
	e.mustCopy(e.c.add("b0", "manifest 0", "one"))
	b := e.c.add("b1", "manifest 1", "one", "two")
	d, busy := e.dir(), &BusyError{}
	refused := sourceFunc{e.c, func() {
		if _, err := d.Delete(e.t.Context(), "b0"); !errors.As(err, &busy) {
			t.Errorf("a deletion meanwhile: %v", err)
		}
		if err := e.copy(e.c.add("b2", "manifest 2")); !errors.As(err, &busy) {
			t.Errorf("another copy meanwhile: %v", err)
		}
	}}
	if _, err := d.Copy(t.Context(), refused, b, nil, &Progress{}); err != nil {
		t.Fatal(err)
	}
	if got := e.check(); !slices.Equal(got, []string{"b0", "b1"}) {
		t.Errorf("listed: %v", got)
	}
}

// sourceFunc calls a function before it lists files.
type sourceFunc struct {
	*cluster
	f func()
}

func (s sourceFunc) Files(ctx context.Context, id string, each func(*client.BackupFile) error) error {
	s.f()
	return s.cluster.Files(ctx, id, each)
}

// change changes a file.
func (e *env) change(name string, change func(b []byte) []byte) {
	e.t.Helper()
	f, err := e.fs.Open(name)
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		e.t.Fatal(err)
	}
	b := make([]byte, size)
	_, _ = f.ReadAt(b, 0)
	b = change(b)
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Truncate(int64(len(b)))); err != nil {
		e.t.Fatal(err)
	}
}

// TestDamage (BD3, BD4) changes each file of a directory, at each byte or a random one, cuts it off, and removes it. Damage is found with the
// name of the file, by Verify and by an import, which leaves nothing. Nothing is deleted while a backup cannot be read.
func TestDamage(t *testing.T) { withKeys(t, testDamage) }

func testDamage(t *testing.T, newEnv func(*testing.T) *env) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	e := newEnv(t)
	e.mustCopy(e.c.add("b1", "manifest 1", "one", "two"))
	e.mustCopy(e.c.add("b0", "manifest 0"))
	b, err := e.dir().Find(t.Context(), "b1")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{e.dir().store.Location(manifestName("b1"))}
	for i := range b.Files {
		names = append(names, e.dir().store.Location(objectName(b.Files[i].SHA256)))
	}
	whole := e.fs
	for _, name := range names {
		for what, change := range map[string]func(b []byte) []byte{
			"changed": func(b []byte) []byte { b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(127)); return b },
			"cut":     func(b []byte) []byte { return b[:rng.IntN(len(b)-1)] },
			"longer":  func(b []byte) []byte { return append(b, 'x') },
			"empty":   func([]byte) []byte { return nil },
		} {
			for range 100 {
				e.fs = whole.Crash(nil)
				e.change(name, change)
				e.damaged(what, name)
			}
		}
	}
	for _, name := range names[1:] {
		e.fs = whole.Crash(nil)
		if err := e.fs.Remove(name); err != nil {
			t.Fatal(err)
		}
		e.damaged("removed", name)
		e.mustCopy(e.c.add("b1")) // the cluster still has it
		e.check()
	}
}

// damaged checks that the damage of a file of b1 is found.
func (e *env) damaged(what, name string) {
	e.t.Helper()
	d, found := e.dir(), false
	names := func(err error) bool {
		var corrupt *CorruptError
		var newer *FormatError
		var key *KeyError
		return errors.As(err, &corrupt) && corrupt.File == name || errors.As(err, &newer) && newer.File == name || errors.As(err, &key) && key.File == name
	}
	err := d.Verify(e.t.Context(), []string{"b1"}, &Progress{}, func(_ string, err *CorruptError) { found = found || names(err) })
	found = found || names(err)
	_, importErr := d.Import(e.t.Context(), e.c, "b1", nil, &Progress{})
	if found != names(importErr) || !found && !e.imported("b1") { // bytes that mean nothing may change
		e.t.Fatalf("%s %s: verified with %v, %v, imported with %v", what, name, found, err, importErr)
	}
	if len(e.c.staged) > 0 {
		e.t.Fatalf("an import that failed leaves %d staged blobs", len(e.c.staged))
	}
	before := e.objects()
	_, err = d.Find(e.t.Context(), "b1")
	if _, deleteErr := d.Delete(e.t.Context(), "b0"); names(err) == (deleteErr == nil) || names(err) && e.objects() != before {
		e.t.Fatalf("with %s %s a deletion ends with %v", what, name, deleteErr)
	}
}

// TestHostileManifests (BD4): manifests that are no manifests are errors that name them.
func TestHostileManifests(t *testing.T) {
	file := func(b *Backup) []byte {
		raw, err := b.encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	good := File{ID: strings.Repeat("0", fileIDDigits), Check: strings.Repeat("0", checkDigits), SHA256: strings.Repeat("0", sha256Digits)}
	path, negative := good, good
	path.SHA256, negative.Bytes = "../../../../"+strings.Repeat("a", sha256Digits-12), -1
	for what, raw := range map[string][]byte{
		"no file":         file(&Backup{ID: "b"}),
		"another id":      file(&Backup{ID: "c", Files: []File{good}}),
		"a path":          file(&Backup{ID: "b", Files: []File{path}}),
		"a negative size": file(&Backup{ID: "b", Files: []File{negative}}),
		"a file twice":    file(&Backup{ID: "b", Files: []File{good, good}}),
		"null":            []byte("null"),
		"depth":           []byte(`{"format":1,"backup":` + strings.Repeat("[", 1<<20)),
		"two values":      append(file(&Backup{ID: "b", Files: []File{good}}), '{', '}'),
	} {
		var corrupt *CorruptError
		if b, err := decode(raw, "b", "b.json", nil); !errors.As(err, &corrupt) || corrupt.File != "b.json" {
			t.Errorf("%s: %+v, %v", what, b, err)
		}
	}
	var newer *FormatError
	if _, err := decode([]byte(`{"format":2,"anything":[]}`), "b", "b.json", nil); !errors.As(err, &newer) || newer.Format != 2 {
		t.Errorf("a later format: %v", err)
	}
	if _, err := decode(file(&Backup{ID: "b", Files: []File{good}}), "b", "b.json", nil); err != nil {
		t.Errorf("a manifest: %v", err)
	}
}

// TestGolden: files are written as the specification shows, and as former versions did.
func TestGolden(t *testing.T) {
	b := &Backup{ID: "20261127-194512-3f9a01", Tables: []string{"web"}, Tablets: 1, Bytes: 4, Files: []File{{
		ID: "3f9c0a5e8d7b41f2a6c4e1d09b8a7c65", Bytes: 4, Check: "9a3b00f1", SHA256: (*Key)(nil).sum([]byte("stele"))}}}
	const file = `{"id":"3f9c0a5e8d7b41f2a6c4e1d09b8a7c65","bytes":4,"check":"9a3b00f1","sha256":"` + goldenHash + `"}`
	const inner = `{"id":"20261127-194512-3f9a01","created":"0001-01-01T00:00:00Z","copied":"0001-01-01T00:00:00Z","tables":["web"],` +
		`"tablets":1,"bytes":4,"files":[` + file + `]}`
	raw, err := b.encode(nil)
	if want := `{"format":1,"sha256":"` + goldenSum + `","backup":` + inner + "}\n"; err != nil || string(raw) != want {
		t.Errorf("a backup is written as\n%s, want\n%s, %v", raw, want, err)
	}
	line, err := b.Files[0].line(nil)
	if want := file + " " + goldenCRC + "\n"; err != nil || string(line) != want {
		t.Errorf("a file is written as\n%s, want\n%s, %v", line, want, err)
	}
}

const (
	goldenHash = "13d7643eb53d03476a6a6a48253810506ce74bc32507360fbb9982c997a383d6"
	goldenSum  = "aee6c3134c5f0512cddeb96636c84823b30d85bbf6fda223bd6e0ebbfc9d9c5e"
	goldenCRC  = "8654f033"
)
