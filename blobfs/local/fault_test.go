package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustOpen(t *testing.T, cfg local.Config) *local.Store {
	t.Helper()
	s, err := local.Open(cfg)
	noError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func putBlob(s *local.Store, data []byte) (local.Handle, error) {
	w, err := s.Create(ctx)
	if err != nil {
		return local.Handle{}, err
	}
	if _, err := w.Write(data); err != nil {
		return local.Handle{}, err
	}
	return w.Seal(ctx)
}

func mustRead(t *testing.T, s *local.Store, h local.Handle, want []byte) {
	t.Helper()
	r, err := s.OpenBlob(ctx, h)
	noError(t, err)
	defer r.Close()
	got := make([]byte, r.Size())
	_, err = r.ReadAt(got, 0)
	noError(t, err)
	if !bytes.Equal(got, want) {
		t.Error("blob reads otherwise")
	}
}

func mustReadLog(t *testing.T, s *local.Store, id local.ID, want ...[]byte) {
	t.Helper()
	r, err := s.OpenLog(ctx, id)
	noError(t, err)
	defer r.Close()
	for i := range want {
		p, _, err := r.Next()
		noError(t, err)
		if !bytes.Equal(p, want[i]) {
			t.Errorf("record %d reads otherwise", i)
		}
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("after %d records: %v", len(want), err)
	}
}

// B8: a full disk is reported before anything is written, and freed space is used.
func TestDiskFullBlobs(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{Capacity: 1 << 20})
	cfg := crashConfig(fs, 2)
	cfg.ReserveBytes = 200 << 10
	s := mustOpen(t, cfg)
	data := blobtest.Bytes(1, 60_000)
	var handles []local.Handle
	var err error
	for err == nil {
		var h local.Handle
		if h, err = putBlob(s, data); err == nil {
			handles = append(handles, h)
		}
	}
	if !errors.Is(err, local.ErrDiskFull) || len(handles) < 8 {
		t.Fatalf("after %d blobs: %v", len(handles), err)
	}
	if free, _ := fs.FreeBytes("/"); free < 200<<10 {
		t.Errorf("%d bytes of the reserve are left", free)
	}
	_, err = s.CreateLog(ctx, local.NewID())
	if !errors.Is(err, local.ErrDiskFull) {
		t.Errorf("create log: %v", err)
	}
	if files := countFiles(t, fs, cfg); files != len(handles) {
		t.Errorf("%d files of %d blobs", files, len(handles))
	}
	noError(t, s.Delete(ctx, handles[0].ID))
	if _, err := putBlob(s, data); err != nil {
		t.Errorf("with free space again: %v", err)
	}
	for _, f := range s.Stats().Folders {
		if f.Retired != nil {
			t.Errorf("a full folder was retired: %v", f.Retired)
		}
	}
}

func countFiles(t *testing.T, fs vfs.FS, cfg local.Config) int {
	t.Helper()
	n := 0
	for _, f := range cfg.Folders {
		for _, sub := range []string{"blobs", "logs"} {
			names, err := fs.ReadDir(filepath.Join(f, sub))
			noError(t, err)
			n += len(names)
		}
	}
	return n
}

// A multi-extent blob that meets a full disk leaves no files in any folder.
func TestDiskFullMidway(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{Capacity: 400 << 10})
	cfg := crashConfig(fs, 2)
	s := mustOpen(t, cfg)
	if _, err := putBlob(s, blobtest.Bytes(1, 500_000)); !errors.Is(err, local.ErrDiskFull) {
		t.Fatalf("error %v", err)
	}
	if n := countFiles(t, fs, cfg); n != 0 {
		t.Errorf("%d orphaned files", n)
	}
	data := blobtest.Bytes(2, 200_000)
	h, err := putBlob(s, data)
	noError(t, err)
	mustRead(t, s, h, data)
}

// Another process may fill the disk between check and write. The extent moves to another folder.
func TestDiskFillsUnderTheWriter(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 3)
	s := mustOpen(t, cfg)
	data := blobtest.Bytes(1, 60_000)
	full := ""
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Off > 0 && strings.HasSuffix(op.Name, ".tmp") && (full == "" || strings.HasPrefix(op.Name, full)) {
			full = op.Name[:6]
			return errors.Join(vfs.ErrTorn, syscall.ENOSPC)
		}
		return nil
	})
	h, err := putBlob(s, data)
	noError(t, err)
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Off > 0 && strings.HasSuffix(op.Name, ".tmp") {
			return errors.Join(vfs.ErrTorn, syscall.ENOSPC)
		}
		return nil
	})
	if _, err := putBlob(s, data); !errors.Is(err, local.ErrDiskFull) {
		t.Errorf("with all disks full: %v", err)
	}
	fs.SetHook(nil)
	mustRead(t, s, h, data)
	if n := countFiles(t, fs, cfg); n != 1 {
		t.Errorf("%d files of one blob", n)
	}
}

// A log that cannot get its next extent rejects payloads that do not fit completely, and continues
// later.
func TestDiskFullLog(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{Capacity: 256 << 10})
	cfg := crashConfig(fs, 1)
	s := mustOpen(t, cfg)
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	small, large, huge := blobtest.Bytes(1, 3000), blobtest.Bytes(2, 40_000), blobtest.Bytes(3, 250_000)
	first, err := w.Append(ctx, large)
	noError(t, err)
	if _, err := w.Append(ctx, huge); !errors.Is(err, local.ErrDiskFull) {
		t.Fatalf("huge: %v", err)
	}
	second, err := w.Append(ctx, small)
	noError(t, err)
	if second != first+4096 {
		t.Errorf("position %d after %d: the rejected payload used space", second, first)
	}
	var filled []local.Handle
	for {
		h, err := putBlob(s, small)
		if err != nil {
			break
		}
		filled = append(filled, h)
	}
	// Spares were made for the huge payload; they are used first.
	want := [][]byte{large, small}
	for err == nil {
		if _, err = w.Append(ctx, large); err == nil {
			want = append(want, large)
		}
	}
	if !errors.Is(err, local.ErrDiskFull) {
		t.Fatalf("full: %v", err)
	}
	_, err = w.Append(ctx, small) // still fits the extent at hand
	noError(t, err)
	fs.SetCapacity("/", 2<<20)
	_, err = w.Append(ctx, huge)
	noError(t, err)
	for _, h := range filled {
		noError(t, s.Delete(ctx, h.ID))
	}
	mustReadLog(t, s, w.ID(), append(want, small, huge)...)
}

// B4: a folder whose sync failed is retired; log and blob continue in the other one.
func TestFailingSyncRetiresFolder(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 2))
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	_, err = w.Append(ctx, []byte("one"))
	noError(t, err)
	blob, err := s.Create(ctx)
	noError(t, err)
	data := blobtest.Bytes(1, 500_000) // extents in both folders
	_, err = blob.Write(data[:400_000])
	noError(t, err)

	eio := errors.New("input/output error")
	bad := ""
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Name, "/logs/") && (bad == "" || bad == op.Name[:6]) {
			bad = op.Name[:6]
			return eio
		}
		return nil
	})
	_, err = w.Append(ctx, []byte("two"))
	noError(t, err)
	_, err = w.Append(ctx, []byte("three"))
	noError(t, err)
	_, err = blob.Write(data[400_000:])
	noError(t, err)
	h, err := blob.Seal(ctx)
	noError(t, err)
	for _, f := range s.Stats().Folders {
		if retired := f.Retired != nil; retired != (f.Path[:6] == bad) || (retired && !errors.Is(f.Retired, eio)) {
			t.Errorf("folder %s retired: %v", f.Path, f.Retired)
		}
		if f.Path[:6] == bad && f.BlobFiles != 0 {
			t.Errorf("%d extents counted in the retired folder", f.BlobFiles)
		}
	}

	after := fs.Crash(nil)
	s2 := mustOpen(t, crashConfig(after, 2))
	mustRead(t, s2, h, data)
	mustReadLog(t, s2, w.ID(), []byte("one"), []byte("two"), []byte("three"))

	// The other one fails, too.
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			return eio
		}
		return nil
	})
	for range 2 {
		if _, err = w.Append(ctx, []byte("four")); !errors.Is(err, local.ErrLogFailed) || !errors.Is(err, eio) {
			t.Errorf("no folder left: %v", err)
		}
		fs.SetHook(nil) // it is sticky
	}
	if _, err := s.Create(ctx); !errors.Is(err, local.ErrFolderRetired) {
		t.Errorf("create: %v", err)
	}
	if err := s.Delete(ctx, h.ID); !errors.Is(err, local.ErrFolderRetired) {
		t.Errorf("delete: %v", err)
	}
	mustRead(t, s, h, data) // reading goes on
}

// An extent's bytes are written back while it is being written, so that the final sync has little
// to do. If that fails, the extent continues in another folder.
func TestExtentGoesToDiskAsItIsWritten(t *testing.T) {
	const extent, piece = 16 << 20, 384 << 10
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 2)
	cfg.ExtentBytes = extent
	s := mustOpen(t, cfg)
	begun, fail := map[string]int64{}, false
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind != vfs.OpStartSync {
			return nil
		}
		const header = 4096
		if op.Off != header+begun[op.Name] || op.Len < 1<<20 || op.Len > 2<<20 {
			t.Errorf("begins with %d bytes at %d after %d of %s", op.Len, op.Off, begun[op.Name], op.Name)
		}
		begun[op.Name] += op.Len
		if fail {
			fail = false
			return syscall.EIO
		}
		return nil
	})
	for _, fails := range []bool{false, true} {
		clear(begun)
		data := blobtest.Bytes(7, extent-1000)
		w, err := s.Create(ctx)
		noError(t, err)
		for p := range slices.Chunk(data, piece) {
			_, err = w.Write(p)
			noError(t, err)
			fail = fails && len(begun) == 1
		}
		h, err := w.Seal(ctx)
		noError(t, err)
		mustRead(t, s, h, data)
		if files := map[bool]int{false: 1, true: 2}[fails]; len(begun) != files {
			t.Errorf("%d files, want %d", len(begun), files)
		}
		most := int64(0)
		for _, n := range begun {
			most = max(most, n)
		}
		if left := int64(len(data)) - most; left > 2<<20 {
			t.Errorf("%d bytes are left for the last sync", left)
		}
		mustRead(t, mustOpen(t, crashConfig(fs.Crash(nil), 2)), h, data)
	}
}

// Data that a failed sync may have lost is verified by checksum, or the blob is lost.
func TestMovedExtentIsProven(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 2))
	var name string
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Name, "/blobs/") && name == "" {
			name = op.Name
			f, err := fs.Open(name)
			if err != nil {
				return err
			}
			if _, err := f.WriteAt([]byte("not what was written"), 8000); err != nil {
				return err
			}
			return syscall.EIO
		}
		return nil
	})
	_, err := putBlob(s, blobtest.Bytes(1, 30_000))
	var corrupt *local.CorruptError
	if !errors.Is(err, local.ErrFolderRetired) || !errors.As(err, &corrupt) || corrupt.File != name {
		t.Fatalf("error %v", err)
	}
	data := blobtest.Bytes(2, 30_000)
	h, err := putBlob(s, data) // the caller's second try
	noError(t, err)
	mustRead(t, s, h, data)
}

// Running out of descriptors does not retire a folder.
func TestOwnLimitsRetireNothing(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 2))
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate {
			return syscall.EMFILE
		}
		return nil
	})
	if _, err := s.Create(ctx); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("create: %v", err)
	}
	if _, err := s.CreateLog(ctx, local.NewID()); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("create log: %v", err)
	}
	fs.SetHook(nil)
	for _, f := range s.Stats().Folders {
		if f.Retired != nil {
			t.Errorf("retired: %v", f.Retired)
		}
	}
	h, err := putBlob(s, []byte("x"))
	noError(t, err)
	mustRead(t, s, h, []byte("x"))
}

func TestFolderInUse(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	s := mustOpen(t, local.Config{Folders: []string{a, b}})
	_, err := local.Open(local.Config{Folders: []string{c, b}})
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(fmt.Sprint(err), b) {
		t.Errorf("a folder of another store: %v", err)
	}
	_, err = local.Open(local.Config{Folders: []string{b}, ReadOnly: true})
	if !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("to look at a folder in use: %v", err)
	}
	noError(t, s.Close())
	mustOpen(t, local.Config{Folders: []string{c, b}})
	link := filepath.Join(t.TempDir(), "link")
	noError(t, os.Symlink(a, link))
	_, err = local.Open(local.Config{Folders: []string{a, link}})
	if !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("the same folder under two names: %v", err)
	}
}

// A folder that cannot be opened does not keep the others from serving, but a log that might
// continue there is not recovered.
func TestFolderUnreadable(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 2)
	s := mustOpen(t, cfg)
	open, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	sealed, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	noError(t, sealed.Seal(ctx))
	noError(t, s.Close())
	where := map[string]string{}
	for _, f := range cfg.Folders {
		names, err := fs.ReadDir(filepath.Join(f, "logs"))
		noError(t, err)
		for _, name := range names {
			where[name] = f
		}
	}
	if len(where) != 2 {
		t.Fatalf("logs in %v", where)
	}
	broken := vfs.NewFaulty(brokenFolder{fs, cfg.Folders[0]})
	cfg.FS = broken
	s = mustOpen(t, cfg)
	noError(t, func() error { _, err := putBlob(s, []byte("x")); return err }())
	for _, id := range []local.ID{open.ID(), sealed.ID()} {
		r, err := s.OpenLog(ctx, id)
		switch {
		case err == nil && id == sealed.ID():
			noError(t, r.Close())
		case errors.Is(err, local.ErrFolderRetired):
		default:
			t.Errorf("open log: %v", err)
		}
	}
	var problems []local.Problem
	noError(t, s.Verify(ctx, func(p local.Problem) { problems = append(problems, p) }))
	if len(problems) != 1 || problems[0].File != cfg.Folders[0] {
		t.Errorf("problems %v", problems)
	}
}

type brokenFolder struct {
	vfs.FS
	dir string
}

func (b brokenFolder) ReadDir(dir string) ([]string, error) {
	if strings.HasPrefix(dir, b.dir) {
		return nil, syscall.EIO
	}
	return b.FS.ReadDir(dir)
}

// Folders get extents in proportion to their free space.
func TestPlacement(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 3)
	for i, mib := range []int64{300, 100, 1} {
		fs.SetCapacity(cfg.Folders[i], mib<<20)
	}
	cfg.ReserveBytes = 1 << 20
	s := mustOpen(t, cfg)
	for range 80 {
		_, err := putBlob(s, make([]byte, 1000))
		noError(t, err)
	}
	var got []int
	for _, f := range s.Stats().Folders {
		got = append(got, f.BlobFiles)
	}
	if got[2] != 0 || got[0] < 55 || got[0] > 65 || got[0]+got[1] != 80 {
		t.Errorf("80 extents in folders of 300, 100 and 1 MiB: %v", got)
	}
}

// The spare workers make spares in advance and recycle released files.
func TestSpareWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{})
		cfg := crashConfig(fs, 2)
		cfg.LogExtentsReady = 3
		s, err := local.Open(cfg)
		noError(t, err)
		defer s.Close()
		synctest.Wait()
		if n := s.Stats().LogExtentsReady; n != 0 {
			t.Errorf("%d spares before there is a log", n)
		}
		w, err := s.CreateLog(ctx, local.NewID())
		noError(t, err)
		synctest.Wait()
		if n := s.Stats().LogExtentsReady; n != 3 {
			t.Errorf("%d spares", n)
		}
		var pos int64
		for range 40 {
			pos, err = w.Append(ctx, make([]byte, 30_000))
			noError(t, err)
		}
		w.Release(pos)
		synctest.Wait()
		creates := 0
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate {
				creates++
			}
			return nil
		})
		st := s.Stats()
		if infos := s.Logs(); infos[0].Extents != 1 || st.LogExtentsReady < 10 || st.LogExtentsReady > 16 {
			t.Errorf("log %+v, %d spares", infos[0], st.LogExtentsReady)
		}
		for range 7 {
			_, err = w.Append(ctx, make([]byte, 30_000))
			noError(t, err)
		}
		synctest.Wait()
		if creates != 0 {
			t.Errorf("%d log files made though there were spares", creates)
		}
	})
}

// An append does not allocate, and does one write and one sync.
func TestAppendIsOneWriteOneSync(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 1)
	cfg.ExtentBytes = 64 << 20
	s := mustOpen(t, cfg)
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	p := make([]byte, 64<<10)
	var ops []vfs.OpKind
	fs.SetHook(func(op vfs.Op) error { ops = append(ops, op.Kind); return nil })
	_, err = w.Append(ctx, p)
	noError(t, err)
	if !slices.Equal(ops, []vfs.OpKind{vfs.OpWrite, vfs.OpSync}) {
		t.Errorf("an append does %v", ops)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	s := mustOpen(t, local.Config{Folders: []string{t.TempDir()}, ExtentBytes: 4 << 20, ReserveBytes: -1, LogExtentsReady: -1})
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	p := make([]byte, 10_000)
	if n := testing.AllocsPerRun(50, func() {
		pos, err := w.Append(ctx, p)
		noError(t, err)
		w.Release(pos - 100_000)
	}); n != 0 {
		t.Errorf("append: %v allocations", n)
	}
	h, err := putBlob(s, blobtest.Bytes(1, 300_000))
	noError(t, err)
	r, err := s.OpenBlob(ctx, h)
	noError(t, err)
	defer r.Close()
	ok := func([]byte) error { return nil }
	if n := testing.AllocsPerRun(50, func() { noError(t, r.ReadChecked(p, 77_777, ok)) }); n != 0 {
		t.Errorf("ReadChecked: %v allocations", n)
	}
	if n := testing.AllocsPerRun(50, func() { _, err := r.ReadAt(p, 60_000); noError(t, err) }); n > 0.5 {
		t.Errorf("ReadAt: %v allocations", n)
	}
}
