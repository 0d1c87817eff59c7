package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/raftmeta/api"
)

// goldenHeader is the header of the worked example in doc.go.
const goldenHeader = `
	53 54 45 4c 45 53 4e 46  00 00 00 01  00 00 00 0e  ef d9 16 f4
	95 01 07 02 01 91 93 00 a2 6e 31 a2 6e 31`

var goldenMembers = raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "n1", Address: "n1"}}}

// takeSnapshot stores ns, as of the previous command, as the snapshot at index.
func takeSnapshot(s *Snapshots, index uint64, ns *fsm.Namespace) error {
	sink, err := s.Create(1, index, 2, goldenMembers, 1, nil)
	if err != nil {
		return err
	}
	if err := fsm.WriteSnapshot(sink, ns, index-1); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return nil
}

// exampleNamespace has the state of the worked example in doc.go.
func exampleNamespace() *fsm.Namespace {
	ns := fsm.NewNamespace()
	ns.Apply(4, 2, &fsm.Command{Op: fsm.OpSet, Path: "/cluster", Data: []byte{0xca, 0xfe}})
	ns.Apply(5, 2, &fsm.Command{Op: fsm.OpOpenSession, Name: "n1", Duration: 2 * time.Second})
	ns.Apply(6, 2, &fsm.Command{Op: fsm.OpAcquire, Session: 5, Path: "/master", Mode: api.Exclusive, Duration: time.Second})
	return ns
}

// namespaceOf returns a namespace of n files of 100 bytes.
func namespaceOf(n int) *fsm.Namespace {
	ns := fsm.NewNamespace()
	for i := range n {
		ns.Apply(uint64(i+1), 1, &fsm.Command{Op: fsm.OpSet, Path: fmt.Sprintf("/d%d/file-%d", i/1000, i), Data: bytes.Repeat([]byte("x"), 100)})
	}
	return ns
}

// streamOf returns the snapshot stream of ns.
func streamOf(tb testing.TB, ns *fsm.Namespace, applied uint64) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := fsm.WriteSnapshot(&b, ns, applied); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func newSnapshotStore(tb testing.TB, fs vfs.FS) *Snapshots {
	tb.Helper()
	if err := errors.Join(fs.MkdirAll("/m"), fs.SyncDir("/")); err != nil {
		tb.Fatal(err)
	}
	s, err := OpenSnapshots(fs, "/m/snapshots", func(error) {}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func readAll(tb testing.TB, fs vfs.FS, name string) []byte {
	tb.Helper()
	f, err := fs.OpenRead(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		tb.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		tb.Fatal(err)
	}
	return b
}

func writeAll(tb testing.TB, fs vfs.FS, name string, b []byte) {
	tb.Helper()
	if err := fs.Remove(name); err != nil {
		tb.Fatal(err)
	}
	f, err := fs.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}

func TestSnapshotFileGolden(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	s := newSnapshotStore(t, mem)
	if err := takeSnapshot(s, 7, exampleNamespace()); err != nil {
		t.Fatal(err)
	}
	metas, err := s.List()
	if err != nil || len(metas) != 1 {
		t.Fatalf("list: %v, %v", metas, err)
	}
	m := metas[0]
	want := append(wiretest.Unhex(t, goldenHeader), streamOf(t, exampleNamespace(), 6)...)
	if got := readAll(t, mem, s.file(m.ID)); !bytes.Equal(got, want) {
		t.Errorf("file:\ngot  % x\nwant % x", got, want)
	}
	if m.Index != 7 || m.Term != 2 || m.ConfigurationIndex != 1 || m.Version != 1 ||
		fmt.Sprint(m.Configuration) != fmt.Sprint(goldenMembers) ||
		m.Size != int64(len(streamOf(t, exampleNamespace(), 6))) {
		t.Errorf("meta: %+v", m)
	}
	if applied, err := s.Check(t.Context()); err != nil || applied != 6 {
		t.Errorf("check: %d, %v", applied, err)
	}
}

// TestSnapshotFileEveryByteCounts flips each bit of a snapshot file: each is found, with file and
// offset.
func TestSnapshotFileEveryByteCounts(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	s := newSnapshotStore(t, mem)
	if err := takeSnapshot(s, 7, exampleNamespace()); err != nil {
		t.Fatal(err)
	}
	ids, _ := s.IDs()
	file := s.file(ids[0])
	whole := readAll(t, mem, file)
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			writeAll(t, mem, file, bad)
			_, err := s.Check(t.Context())
			var c *CorruptError
			if !errors.As(err, &c) || c.File != file || c.Offset > int64(i) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
		writeAll(t, mem, file, whole[:i])
		if _, err := s.Check(t.Context()); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at byte %d: %v", i, err)
		}
	}
}

func TestSnapshotStoreKeepsTwo(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	s := newSnapshotStore(t, mem)
	for i := range uint64(5) {
		if err := takeSnapshot(s, 10+i, namespaceOf(int(i))); err != nil {
			t.Fatal(err)
		}
	}
	sink, err := s.Create(1, 99, 2, goldenMembers, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	names, _ := mem.ReadDir(s.dir)
	metas, err := s.List()
	if len(names) != 2 || err != nil || len(metas) != 1 || metas[0].Index != 14 {
		t.Errorf("%q, %v, %v", names, metas, err)
	}
}

// TestSnapshotStoreCrash loses power at each operation of the second snapshot: one of the two is
// complete, and the second once Close has returned.
func TestSnapshotStoreCrash(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	for n := int64(1); ; n++ {
		mem := vfs.NewMem(vfs.MemOptions{})
		s := newSnapshotStore(t, mem)
		if err := takeSnapshot(s, 10, namespaceOf(10)); err != nil {
			t.Fatal(err)
		}
		first := mem.Ops()
		mem.SetHook(func(op vfs.Op) error {
			if op.N >= first+n {
				return vfs.ErrPowerCut
			}
			return nil
		})
		err := takeSnapshot(s, 20, namespaceOf(2000))
		after := mem.Crash(rng)
		s, openErr := OpenSnapshots(after, "/m/snapshots", func(error) {}, nil)
		if openErr != nil {
			t.Fatal(openErr)
		}
		applied, checkErr := s.Check(t.Context())
		if checkErr != nil || applied != 9 && applied != 19 || err == nil && applied != 19 {
			t.Fatalf("power cut at operation %d (%v): found command %d, %v", n, err, applied, checkErr)
		}
		if err == nil {
			return
		}
	}
}

// TestSnapshotSyncFailureIsFatal fails each sync of a snapshot.
func TestSnapshotSyncFailureIsFatal(t *testing.T) {
	broken := errors.New("medium error")
	for _, kind := range []vfs.OpKind{vfs.OpSync, vfs.OpSyncDir} {
		mem := vfs.NewMem(vfs.MemOptions{})
		s := newSnapshotStore(t, mem)
		var fatal error
		s.onFail = func(err error) { fatal = err }
		mem.SetHook(func(op vfs.Op) error {
			if op.Kind == kind {
				return broken
			}
			return nil
		})
		err := takeSnapshot(s, 20, namespaceOf(5))
		var d *DiskError
		if !errors.Is(err, broken) || !errors.As(fatal, &d) || !errors.Is(fatal, broken) {
			t.Errorf("%v fails: %v; reported %v", kind, err, fatal)
		}
	}
}

// TestSnapshotDiskFullIsNotFatal fills the disk: the snapshot fails, its file is removed, and the
// next one succeeds.
func TestSnapshotDiskFullIsNotFatal(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{Capacity: 100 << 10})
	s := newSnapshotStore(t, mem)
	s.onFail = func(err error) { t.Errorf("fatal: %v", err) }
	if err := takeSnapshot(s, 20, namespaceOf(5000)); !vfs.IsDiskFull(err) {
		t.Errorf("got %v", err)
	}
	if names, _ := mem.ReadDir(s.dir); len(names) != 0 {
		t.Errorf("left %q", names)
	}
	if err := takeSnapshot(s, 20, namespaceOf(5)); err != nil {
		t.Error(err)
	}
}

func TestSnapshotStoreRemovesUnfinished(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	s := newSnapshotStore(t, mem)
	if _, err := s.Create(1, 9, 2, goldenMembers, 1, nil); err != nil {
		t.Fatal(err)
	}
	s = newSnapshotStore(t, mem)
	if names, _ := mem.ReadDir(s.dir); len(names) != 0 {
		t.Errorf("left %q", names)
	}
	if _, _, err := s.Open("none"); err == nil {
		t.Error("opened a snapshot that is not there")
	}
	writeAllNew(t, mem, filepath.Join(s.dir, "x.snap"), []byte("no snapshot at all, but long enough"))
	if _, err := s.List(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a foreign file: %v", err)
	}
}

func writeAllNew(tb testing.TB, fs vfs.FS, name string, b []byte) {
	tb.Helper()
	f, err := fs.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	writeAll(tb, fs, name, b)
}

// TestSinkRejectsCorruptStream flips each bit of a stream that is written to a snapshot file. The file
// does not get its final name, and existing snapshots remain.
func TestSinkRejectsCorruptStream(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	s := newSnapshotStore(t, mem)
	for index := range uint64(2) {
		if err := takeSnapshot(s, 5+index, exampleNamespace()); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := mem.ReadDir(s.dir)
	send := func(b []byte) error {
		sink, err := s.Create(1, 9, 2, goldenMembers, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			n := min(len(b), 7)
			if _, err := sink.Write(b[:n]); err != nil {
				return errors.Join(err, sink.Cancel())
			}
			b = b[n:]
		}
		return sink.Close()
	}
	whole := streamOf(t, exampleNamespace(), 6)
	for i := range whole {
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << bit
			if err := send(bad); err == nil {
				t.Fatalf("bit %d of byte %d changed: named", bit, i)
			}
		}
		if err := send(whole[:i]); !errors.Is(err, fsm.ErrBadSnapshot) {
			t.Fatalf("%d bytes of %d: %v", i, len(whole), err)
		}
	}
	if after, _ := mem.ReadDir(s.dir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("had %q, has %q", before, after)
	}
	if err := send(whole); err != nil {
		t.Error(err)
	}
}

// TestDocShowsTheGoldenBytes checks that the examples in doc.go are those of the golden tests.
func TestDocShowsTheGoldenBytes(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	doc := squeeze(strings.ReplaceAll(string(b), "//", ""))
	for _, example := range []string{goldenHeader} {
		if !strings.Contains(doc, squeeze(example)) {
			t.Errorf("doc.go does not have %s", example)
		}
	}
}
