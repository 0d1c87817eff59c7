package local_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

func benchStore(b *testing.B) *local.Store {
	b.Helper()
	s, err := local.Open(local.Config{Folders: []string{b.TempDir()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkRawSync measures the disk alone: overwriting a zeroed file, the limit of appends.
func BenchmarkRawSync(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 68 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			fs := vfs.OS()
			f, err := fs.Create(b.TempDir() + "/f")
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			buf := blobtest.Bytes(1, size)
			const file = 64 << 20
			for at := 0; at < file; at += 1 << 20 {
				if _, err := f.WriteAt(make([]byte, 1<<20), int64(at)); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.ResetTimer()
			off := 0
			for range b.N {
				if off+size > file {
					off = 0
				}
				if _, err := f.WriteAt(buf, int64(off)); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
				off += size
			}
		})
	}
}

// BenchmarkLogAppend appends payloads and releases them like a tablet server, after extents are
// recycled. 64 KiB is a group of 64 records of 1 KB.
func BenchmarkLogAppend(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 64<<10 - 64, 64 << 10, 1<<20 - 64, 8 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			s := benchStore(b)
			w, err := s.CreateLog(b.Context(), local.NewID())
			if err != nil {
				b.Fatal(err)
			}
			p := blobtest.Bytes(1, size)
			appendOne := func(p []byte) {
				pos, err := w.Append(b.Context(), p)
				if err != nil {
					b.Fatal(err)
				}
				w.Release(pos - 64<<20)
			}
			warm := blobtest.Bytes(1, 1<<20-64)
			for range 320 {
				appendOne(warm)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				appendOne(p)
			}
		})
	}
}

func BenchmarkBlobWrite(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 64 << 20} {
		for _, parallel := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dKiB/%d", size>>10, parallel), func(b *testing.B) {
				s := benchStore(b)
				p := blobtest.Bytes(1, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.SetParallelism(parallel / 2)
				put := func() {
					w, err := s.Create(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := w.Write(p); err != nil {
						b.Error(err)
					}
					h, err := w.Seal(b.Context())
					if err != nil {
						b.Error(err)
					}
					if err := s.Delete(b.Context(), h.ID); err != nil {
						b.Error(err)
					}
				}
				b.ResetTimer()
				if parallel == 1 {
					for range b.N {
						put()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						put()
					}
				})
			})
		}
	}
}

// benchBlob returns a reader of a 256 MiB blob in the page cache.
func benchBlob(b *testing.B) *local.Reader {
	b.Helper()
	s := benchStore(b)
	w, err := s.Create(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for i := range 256 {
		if _, err := w.Write(blobtest.Bytes(uint64(i), 1<<20)); err != nil {
			b.Fatal(err)
		}
	}
	h, err := w.Seal(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	r, err := s.OpenBlob(b.Context(), h)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return r
}

func BenchmarkRandomRead(b *testing.B) {
	r := benchBlob(b)
	for _, size := range []int{8 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("ReadChecked/%dKiB", size>>10), func(b *testing.B) {
			p := make([]byte, size)
			rng := rand.New(rand.NewPCG(1, 2))
			bad := errors.New("bad")
			ok := func(p []byte) error {
				if crc.Sum(p) == 1 {
					return bad
				}
				return nil
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for range b.N {
				if err := r.ReadChecked(p, rng.Int64N(r.Size()-int64(size)), ok); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("ReadAt/%dKiB", size>>10), func(b *testing.B) {
			p := make([]byte, size)
			rng := rand.New(rand.NewPCG(1, 2))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for range b.N {
				if _, err := r.ReadAt(p, rng.Int64N(r.Size()-int64(size))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("ReadAt/sequential-1MiB", func(b *testing.B) {
		p := make([]byte, 1<<20)
		b.SetBytes(1 << 20)
		b.ReportAllocs()
		for i := range b.N {
			if _, err := r.ReadAt(p, int64(i%256)<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
}
