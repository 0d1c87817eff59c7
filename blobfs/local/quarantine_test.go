package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
)

// quarantineStore returns a store with two folders and extents of one chunk.
func quarantineStore(t *testing.T, fs vfs.FS, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Folders: []string{"/d", "/e"}, FS: fs, ExtentBytes: ChunkBytes, LogExtentsReady: -1, ReserveBytes: -1}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// putBlob writes a blob of two extents with holder lists.
func putBlob(t *testing.T, s *Store, seed byte) Handle {
	t.Helper()
	ctx := context.Background()
	w, err := s.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(bytes.Repeat([]byte{seed}, ChunkBytes+1000))
	h, err := w.Seal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range h.Extents {
		if err := s.SetHolders(ctx, ExtentID{h.ID, x.Index}, Holders{Epoch: 3, Nodes: []string{"n1", "n2"}}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func quarantineBlob(t *testing.T, s *Store, h Handle, round uint64) {
	t.Helper()
	for _, x := range h.Extents {
		if err := s.QuarantineExtent(context.Background(), ExtentID{h.ID, x.Index}, round); err != nil {
			t.Fatal(err)
		}
	}
}

func readsAs(t *testing.T, s *Store, h Handle, seed byte) {
	t.Helper()
	r, err := s.OpenBlob(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := make([]byte, h.Length)
	if _, err := r.ReadAt(p, 0); err != nil || !bytes.Equal(p, bytes.Repeat([]byte{seed}, len(p))) {
		t.Errorf("blob reads otherwise: %v", err)
	}
}

func filesOf(t *testing.T, fs vfs.FS) (names []string) {
	t.Helper()
	for _, d := range []string{"/d", "/e"} {
		all, err := fs.ReadDir(filepath.Join(d, blobsDir))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, all...)
	}
	slices.Sort(names)
	return names
}

// The names are those specified in doc.go.
func TestGoldenQuarantineName(t *testing.T) {
	name := exampleID.String() + ".0of1"
	want := name + ".q7-1767225600"
	if got := name + quarantineSuffix(7, time.Unix(1767225600, 0)); got != want {
		t.Errorf("name is %s, want %s", got, want)
	}
	if base, round, since, ok := parseQuarantineName(want); !ok || base != name || round != 7 || since.Unix() != 1767225600 {
		t.Errorf("parsed as %s, %d, %v, %v", base, round, since, ok)
	}
	for _, bad := range []string{name, name + ".q", name + ".q7", name + ".q7-", name + ".q07-1", name + ".q7-+1", name + ".q-7", name + ".q7-1.tmp", name + ".q7-1x"} {
		if _, _, _, ok := parseQuarantineName(bad); ok {
			t.Errorf("%s is a name", bad)
		}
	}
}

// B11. Also: an extent in quarantine is seen only by calls about the quarantine, stays there after
// a restart, and can be restored.
func TestQuarantine(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem(vfs.MemOptions{})
	s := quarantineStore(t, fs)
	a, b, c := putBlob(t, s, 1), putBlob(t, s, 2), putBlob(t, s, 3)
	before := filesOf(t, fs)
	quarantineBlob(t, s, a, 5)
	quarantineBlob(t, s, b, 6)
	for range 2 { // the second time after a restart
		x := ExtentID{Blob: a.ID}
		if len(s.Blobs()) != 1 || s.Extents() != 2 || len(s.ListExtents(ExtentID{Index: -1}, 100)) != 2 {
			t.Errorf("blobs %v", s.Blobs())
		}
		if _, err := s.StatExtent(ctx, x); !errors.Is(err, ErrNoExtent) {
			t.Errorf("stat: %v", err)
		}
		if _, err := s.CreateExtent(ctx, x, 0); !errors.Is(err, ErrExtentExists) {
			t.Errorf("create: %v", err)
		}
		if err := s.SetHolders(ctx, x, Holders{Epoch: 9}); !errors.Is(err, ErrNoExtent) {
			t.Errorf("set holders: %v", err)
		}
		all := s.Quarantined(ExtentID{Index: -1}, 100)
		if len(all) != 4 || len(s.Quarantined(all[1].ID, 1)) != 1 {
			t.Fatalf("quarantined: %+v", all)
		}
		for _, q := range all {
			if q.Round != map[ID]uint64{a.ID: 5, b.ID: 6}[q.ID.Blob] || q.Holders.Epoch != 3 || time.Since(q.Since) > 2*time.Minute || q.FileBytes < q.Length {
				t.Errorf("quarantined: %+v", q)
			}
		}
		st := s.Stats()
		if n := st.Folders[0].QuarantineFiles + st.Folders[1].QuarantineFiles; n != 4 || st.Folders[0].QuarantineBytes+st.Folders[1].QuarantineBytes < 2*ChunkBytes {
			t.Errorf("stats: %+v", st)
		}
		if err := s.Verify(ctx, func(p Problem) { t.Error(p) }); err != nil {
			t.Error(err)
		}
		if s.Alarm() != "" {
			t.Errorf("alarm: %s", s.Alarm())
		}
		s.Close()
		s = quarantineStore(t, fs)
	}

	wrong := a
	wrong.Extents = slices.Clone(a.Extents)
	wrong.Extents[0].CRC++
	if _, err := s.OpenBlob(ctx, wrong); !errors.Is(err, ErrNoBlob) || s.Alarm() != "" {
		t.Errorf("with a wrong checksum: %v, alarm %q", err, s.Alarm())
	}
	readsAs(t, s, a, 1)
	if !strings.Contains(s.Alarm(), a.ID.String()) || len(s.Quarantined(ExtentID{Index: -1}, 100)) != 2 {
		t.Errorf("alarm %q", s.Alarm())
	}
	s.Close()
	s = quarantineStore(t, fs)
	if !strings.Contains(s.Alarm(), a.ID.String()) {
		t.Errorf("alarm after a restart: %q", s.Alarm())
	}
	if err := s.ClearAlarm(); err != nil || s.Alarm() != "" {
		t.Errorf("clear: %v", err)
	}
	for _, x := range b.Extents {
		if err := s.ReviveExtent(ctx, ExtentID{b.ID, x.Index}); err != nil {
			t.Error(err)
		}
		if err := s.ReviveExtent(ctx, ExtentID{b.ID, x.Index}); !errors.Is(err, ErrNoExtent) {
			t.Errorf("revived twice: %v", err)
		}
	}
	readsAs(t, s, b, 2)
	if x, err := s.StatExtent(ctx, ExtentID{Blob: b.ID}); err != nil || x.Holders.Epoch != 3 {
		t.Errorf("holders %+v, %v", x.Holders, err)
	}
	if after := filesOf(t, fs); !slices.Equal(after, before) || s.Alarm() != "" {
		t.Errorf("files are %v, were %v; alarm %q", after, before, s.Alarm())
	}
	// Removal by the sweep, and by deletion of the blob.
	quarantineBlob(t, s, c, 8)
	quarantineBlob(t, s, b, 8)
	if err := s.DropQuarantined(ctx, ExtentID{a.ID, 0}); !errors.Is(err, ErrNoExtent) {
		t.Errorf("drop of what is not in quarantine: %v", err)
	}
	for _, x := range c.Extents {
		if err := s.DropQuarantined(ctx, ExtentID{c.ID, x.Index}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Delete(ctx, b.ID); err != nil {
		t.Error(err)
	}
	if left := filesOf(t, fs); len(left) != 2 || !strings.HasPrefix(left[0], a.ID.String()) {
		t.Errorf("left: %v", left)
	}
}

// A read succeeds at any time during a quarantine.
func TestQuarantineDuringReads(t *testing.T) {
	ctx := context.Background()
	s := quarantineStore(t, vfs.NewMem(vfs.MemOptions{}))
	h := putBlob(t, s, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(400) {
			if err := s.QuarantineExtent(ctx, ExtentID{h.ID, int(i % 2)}, i); err != nil && !errors.Is(err, ErrNoExtent) {
				t.Error(err)
			}
		}
	}()
	for range 400 {
		readsAs(t, s, h, 1)
		if _, err := s.StatExtent(ctx, ExtentID{Blob: h.ID}); err != nil && !errors.Is(err, ErrNoExtent) {
			t.Error(err)
		}
	}
	<-done
}

// An extent survives a power loss and a disk failure at any operation, in quarantine or not.
func TestQuarantineCrash(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		fs := vfs.NewMem(vfs.MemOptions{})
		faulty := vfs.NewFaulty(fs)
		s := quarantineStore(t, faulty, func(c *Config) { c.Folders = c.Folders[:1] })
		h := putBlob(t, s, 1)
		fail := rng.IntN(12)
		broken := errors.New("disk is broken")
		faulty.SetHook(func(vfs.Op) error {
			if fail--; fail < 0 {
				return broken
			}
			return nil
		})
		for i := range uint64(4) {
			x := ExtentID{h.ID, rng.IntN(2)}
			if rng.IntN(3) == 0 {
				_ = s.ReviveExtent(ctx, x)
			} else {
				_ = s.QuarantineExtent(ctx, x, i+1)
			}
		}
		s.Close()
		after := fs.Crash(rng)
		s = quarantineStore(t, after, func(c *Config) { c.Folders = c.Folders[:1] })
		t.Logf("seed %d", seed)
		readsAs(t, s, h, 1)
		if n := s.Extents() + len(s.Quarantined(ExtentID{Index: -1}, 10)); n != 2 {
			t.Errorf("%d extents", n)
		}
	}
}

// An extent with one file in quarantine and another one outside, after a crash between two renames,
// is not in quarantine.
func TestQuarantineSplit(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := quarantineStore(t, fs)
	h := putBlob(t, s, 1)
	s.Close()
	for _, name := range filesOf(t, fs) {
		from, to := "/d", "/e"
		if _, _, err := fs.Stat(filepath.Join(from, blobsDir, name)); err != nil {
			from, to = to, from
		}
		b := readFile(t, fs, filepath.Join(from, blobsDir, name))
		f, err := fs.Create(filepath.Join(to, blobsDir, name+".q3-1000"))
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt(b, 0)
		f.Close()
	}
	s = quarantineStore(t, fs)
	if len(s.Quarantined(ExtentID{Index: -1}, 10)) != 0 || s.Extents() != 4 || s.Alarm() != "" {
		t.Errorf("%d extents, quarantined %v", s.Extents(), s.Quarantined(ExtentID{Index: -1}, 10))
	}
	readsAs(t, s, h, 1)
}

// In a full folder the oldest extents are removed first, while that is permitted, and only those that
// are confirmed and old enough.
func TestQuarantineFreesSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		fs := vfs.NewMem(vfs.MemOptions{})
		s := quarantineStore(t, fs, func(c *Config) { c.Folders, c.QuarantineMin = c.Folders[:1], time.Hour })
		var blobs []Handle
		for i := range 4 {
			h := putBlob(t, s, byte(i))
			quarantineBlob(t, s, h, uint64(i+1))
			for _, x := range h.Extents {
				if i != 1 { // of which only one round knows
					s.ConfirmQuarantined(ExtentID{h.ID, x.Index}, 9)
				}
			}
			blobs = append(blobs, h)
			time.Sleep(25 * time.Minute) // ages 100, 75, 50 and 25 minutes in the end
		}
		used := s.Stats().Folders[0].QuarantineBytes + int64(len(readFile(t, fs, "/d/"+holdersFile)))
		fs.SetCapacity("/d", used+extentFileBytes(ChunkBytes)-10_000)
		if _, err := s.Create(ctx); !errors.Is(err, ErrDiskFull) {
			t.Fatalf("create without a permission to evict: %v", err)
		}
		s.PermitEviction(time.Now().Add(20 * time.Minute))
		w, err := s.Create(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.Abort()
		left := func() (n []int) {
			for _, h := range blobs {
				n = append(n, len(slices.DeleteFunc(s.Quarantined(ExtentID{Index: -1}, 10), func(q QuarantinedExtent) bool { return q.ID.Blob != h.ID })))
			}
			return n
		}
		if got := fmt.Sprint(left()); got != "[1 2 2 2]" && got != "[0 2 2 2]" {
			t.Errorf("left of the blobs: %s", got)
		}
		fs.SetCapacity("/d", 1)
		if _, err := s.Create(ctx); !errors.Is(err, ErrDiskFull) {
			t.Errorf("create: %v", err)
		}
		if got := fmt.Sprint(left()); got != "[0 2 2 2]" {
			t.Errorf("left of the blobs: %s", got)
		}
		time.Sleep(15 * time.Minute)
		s.RaiseAlarm("an extent was in use") // nothing is removed until it is cleared (R12)
		if _, err := s.Create(ctx); !errors.Is(err, ErrDiskFull) {
			t.Errorf("create: %v", err)
		}
		if got := fmt.Sprint(left()); got != "[0 2 2 2]" {
			t.Errorf("left of the blobs during an alarm: %s", got)
		}
		fs.SetCapacity("/d", 1<<30)
		if err := s.ClearAlarm(); err != nil {
			t.Fatal(err)
		}
		fs.SetCapacity("/d", 1)
		time.Sleep(5 * time.Minute)
		if _, err := s.Create(ctx); !errors.Is(err, ErrDiskFull) {
			t.Errorf("create: %v", err)
		}
		if got := fmt.Sprint(left()); got != "[0 2 2 2]" {
			t.Errorf("left of the blobs after the permission: %s", got)
		}
		s.PermitEviction(time.Now().Add(time.Second))
		if _, err := s.Create(ctx); !errors.Is(err, ErrDiskFull) {
			t.Errorf("create: %v", err)
		}
		if got := fmt.Sprint(left()); got != "[0 2 0 2]" {
			t.Errorf("left of the blobs: %s", got)
		}
		s.Close()
	})
}

// A full folder without garbage does not keep garbage in another full folder.
func TestQuarantineFreesSpaceInEachFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{})
		s := quarantineStore(t, fs)
		for i := range byte(8) {
			h := putBlob(t, s, i)
			quarantineBlob(t, s, h, 1)
			for _, x := range h.Extents {
				s.ConfirmQuarantined(ExtentID{h.ID, x.Index}, 2)
			}
		}
		time.Sleep(time.Hour)
		s.PermitEviction(time.Now().Add(time.Hour))
		for _, dir := range []string{"/d", "/e"} {
			if s.quarantineBytes(dir) == 0 {
				t.Fatalf("nothing is in quarantine in %s", dir)
			}
			fs.SetCapacity(dir, 1)
		}
		if _, err := s.Create(t.Context()); !errors.Is(err, ErrDiskFull) {
			t.Errorf("create: %v", err)
		}
		for _, dir := range []string{"/d", "/e"} {
			if n := s.quarantineBytes(dir); n != 0 {
				t.Errorf("%d bytes are left in quarantine in %s", n, dir)
			}
		}
		s.Close()
	})
}

// quarantineBytes returns the bytes in quarantine in a folder.
func (s *Store) quarantineBytes(dir string) (n int64) {
	for _, f := range s.Stats().Folders {
		if f.Path == dir {
			n += f.QuarantineBytes
		}
	}
	return n
}

// A replica in quarantine accepts no appends, can be fenced, and leaves quarantine when it is cut
// or read.
func TestQuarantineLogReplica(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem(vfs.MemOptions{})
	s := quarantineStore(t, fs)
	o := LogOpen{Log: exampleID, Server: "n1", Seq: 1, Epoch: 1, Salt: 7}
	if _, err := s.OpenLogReplica(ctx, o); err != nil {
		t.Fatal(err)
	}
	end := appendReplica(t, s, 1, 0, []byte("hello"))
	cut := LogCut{Log: exampleID, CutRequest: logproto.CutRequest{Seq: 1, Epoch: 2, Length: end}}
	uses := []func() error{
		func() error { return s.CutLog(ctx, cut) },
		func() error {
			_, err := s.ReadLogReplica(ctx, exampleID, 1, 0, end, make([]byte, 100), 0)
			return err
		},
		func() error { return s.RefillLog(ctx, cut, LogSource{Server: "n1", Epoch: 1, Salt: 7}) },
	}
	for i, use := range uses {
		if err := s.QuarantineLogReplica(ctx, exampleID, 1, uint64(i+4)); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = quarantineStore(t, fs)
		if x, err := s.StatLogReplica(exampleID, 1); err != nil || x.QuarantineRound != uint64(i+4) || time.Since(x.QuarantinedSince) > time.Minute {
			t.Errorf("after a restart: %+v, %v", x, err)
		}
		if st, err := s.FenceLog(ctx, exampleID, 2); err != nil || len(st) != 1 || st[0].Length != end || s.Alarm() != "" {
			t.Errorf("fence: %+v, %v; alarm %q", st, err, s.Alarm())
		}
		s.QueueLog(LogAppend{Log: exampleID, Seq: 1, Epoch: 1, Pos: end, Frames: make([]byte, 4096), Trusted: true}, func(_ int64, err error) {
			if err == nil {
				t.Error("it takes an append")
			}
		})
		if err := use(); err != nil {
			t.Errorf("use %d: %v", i, err)
		}
		x, err := s.StatLogReplica(exampleID, 1)
		if err != nil || !x.QuarantinedSince.IsZero() || s.Alarm() == "" {
			t.Errorf("use %d: %+v, %v; alarm %q", i, x, err, s.Alarm())
		}
		if err := s.ClearAlarm(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DropQuarantinedLog(ctx, exampleID, 1); !errors.Is(err, logproto.ErrNoExtent) {
		t.Errorf("drop of what is not in quarantine: %v", err)
	}
	if err := s.QuarantineLogReplica(ctx, exampleID, 1, 9); err != nil {
		t.Fatal(err)
	}
	if err := s.ReviveLogReplica(ctx, exampleID, 1); err != nil || s.Alarm() != "" {
		t.Errorf("revive: %v", err)
	}
	if err := s.QuarantineLogReplica(ctx, exampleID, 1, 10); err != nil {
		t.Fatal(err)
	}
	if err := s.DropQuarantinedLog(ctx, exampleID, 1); err != nil {
		t.Error(err)
	}
	if len(s.LogReplicas()) != 0 {
		t.Errorf("left: %+v", s.LogReplicas())
	}
}

// The lists for a round have what existed before the round began, in quarantine or not.
func TestSweepLists(t *testing.T) {
	ctx := context.Background()
	s := quarantineStore(t, vfs.NewMem(vfs.MemOptions{}))
	old := []Handle{putBlob(t, s, 1), putBlob(t, s, 2), putBlob(t, s, 3)}
	open := func(seq uint64) {
		if _, err := s.OpenLogReplica(ctx, LogOpen{Log: exampleID, Server: "n1", Seq: seq, Epoch: 1, Salt: 7}); err != nil {
			t.Fatal(err)
		}
	}
	open(1)
	s.SetRound(5)
	putBlob(t, s, 4)
	open(2)
	quarantineBlob(t, s, old[1], 4)
	for round, want := range map[uint64]int{5: 6, 6: 8} {
		for _, page := range []int{1, 3, 100} {
			var all []ExtentID
			for after := (ExtentID{Index: -1}); ; {
				part := s.SweepExtents(round, after, page)
				if len(part) == 0 {
					break
				}
				all = append(all, part...)
				after = part[len(part)-1]
			}
			if len(all) != want || !slices.IsSortedFunc(all, compareExtents) {
				t.Errorf("round %d, by %d: %+v", round, page, all)
			}
			for _, x := range all {
				if s.InQuarantine(x) != (x.Blob == old[1].ID) {
					t.Errorf("round %d: %+v", round, x)
				}
			}
		}
		if logs := s.SweepReplicas(round, ID{}, 0, 10); len(logs) != want/2-2 || logs[0].Seq != 1 || logs[0].Server != "n1" {
			t.Errorf("round %d: replicas %+v", round, logs)
		}
	}
}
