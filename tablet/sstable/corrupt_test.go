package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/table"
)

// look performs all reads of a table. Its result is equal for two files if and only if readers
// cannot distinguish them.
func look(src Source, opts OpenOptions, entries []kv) (string, error) {
	tab, err := Open(context.Background(), src, opts)
	if err != nil {
		return "", err
	}
	got, err := entriesOf(tab, IterOptions{})
	if err != nil {
		return "", err
	}
	it := tab.NewIter(IterOptions{})
	defer it.Close()
	seeks := 0
	for _, e := range entries {
		if it.SeekGE(e.key) && bytes.Equal(it.Value(), e.value) {
			seeks++
		}
		if it.Err() != nil {
			return "", it.Err()
		}
		if !tab.MayContain(e.key) {
			return "", fmt.Errorf("filter denies %q", e.key)
		}
	}
	size, err := tab.ApproxBytes(entries[0].key, nil)
	return fmt.Sprintf("%q %q %+v %d %d", got, tab.Properties(), tab.Meta(), seeks, size), err
}

// checkFlip inverts one bit. Each way to read the file must locate the corruption or return what
// was written.
func checkFlip(t *testing.T, file []byte, bit int, entries []kv, want string) {
	t.Helper()
	at := bit / 8
	file[at] ^= 1 << (bit % 8)
	defer func() { file[at] ^= 1 << (bit % 8) }()
	for _, opts := range []OpenOptions{{Name: "corrupt"}, {Name: "corrupt", IndexBytesMax: -1, Cache: NewCache(1 << 20)}} {
		got, err := look(bytesSource(file), opts, entries)
		if err == nil && got != want {
			t.Fatalf("bit %d of byte %d: wrong data and no error", bit%8, at)
		}
		if err == nil && at >= headerBytes {
			// Every byte after the header is read by look.
			t.Fatalf("bit %d of byte %d: not found", bit%8, at)
		}
		if err != nil {
			checkPlace(t, err, int64(at))
		}
	}
	problems := verify(t, bytesSource(file), VerifyOptions{Name: "corrupt"})
	if len(problems) == 0 {
		t.Fatalf("bit %d of byte %d: verify finds nothing", bit%8, at)
	}
	checkPlace(t, problems[0], int64(at))
}

// checkPlace verifies that err has the file and a range that contains the byte at.
func checkPlace(t *testing.T, err error, at int64) {
	t.Helper()
	var bad *CorruptError
	if !errors.As(err, &bad) || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("byte %d: %v is not a CorruptError", at, err)
	}
	if bad.File != "corrupt" || at < bad.Offset || at >= bad.Offset+bad.Length {
		t.Fatalf("byte %d: error names %q, %d bytes at %d", at, bad.File, bad.Length, bad.Offset)
	}
}

// TestEveryBitFlip verifies I7 and S3: no flipped bit of a file is ever returned as data.
func TestEveryBitFlip(t *testing.T) {
	for _, c := range benchCompressions {
		entries := compatEntries(20)
		file, _ := build(t, Options{BlockBytes: 1 << 10, Compression: c.c, FilterPrefixes: someLens, LearnBytes: 2 << 10, learnMin: 1},
			map[string][]byte{"who": []byte("flip")}, entries)
		want, err := look(bytesSource(file), OpenOptions{}, entries)
		if err != nil {
			t.Fatal(err)
		}
		step := 1
		if testing.Short() {
			step = 13
		}
		for bit := 0; bit < len(file)*8; bit += step {
			checkFlip(t, file, bit, entries, want)
		}
	}
}

// TestSomeBitFlips does the same for a file with a deep index and several
// filter blocks, at random places.
func TestSomeBitFlips(t *testing.T) {
	rng := newRand(t)
	var entries []kv
	for i := range 3000 {
		entries = append(entries, kv{benchKey(nil, i), bytes.Repeat([]byte{byte(i)}, rng.IntN(400))})
	}
	file, _ := build(t, Options{BlockBytes: 1 << 10, FilterPrefixes: manyLens}, nil, entries)
	tab := open(t, bytesSource(file), OpenOptions{})
	if !tab.index.deep || len(tab.filter.parts) < 2 {
		t.Fatalf("deep %v, %d filter blocks", tab.index.deep, len(tab.filter.parts))
	}
	want, err := look(bytesSource(file), OpenOptions{}, entries)
	if err != nil {
		t.Fatal(err)
	}
	for range 150 {
		checkFlip(t, file, rng.IntN(len(file)*8), entries, want)
	}
}

// manyLens returns every prefix, so that few keys fill a filter block.
func manyLens(key []byte, dst []int) []int {
	for n := 1; n <= len(key); n++ {
		dst = append(dst, n)
	}
	return dst
}

// TestTruncated opens every prefix of a file, and files with extra bytes at the end.
func TestTruncated(t *testing.T) {
	file, _ := build(t, Options{FilterPrefixes: someLens}, nil, compatEntries(10))
	for n := range file {
		_, err := Open(context.Background(), bytesSource(file[:n]), OpenOptions{Name: "short"})
		var bad *CorruptError
		if !errors.As(err, &bad) || bad.File != "short" {
			t.Fatalf("%d of %d bytes: %v", n, len(file), err)
		}
		if len(verify(t, bytesSource(file[:n]), VerifyOptions{})) == 0 {
			t.Fatalf("%d of %d bytes: verify finds nothing", n, len(file))
		}
	}
	for _, tail := range []string{"x", magic, string(file[len(file)-footerBytes:])} {
		longer := append(bytes.Clone(file), tail...)
		if _, err := Open(context.Background(), bytesSource(longer), OpenOptions{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d bytes behind the footer: %v", len(tail), err)
		}
	}
}

// TestMovedBlock puts a valid block at the place of another one of the same length.
func TestMovedBlock(t *testing.T) {
	entries := []kv{{[]byte("a"), make([]byte, 2000)}, {[]byte("b"), make([]byte, 2000)}}
	file, _ := build(t, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone}, nil, entries)
	tab := open(t, bytesSource(file), OpenOptions{})
	x := &tab.index.root
	h0, _ := x.handle(0)
	h1, _ := x.handle(1)
	if x.entries != 2 || h0.stored != h1.stored {
		t.Fatal("want two blocks of one length")
	}
	copy(file[h0.off:h0.end()], file[h1.off:h1.end()])
	if _, err := entriesOf(tab, IterOptions{}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("took a block for another: %v", err)
	}
}

// replicas is a source of two copies, the first of which is corrupt.
type replicas struct {
	Source
	corrupt bytesSource
	tries   int
}

func (r *replicas) ReadChecked(p []byte, off int64, ok func([]byte) error) error {
	if r.corrupt.ReadChecked(p, off, ok) == nil {
		return nil
	}
	r.tries++
	return r.Source.ReadChecked(p, off, ok)
}

// TestOtherReplica reads a table with one copy that is corrupt everywhere.
func TestOtherReplica(t *testing.T) {
	entries := compatEntries(200)
	file, _ := build(t, Options{BlockBytes: 1 << 10, FilterPrefixes: someLens}, nil, entries)
	corrupt := bytes.Clone(file)
	for i := range corrupt {
		corrupt[i] ^= 0x10
	}
	src := &replicas{Source: bytesSource(file), corrupt: corrupt}
	tab := open(t, src, OpenOptions{Cache: NewCache(1 << 20)})
	for _, o := range []IterOptions{{}, {NoCacheFill: true, ReadAheadBytes: 4096}} {
		got, err := entriesOf(tab, o)
		if err != nil || !equalEntries(got, entries) {
			t.Fatalf("%d entries, %v", len(got), err)
		}
	}
	if src.tries == 0 {
		t.Fatal("the corrupt copy was not read first")
	}
	if p := verify(t, src, VerifyOptions{}); len(p) > 0 {
		t.Fatal(p)
	}
}

// TestTailOfOtherReplica opens a file whose first copy has a valid footer and a corrupt directory.
func TestTailOfOtherReplica(t *testing.T) {
	entries := compatEntries(20)
	file, _ := build(t, Options{}, nil, entries)
	corrupt := bytes.Clone(file)
	corrupt[len(corrupt)-footerBytes-trailerBytes-1] ^= 1
	src := &replicas{Source: bytesSource(file), corrupt: corrupt}
	if got, err := entriesOf(open(t, src, OpenOptions{}), IterOptions{}); err != nil || !equalEntries(got, entries) {
		t.Fatal(err)
	}
}

// TestVerifyFindsAllCorruption corrupts several blocks. Each must be reported, even those after a corrupt
// filter.
func TestVerifyFindsAllCorruption(t *testing.T) {
	entries := compatEntries(100)
	file, _ := build(t, Options{BlockBytes: 1 << 10, Compression: table.CompressionNone, FilterPrefixes: someLens}, nil, entries)
	tab := open(t, bytesSource(file), OpenOptions{})
	var broken []int64
	for _, i := range []int{1, 4, tab.index.root.entries - 1} {
		h, _ := tab.index.root.handle(i)
		broken = append(broken, h.off)
	}
	part, _ := tab.filter.seps.handle(0)
	broken = append(broken, part.off)
	for _, off := range broken {
		file[off+5] ^= 0xff
	}
	found := map[int64]bool{}
	for _, err := range verify(t, bytesSource(file), VerifyOptions{}) {
		var bad *CorruptError
		if errors.As(err, &bad) {
			found[bad.Offset] = true
		}
	}
	for _, off := range broken {
		if !found[off] {
			t.Errorf("block at %d: not reported", off)
		}
	}
	if len(found) != len(broken) {
		t.Errorf("reported %v, broken %v", found, broken)
	}
}

// TestPartialKeys: a file whose keys lack something has a version that earlier programs reject, and is otherwise as any other.
func TestPartialKeys(t *testing.T) {
	for _, compression := range []table.Compression{table.CompressionS2, table.CompressionTwoPass} {
		es := sitePages(newRand(t), 20)
		file, _ := build(t, Options{PartialKeys: true, Compression: compression}, nil, es)
		foot := file[len(file)-footerBytes:]
		if foot[24] != 3 || file[8] != 3 {
			t.Errorf("versions %d and %d, want 3", file[8], foot[24])
		}
		if p := verify(t, bytesSource(file), VerifyOptions{}); len(p) != 0 {
			t.Errorf("reported %v", p)
		}
		it := open(t, bytesSource(file), OpenOptions{}).NewIter(IterOptions{})
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		if n != len(es) || it.Err() != nil {
			t.Errorf("read %d entries, want %d: %v", n, len(es), it.Err())
		}
		it.Close()
	}
}

// TestVersion builds a valid file of a later version.
func TestVersion(t *testing.T) {
	file, _ := build(t, Options{}, nil, compatEntries(3))
	foot := file[len(file)-footerBytes:]
	foot[24] = VersionMax + 1
	fixChecksums(file)
	var v *VersionError
	if _, err := Open(context.Background(), bytesSource(file), OpenOptions{Name: "new"}); !errors.As(err, &v) ||
		!errors.Is(err, ErrVersion) || v.Version != VersionMax+1 || v.File != "new" {
		t.Fatal(err)
	}
	if p := verify(t, bytesSource(file), VerifyOptions{}); len(p) != 1 || !errors.Is(p[0], ErrVersion) {
		t.Fatal(p)
	}
	foot[24] = 1
	file[8] = VersionMax + 1
	fixChecksums(file)
	if p := verify(t, bytesSource(file), VerifyOptions{}); len(p) != 1 || !errors.Is(p[0], ErrVersion) {
		t.Fatal(p)
	}
}

// TestReadErrors fails each read in turn. The error must be returned, must not be a corruption
// error, and must not be sticky.
func TestReadErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var entries []kv
	for i := range 2000 {
		entries = append(entries, kv{benchKey(nil, i), make([]byte, rng.IntN(300))})
	}
	file, _ := build(t, Options{BlockBytes: 1 << 10, FilterPrefixes: manyLens}, nil, entries)
	for _, iter := range []IterOptions{{}, {NoCacheFill: true}, {NoCacheFill: true, ReadAheadBytes: 8 << 10}} {
		for n := int64(1); ; n += 1 + n/10 {
			src := &failingSource{Source: bytesSource(file)}
			src.n.Store(n)
			opts := OpenOptions{IndexBytesMax: -1, Cache: NewCache(1 << 20)}
			tab, err := Open(context.Background(), src, opts)
			if err == nil {
				_, err = entriesOf(tab, iter)
			}
			if src.n.Load() > 0 {
				break // fewer reads than that
			}
			if iter.ReadAheadBytes > 0 && err == nil {
				continue // read ahead in vain, then block by block
			}
			if !errors.Is(err, errDisk) || errors.Is(err, ErrCorrupt) {
				t.Fatalf("read %d: %v", n, err)
			}
			if tab == nil {
				continue
			}
			if got, err := entriesOf(tab, iter); err != nil || !equalEntries(got, entries) {
				t.Fatalf("read %d: again: %v", n, err)
			}
		}
	}
}

func TestOpenCancelled(t *testing.T) {
	file, _ := build(t, Options{}, nil, compatEntries(3))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, bytesSource(file), OpenOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Verify(ctx, bytesSource(file), VerifyOptions{}, func(error) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Dump(ctx, &bytes.Buffer{}, bytesSource(file), DumpOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
