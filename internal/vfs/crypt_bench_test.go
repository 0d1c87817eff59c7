package vfs

import (
	"path/filepath"
	"testing"
)

// BenchmarkCrypt compares files with and without encryption, in the page cache, with the sizes of
// logs (8 KiB), random reads (64 KiB) and compactions (1 MiB).
func BenchmarkCrypt(b *testing.B) {
	plain := OS()
	encrypted := NewCrypt(plain, []DataKey{{Number: 1}}, func(string) bool { return true })
	for _, kind := range []struct {
		name string
		fs   FS
	}{{"plain", plain}, {"encrypted", encrypted}} {
		file, err := kind.fs.Create(filepath.Join(b.TempDir(), "file"))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		for _, size := range []struct {
			name  string
			bytes int
		}{{"8KiB", 8 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}} {
			p := make([]byte, size.bytes)
			b.Run("write/"+size.name+"/"+kind.name, func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for i := range b.N {
					if _, err := file.WriteAt(p, 4096+int64(i%16*len(p))); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("read/"+size.name+"/"+kind.name, func(b *testing.B) {
				b.SetBytes(int64(len(p)))
				for i := range b.N {
					if _, err := file.ReadAt(p, 4096+int64(i%4*len(p))); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
