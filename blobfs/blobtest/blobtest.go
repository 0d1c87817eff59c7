package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/steledb/stele/blobfs"
)

// Store is the interface of the stores under test.
type Store interface {
	Create(ctx context.Context) (*blobfs.Writer, error)
	OpenBlob(ctx context.Context, h blobfs.Handle) (*blobfs.Reader, error)
	Delete(ctx context.Context, id blobfs.ID) error
	Blobs() []blobfs.BlobInfo
	Verify(ctx context.Context, report func(blobfs.Problem)) error
	Close() error
}

// Run runs the blob part of the suite. open returns an empty store with extents of about 256 KiB,
// so that blobs of a megabyte have several. The suite verifies and closes it.
func Run(t *testing.T, open func(t *testing.T) Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s Store)
	}{
		{"BlobsOfAllSizes", testBlobSizes},
		{"BlobWrittenInPieces", testBlobPieces},
		{"RandomReads", testRandomReads},
		{"ReadChecked", testReadChecked},
		{"BlobDelete", testBlobDelete},
		{"BlobAbort", testBlobAbort},
		{"BlobWrongHandle", testWrongHandle},
		{"BlobsInParallel", testParallelBlobs},
		{"Cancelled", testCancelled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			test.run(t, s)
			finish(t, s)
			if _, err := s.Create(t.Context()); !errors.Is(err, blobfs.ErrClosed) {
				t.Errorf("create in a closed store: %v", err)
			}
		})
	}
}

// finish verifies and closes a store.
func finish(t *testing.T, s interface {
	Verify(ctx context.Context, report func(blobfs.Problem)) error
	Close() error
}) {
	t.Helper()
	noError(t, s.Verify(t.Context(), func(p blobfs.Problem) { t.Errorf("verify: %v", p) }))
	noError(t, s.Close())
	noError(t, s.Close())
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
}

// Bytes returns n bytes that depend only on seed.
func Bytes(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	p := make([]byte, n)
	rand.NewChaCha8(key).Read(p)
	return p
}

func put(t *testing.T, s Store, data []byte) blobfs.Handle {
	t.Helper()
	w, err := s.Create(t.Context())
	noError(t, err)
	n, err := w.Write(data)
	noError(t, err)
	if n != len(data) {
		t.Fatalf("wrote %d of %d bytes", n, len(data))
	}
	h, err := w.Seal(t.Context())
	noError(t, err)
	return h
}

// get reads a whole blob with both methods.
func get(t *testing.T, s Store, h blobfs.Handle) []byte {
	t.Helper()
	r, err := s.OpenBlob(t.Context(), h)
	noError(t, err)
	defer r.Close()
	data := make([]byte, r.Size())
	n, err := r.ReadAt(data, 0)
	noError(t, err)
	if n != len(data) {
		t.Fatalf("read %d of %d bytes", n, len(data))
	}
	again := make([]byte, r.Size())
	noError(t, r.ReadChecked(again, 0, func(p []byte) error {
		if !bytes.Equal(p, data) {
			return errors.New("differs from what ReadAt gave")
		}
		return nil
	}))
	return data
}

func testBlobSizes(t *testing.T, s Store) {
	const chunk = 64 << 10
	for i, size := range []int{0, 1, 4095, 4096, chunk - 1, chunk, chunk + 1, 3*chunk + 7,
		4 * chunk, 4*chunk + 1, 8 * chunk, 8*chunk - 1, 1 << 20, 1<<20 + 12345} {
		data := Bytes(uint64(i), size)
		h := put(t, s, data)
		if h.Length != int64(size) || len(h.Extents) == 0 {
			t.Errorf("handle of %d bytes: length %d, %d extents", size, h.Length, len(h.Extents))
		}
		if !bytes.Equal(get(t, s, h), data) {
			t.Errorf("blob of %d bytes differs", size)
		}
	}
}

func testBlobPieces(t *testing.T, s Store) {
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 8 {
		data := Bytes(uint64(round), rng.IntN(1<<20))
		w, err := s.Create(t.Context())
		noError(t, err)
		writePieces(t, w, data, rng)
		h, err := w.Seal(t.Context())
		noError(t, err)
		if h.ID != w.ID() {
			t.Errorf("handle has ID %s, writer %s", h.ID, w.ID())
		}
		if !bytes.Equal(get(t, s, h), data) {
			t.Errorf("blob of %d bytes differs", len(data))
		}
		_, err = w.Write([]byte("x"))
		wantError(t, err, blobfs.ErrSealed)
		_, err = w.Seal(t.Context())
		wantError(t, err, blobfs.ErrSealed)
		w.Abort()
		if !bytes.Equal(get(t, s, h), data) {
			t.Error("abort after seal harms the blob")
		}
	}
}

// writePieces writes data in pieces of random lengths.
func writePieces(t *testing.T, w *blobfs.Writer, data []byte, rng *rand.Rand) {
	t.Helper()
	for rest := data; len(rest) > 0; {
		n := min(1+rng.IntN(1<<(4+rng.IntN(15))), len(rest))
		piece := bytes.Clone(rest[:n])
		_, err := w.Write(piece)
		noError(t, err)
		clear(piece) // the writer must not retain it
		rest = rest[n:]
	}
}

func testRandomReads(t *testing.T, s Store) {
	data := Bytes(7, 900_001)
	r, err := s.OpenBlob(t.Context(), put(t, s, data))
	noError(t, err)
	defer r.Close()
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(g)))
			for range 150 {
				off := rng.IntN(len(data) + 1)
				n := rng.IntN(1 << rng.IntN(20))
				p := make([]byte, n)
				got, err := r.ReadAt(p, int64(off))
				want := data[off:min(off+n, len(data))]
				if got != len(want) || !bytes.Equal(p[:got], want) {
					t.Errorf("%d bytes at %d differ", n, off)
				}
				if (err == io.EOF) != (got < n) || (err != nil && err != io.EOF) {
					t.Errorf("%d bytes at %d: %d and %v", n, off, got, err)
				}
			}
		})
	}
	group.Wait()
	if n, err := r.ReadAt(make([]byte, 1), -1); n != 0 || err == nil {
		t.Errorf("read at -1: %d, %v", n, err)
	}
}

func testReadChecked(t *testing.T, s Store) {
	data := Bytes(8, 600_000)
	r, err := s.OpenBlob(t.Context(), put(t, s, data))
	noError(t, err)
	defer r.Close()
	for _, at := range []struct{ off, n int }{{0, 0}, {0, 1}, {5, 8192}, {256<<10 - 10, 20}, {599_999, 1}, {600_000, 0}, {1000, 500_000}} {
		calls := 0
		p := make([]byte, at.n)
		noError(t, r.ReadChecked(p, int64(at.off), func(p []byte) error {
			calls++
			if !bytes.Equal(p, data[at.off:at.off+at.n]) {
				return errors.New("wrong bytes")
			}
			return nil
		}))
		if calls != 1 {
			t.Errorf("check was called %d times", calls)
		}
	}
	no, calls := errors.New("no"), 0
	err = r.ReadChecked(make([]byte, 10), 0, func([]byte) error { calls++; return no })
	if err != no || calls != 2 {
		t.Errorf("whole bytes that the caller rejects: %v after %d calls", err, calls)
	}
	for _, at := range []struct{ off, n int }{{-1, 1}, {600_000, 1}, {599_999, 2}, {700_000, 0}} {
		err := r.ReadChecked(make([]byte, at.n), int64(at.off), func([]byte) error { return nil })
		wantError(t, err, io.ErrUnexpectedEOF)
	}
}

func testBlobDelete(t *testing.T, s Store) {
	data := Bytes(9, 700_000)
	keep, gone := put(t, s, data), put(t, s, data)
	r, err := s.OpenBlob(t.Context(), gone)
	noError(t, err)
	defer r.Close()
	if infos := s.Blobs(); len(infos) != 2 || infos[0].Length != 700_000 || !infos[0].Whole || infos[0].Created.IsZero() {
		t.Errorf("blobs: %+v", infos)
	}
	noError(t, s.Delete(t.Context(), gone.ID))
	wantError(t, s.Delete(t.Context(), gone.ID), blobfs.ErrNoBlob)
	_, err = s.OpenBlob(t.Context(), gone)
	wantError(t, err, blobfs.ErrNoBlob)
	p := make([]byte, len(data))
	if _, err := r.ReadAt(p, 0); err != nil || !bytes.Equal(p, data) {
		t.Errorf("an open reader of a deleted blob: %v", err)
	}
	if infos := s.Blobs(); len(infos) != 1 || infos[0].ID != keep.ID {
		t.Errorf("blobs: %+v", infos)
	}
	if !bytes.Equal(get(t, s, keep), data) {
		t.Error("the other blob differs")
	}
}

func testBlobAbort(t *testing.T, s Store) {
	w, err := s.Create(t.Context())
	noError(t, err)
	_, err = w.Write(Bytes(1, 600_000))
	noError(t, err)
	w.Abort()
	w.Abort()
	_, err = w.Write([]byte("x"))
	wantError(t, err, blobfs.ErrClosed)
	_, err = w.Seal(t.Context())
	wantError(t, err, blobfs.ErrClosed)
	if infos := s.Blobs(); len(infos) != 0 {
		t.Errorf("an aborted blob is listed: %+v", infos)
	}
}

func testWrongHandle(t *testing.T, s Store) {
	h := put(t, s, Bytes(1, 300_000))
	other := put(t, s, Bytes(2, 300_000))
	unknown := h
	unknown.ID = blobfs.NewID()
	_, err := s.OpenBlob(t.Context(), unknown)
	wantError(t, err, blobfs.ErrNoBlob)
	mixed := h
	mixed.Extents = other.Extents
	_, err = s.OpenBlob(t.Context(), mixed)
	var corrupt *blobfs.CorruptError
	if !errors.As(err, &corrupt) {
		t.Errorf("handle with another blob's extents: %v", err)
	}
	long := h
	long.Length++
	if _, err = s.OpenBlob(t.Context(), long); err == nil {
		t.Error("a handle that does not add up opens")
	}
	more := h
	more.Extents = append(more.Extents[:len(more.Extents):len(more.Extents)], blobfs.ExtentRef{Index: len(h.Extents)})
	_, err = s.OpenBlob(t.Context(), more)
	wantError(t, err, blobfs.ErrNoBlob)
}

func testParallelBlobs(t *testing.T, s Store) {
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 4 {
				h, ok := create(t, s, Bytes(uint64(g*100+i), 100_000*(1+i)))
				if !ok {
					return
				}
				if i%2 == 0 {
					if err := s.Delete(t.Context(), h.ID); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	if infos := s.Blobs(); len(infos) != 16 {
		t.Errorf("%d blobs", len(infos))
	}
}

// create stores data as a blob and opens it once. It may be called from any goroutine.
func create(t *testing.T, s Store, data []byte) (h blobfs.Handle, ok bool) {
	w, err := s.Create(t.Context())
	if err != nil {
		t.Error(err)
		return h, false
	}
	if _, err := w.Write(data); err != nil {
		t.Error(err)
	}
	if h, err = w.Seal(t.Context()); err != nil {
		t.Error(err)
		return h, false
	}
	if r, err := s.OpenBlob(t.Context(), h); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	return h, true
}

func testCancelled(t *testing.T, s Store) {
	h := put(t, s, []byte("x"))
	w, err := s.Create(t.Context())
	noError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errSeal := w.Seal(ctx)
	for i, err := range []error{
		errSeal, s.Delete(ctx, h.ID), errOf(s.Create(ctx)), errOf(s.OpenBlob(ctx, h)), s.Verify(ctx, func(blobfs.Problem) {}),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func errOf[T any](_ T, err error) error {
	if err == nil {
		return fmt.Errorf("no error")
	}
	return err
}
