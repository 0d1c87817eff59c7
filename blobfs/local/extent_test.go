package local_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

func putOne(t *testing.T, s *local.Store, id local.ExtentID, data []byte) local.ExtentRef {
	t.Helper()
	w, err := s.CreateExtent(ctx, id, 77)
	noError(t, err)
	noError(t, w.Write(data))
	ref, err := w.Seal(ctx, false, local.Holders{Epoch: 1, Nodes: []string{"n1"}})
	noError(t, err)
	return ref
}

func TestExtentRoundTrip(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 2)
	cfg.ExtentBytes, cfg.Node = 512<<10, "n1"
	s := mustOpen(t, cfg)
	id := local.ExtentID{Blob: local.NewID(), Index: 3}
	data := blobtest.Bytes(1, 300_001)

	w, err := s.CreateExtent(ctx, id, 77)
	noError(t, err)
	if _, err := s.CreateExtent(ctx, id, 77); !errors.Is(err, local.ErrExtentExists) {
		t.Errorf("a second writer: %v", err)
	}
	noError(t, w.Write(data[:128<<10]))
	noError(t, w.Write(data[128<<10:]))
	back := make([]byte, 100_000)
	noError(t, w.ReadBack(back, 150_001))
	if !bytes.Equal(back, data[150_001:250_001]) || w.Length() != 300_001 {
		t.Error("what was written reads back otherwise")
	}
	if w.ReadBack(back, 250_000) == nil {
		t.Error("more is read back than was written")
	}
	if len(s.ListExtents(local.ExtentID{Index: -1}, 10)) != 0 {
		t.Error("an extent is listed before it is sealed")
	}
	ref, err := w.Seal(ctx, true, local.Holders{Epoch: 1, Nodes: []string{"n1", "n2"}})
	noError(t, err)
	if ref.CRC != w.CRC() || ref.Length != 300_001 || ref.Index != 3 || !slices.Equal(ref.Replicas, []string{"n1"}) {
		t.Errorf("sealed as %+v", ref)
	}
	again, err := w.Seal(ctx, true, local.Holders{})
	noError(t, err)
	if again.CRC != ref.CRC {
		t.Error("a second seal returns another result")
	}
	w.Abort()
	if err := w.Write([]byte("x")); !errors.Is(err, local.ErrSealed) {
		t.Errorf("write after seal: %v", err)
	}

	check := func(s *local.Store) {
		t.Helper()
		x, err := s.OpenExtent(ctx, id, ref.CRC)
		noError(t, err)
		defer x.Close()
		got := make([]byte, x.Length())
		noError(t, x.ReadVerified(got, 0))
		if !bytes.Equal(got, data) {
			t.Error("extent reads otherwise")
		}
		if err := x.ReadVerified(got, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read beyond the end: %v", err)
		}
		st, err := s.StatExtent(ctx, id)
		noError(t, err)
		if st.ID != id || st.Length != 300_001 || !st.Last || st.Offset != 77 || st.CRC != ref.CRC || st.Holders.Epoch != 1 || len(st.Holders.Nodes) != 2 || st.Created.IsZero() {
			t.Errorf("stat %+v", st)
		}
		noError(t, s.VerifyExtent(ctx, id))
		var corrupt *local.CorruptError
		if _, err := s.OpenExtent(ctx, id, ref.CRC+1); !errors.As(err, &corrupt) {
			t.Errorf("another extent's checksum: %v", err)
		}
	}
	check(s)
	noError(t, s.Close())
	s = mustOpen(t, withFS(cfg, fs.Crash(nil)))
	check(s)
	if _, err := s.CreateExtent(ctx, id, 77); !errors.Is(err, local.ErrExtentExists) {
		t.Errorf("an extent that is there: %v", err)
	}
	noError(t, s.DropExtent(ctx, id))
	for _, err := range []error{s.DropExtent(ctx, id), s.VerifyExtent(ctx, id), errOf(s.OpenExtent(ctx, id, ref.CRC)), errOf(s.StatExtent(ctx, id))} {
		if !errors.Is(err, local.ErrNoExtent) {
			t.Errorf("dropped: %v", err)
		}
	}
	putOne(t, s, id, data)
}

func withFS(cfg local.Config, fs vfs.FS) local.Config { cfg.FS = fs; return cfg }

func errOf[T any](_ T, err error) error { return err }

func TestExtentsListed(t *testing.T) {
	s := mustOpen(t, crashConfig(vfs.NewMem(vfs.MemOptions{}), 3))
	var want []local.ExtentID
	for b := range 7 {
		id := local.ID{0: byte(b * 31), 5: 1}
		for _, i := range []int{4, 0, 11, 2}[:1+b%4] {
			x := local.ExtentID{Blob: id, Index: i}
			putOne(t, s, x, []byte("x"))
			want = append(want, x)
		}
	}
	slices.SortFunc(want, func(a, b local.ExtentID) int {
		if c := bytes.Compare(a.Blob[:], b.Blob[:]); c != 0 {
			return c
		}
		return a.Index - b.Index
	})
	if s.Extents() != len(want) {
		t.Errorf("%d extents", s.Extents())
	}
	for _, page := range []int{1, 2, 5, 100} {
		var got []local.ExtentID
		for after := (local.ExtentID{Index: -1}); ; after = got[len(got)-1] {
			infos := s.ListExtents(after, page)
			if len(infos) == 0 {
				break
			}
			for _, info := range infos {
				got = append(got, info.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d give %v", page, got)
		}
	}
}

// A sealed extent whose folder has failed since is sealed again in another folder.
func TestExtentSealedAgain(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 2))
	id := local.ExtentID{Blob: local.NewID()}
	data := blobtest.Bytes(1, 50_000)
	holders := local.Holders{Epoch: 4, Nodes: []string{"a", "b"}}
	w, err := s.CreateExtent(ctx, id, 0)
	noError(t, err)
	noError(t, w.Write(data))
	_, err = w.Seal(ctx, true, holders)
	noError(t, err)
	var disk string
	for _, f := range s.Stats().Folders {
		if f.BlobFiles > 0 {
			disk = f.Path[:6]
		}
	}
	fs.SetHook(func(op vfs.Op) error {
		if strings.HasPrefix(op.Name, disk) {
			return syscall.EIO
		}
		return nil
	})
	// Another operation finds the disk broken.
	for s.Stats().Folders[0].Retired == nil && s.Stats().Folders[1].Retired == nil {
		putOne(t, s, local.ExtentID{Blob: local.NewID()}, []byte("x"))
	}
	ref, err := w.Seal(ctx, true, holders)
	noError(t, err)
	for _, f := range s.Stats().Folders {
		if f.Path[:6] == disk && f.BlobFiles > 0 {
			t.Errorf("the index still has the extent on the disk that failed: %+v", f)
		}
	}
	x, err := s.OpenExtent(ctx, id, ref.CRC)
	noError(t, err)
	got := make([]byte, x.Length())
	noError(t, x.ReadVerified(got, 0))
	x.Close()
	if st, err := s.StatExtent(ctx, id); !bytes.Equal(got, data) || err != nil || st.Holders.Epoch != 4 {
		t.Errorf("sealed again: %+v, %v", st, err)
	}
}

func TestExtentBounds(t *testing.T) {
	s := mustOpen(t, crashConfig(vfs.NewMem(vfs.MemOptions{}), 1))
	for _, id := range []local.ExtentID{{Index: -1}, {Index: local.ExtentsMax}} {
		if _, err := s.CreateExtent(ctx, id, 0); err == nil {
			t.Errorf("index %d is accepted", id.Index)
		}
	}
	for _, writes := range [][]int{{64<<10 + 1}, {10, 10}, {64 << 10, 1}} {
		id := local.ExtentID{Blob: local.NewID()}
		w, err := s.CreateExtent(ctx, id, 0)
		noError(t, err)
		for _, n := range writes {
			err = w.Write(make([]byte, n))
		}
		if err == nil {
			t.Errorf("writes of %v bytes are accepted", writes)
		}
		w, err = s.CreateExtent(ctx, id, 0) // the first one is gone
		noError(t, err)
		w.Abort()
		w.Abort()
		if err := w.Write(nil); !errors.Is(err, local.ErrClosed) {
			t.Errorf("write after abort: %v", err)
		}
	}
}
