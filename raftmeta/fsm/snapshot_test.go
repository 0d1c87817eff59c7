package fsm

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/raftmeta/api"
)

// goldenStream is the snapshot of the worked example in doc.go: /cluster, set at index 4, and the
// session n1, opened at index 5, which acquired the lock of /master at 6.
const goldenStream = `
	53 54 45 4c 45 4e 53 50  00 00 00 02  8f b6 46 84
	00 00 00 52  26 48 a4 c7
	94 04 05 a2 6e 31 cd 07 d0
	96 01 a1 2f c3 00 06 c4 00
	96 01 a8 2f 63 6c 75 73 74 65 72 c2 04 04 c4 02 ca fe
	9e 03 a7 2f 6d 61 73 74 65 72 c2 06 06 c4 00 00 00 a0 00 06 00 00 00
	96 05 05 a7 2f 6d 61 73 74 65 72 01 cd 03 e8 06
	96 02 06 03 11 01 01`

// goldenStream1 is a snapshot of version 1 with only /cluster.
const goldenStream1 = `
	53 54 45 4c 45 4e 53 50  00 00 00 01  9c e6 b5 70
	00 00 00 20  e7 8c e5 14
	96 01 a1 2f c3 00 04 c4 00
	96 01 a8 2f 63 6c 75 73 74 65 72 c2 04 04 c4 02 ca fe
	94 02 04 02 0a`

func goldenNamespace() *Namespace {
	ns := NewNamespace()
	put(ns, 4, "/cluster", []byte{0xca, 0xfe}, 0)
	ns.Apply(5, 2, &Command{Op: OpOpenSession, Name: "n1", Duration: 2 * time.Second})
	ns.Apply(6, 2, &Command{Op: OpAcquire, Session: 5, Path: "/master", Mode: api.Exclusive, Duration: time.Second})
	return ns
}

// goldenOwned is a snapshot with a user's session and file.
const goldenOwned = `
	53 54 45 4c 45 4e 53 50  00 00 00 03  7d dd c5 87
	00 00 00 5d  7b db bb 44
	94 04 04 a1 77 cd 07 d0
	96 01 a1 2f c3 00 05 c4 00
	96 01 a6 2f 6c 6f 63 6b 73 c3 05 05 c4 00
	96 01 a8 2f 6c 6f 63 6b 73 2f 66 c2 05 05 c4 01 01
	94 06 a3 61 6e 6e 04 a0
	94 06 a3 61 6e 6e 00 a6 2f 6c 6f 63 6b 73
	94 06 a3 61 6e 6e 00 a8 2f 6c 6f 63 6b 73 2f 66
	96 02 05 03 0f 01 00`

// ownedNamespace has a session of the user ann, and /locks/f, which ann wrote.
func ownedNamespace() *Namespace {
	ns := NewNamespace()
	ann := &Quota{Owner: "ann", Bytes: 1 << 20, AllBytes: 1 << 20, Sessions: 1, AllSessions: 1}
	ns.Apply(4, 2, &Command{Op: OpOpenSession, Name: "w", Duration: 2 * time.Second, Quota: ann})
	ns.Apply(5, 2, &Command{Op: OpSet, Path: "/locks/f", Data: []byte{1}, Generation: api.AnyGeneration, Quota: ann})
	return ns
}

// goldenRemoval is a snapshot after /a was set at index 2, and deleted at 3.
const goldenRemoval = `
	53 54 45 4c 45 4e 53 50  00 00 00 04  a9 17 a1 6c
	00 00 00 15  21 36 18 b6
	96 01 a1 2f c3 00 03 c4 00
	93 07 a1 2f 03
	96 02 03 01 00 00 00`

// stream returns the snapshot of ns.
func stream(tb testing.TB, ns *Namespace, applied uint64) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := WriteSnapshot(&b, ns, applied); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// sameNamespace fails the test unless a and b hold the same nodes.
func sameNamespace(tb testing.TB, a, b *Namespace) {
	tb.Helper()
	if !bytes.Equal(stream(tb, a, 0), stream(tb, b, 0)) {
		tb.Error("namespaces differ")
	}
}

func TestSnapshotGolden(t *testing.T) {
	want := wiretest.Unhex(t, goldenStream)
	if got := stream(t, goldenNamespace(), 6); !bytes.Equal(got, want) {
		t.Errorf("write:\ngot  % x\nwant % x", got, want)
	}
	ns, applied, err := ReadSnapshot(bytes.NewReader(want))
	if err != nil || applied != 6 {
		t.Fatalf("read: index %d, %v", applied, err)
	}
	sameNamespace(t, goldenNamespace(), ns)
	checkNamespace(t, ns)

	owned := wiretest.Unhex(t, goldenOwned)
	if got := stream(t, ownedNamespace(), 5); !bytes.Equal(got, owned) {
		t.Errorf("write owners:\ngot  % x\nwant % x", got, owned)
	}
	if ns, _, err = ReadSnapshot(bytes.NewReader(owned)); err != nil {
		t.Fatal(err)
	}
	sameNamespace(t, ownedNamespace(), ns)
	checkNamespace(t, ns)

	removal := wiretest.Unhex(t, goldenRemoval)
	ns, _, err = ReadSnapshot(bytes.NewReader(removal))
	if err != nil || ns.Get(root).removed != 3 {
		t.Fatalf("read a removal: %v", err)
	}
	if got := stream(t, ns, 3); !bytes.Equal(got, removal) {
		t.Errorf("write a removal:\ngot  % x\nwant % x", got, removal)
	}

	ns, applied, err = ReadSnapshot(bytes.NewReader(wiretest.Unhex(t, goldenStream1)))
	if err != nil || applied != 4 {
		t.Fatalf("read version 1: index %d, %v", applied, err)
	}
	old := NewNamespace()
	put(old, 4, "/cluster", []byte{0xca, 0xfe}, 0)
	sameNamespace(t, old, ns)
}

// TestSnapshotRestores100k restores 100,000 files from reads of random sizes.
func TestSnapshotRestores100k(t *testing.T) {
	ns := filled(100_000)
	put(ns, 200_000, "/large", bytes.Repeat([]byte("l"), api.FileBytesMax), 0)
	put(ns, 200_001, "/empty", nil, 0)
	put(ns, 200_002, "/dir/gone", nil, 0)
	del(ns, 200_003, "/dir/gone", api.AnyGeneration)
	b := stream(t, ns, 200_003)
	start := time.Now()
	got, applied, err := ReadSnapshot(iotest.HalfReader(bytes.NewReader(b)))
	if err != nil || applied != 200_003 {
		t.Fatalf("index %d, %v", applied, err)
	}
	t.Logf("%d bytes read in %v", len(b), time.Since(start))
	checkNamespace(t, got)
	sameNamespace(t, ns, got)
}

// TestSnapshotEveryByteCounts flips each bit of a stream, and truncates it at each byte.
func TestSnapshotEveryByteCounts(t *testing.T) {
	ns := goldenNamespace()
	put(ns, 7, "/tables/web", []byte("schema"), 0)
	b := stream(t, ns, 7)
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			_, _, err := ReadSnapshot(bytes.NewReader(bad))
			var at *StreamError
			if !errors.As(err, &at) || !errors.Is(err, ErrBadSnapshot) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
			if at.Offset > int64(i) {
				t.Fatalf("byte %d flipped, but the error is at %d", i, at.Offset)
			}
		}
		if _, _, err := ReadSnapshot(bytes.NewReader(b[:i])); !errors.Is(err, ErrBadSnapshot) {
			t.Fatalf("cut at byte %d: %v", i, err)
		}
	}
	if _, _, err := ReadSnapshot(bytes.NewReader(append(b, 0))); !errors.Is(err, ErrBadSnapshot) {
		t.Fatalf("a byte more: %v", err)
	}
	if _, _, err := ReadSnapshot(iotest.TimeoutReader(bytes.NewReader(b))); !errors.Is(err, iotest.ErrTimeout) {
		t.Fatalf("a reader that fails: %v", err)
	}
}

// sealed returns frames of payloads with valid checksums.
func sealed(payloads ...[]byte) []byte {
	var b bytes.Buffer
	fw := &frameWriter{w: &b, enc: nil}
	fw.header(streamVersion)
	for _, p := range payloads {
		h := []byte{byte(len(p) >> 24), byte(len(p) >> 16), byte(len(p) >> 8), byte(len(p))}
		fw.sum = crc.Update(crc.Update(fw.sum, h), p)
		b.Write(h)
		b.Write([]byte{byte(fw.sum >> 24), byte(fw.sum >> 16), byte(fw.sum >> 8), byte(fw.sum)})
		b.Write(p)
	}
	return b.Bytes()
}

// TestSnapshotRejectsInvalidRecords has streams with valid checksums and invalid records.
func TestSnapshotRejectsInvalidRecords(t *testing.T) {
	const (
		rootNode = "96 01 a1 2f c3 00 00 c4 00"
		fileA    = "96 01 a2 2f 61 c2 04 04 c4 00" // /a
		fileB    = "96 01 a2 2f 62 c2 04 04 c4 00" // /b
		fileAB   = "96 01 a4 2f 61 2f 62 c2 04 04 c4 00"

		s5        = "94 04 05 a0 cd 07 d0"
		ephemeral = "9e 03 a2 2f 61 c2 04 04 c4 00 05 00 a0 00 00 00 00 00" // /a
		lockedA   = "9e 03 a2 2f 61 c2 04 04 c4 00 00 00 a0 00 06 00 00 00"
	)
	for name, records := range map[string]string{
		"no root":                fileA + "94 02 04 01 02",
		"nothing":                "94 02 04 00 00",
		"root twice":             rootNode + rootNode + "94 02 04 02 00",
		"a file twice":           rootNode + fileA + fileA + "94 02 04 02 02",
		"out of order":           rootNode + fileB + fileA + "94 02 04 03 04",
		"below a file":           rootNode + fileA + fileAB + "94 02 04 03 06",
		"without a directory":    rootNode + fileAB + "94 02 04 02 04",
		"bad path":               rootNode + "96 01 a2 2f 2f c2 04 04 c4 00" + "94 02 04 02 02",
		"directory with content": rootNode + "96 01 a2 2f 61 c3 04 04 c4 01 00" + "94 02 04 02 03",
		"changed before made":    rootNode + "96 01 a2 2f 61 c2 04 03 c4 00" + "94 02 04 02 02",
		"wrong number of nodes":  rootNode + fileA + "94 02 04 03 02",
		"wrong number of bytes":  rootNode + fileA + "94 02 04 02 03",
		"record after the end":   rootNode + fileA + "94 02 04 02 02" + fileB,
		"unknown kind":           rootNode + "92 06 00" + "94 02 04 01 00",
		"session after nodes":    rootNode + s5 + "96 02 05 01 00 01 00",
		"session zero":           "94 04 00 a0 cd 07 d0" + rootNode + "96 02 05 01 00 01 00",
		"session twice":          s5 + s5 + rootNode + "96 02 05 01 00 02 00",
		"lease too short":        "94 04 05 a0 01" + rootNode + "96 02 05 01 00 01 00",
		"uncounted session":      s5 + rootNode + "94 02 05 01 00",
		"ephemeral of nobody":    rootNode + ephemeral + "96 02 05 02 02 00 00",
		"ephemeral not held":     s5 + rootNode + ephemeral + "96 02 05 02 02 01 00",
		"hold of nobody":         rootNode + lockedA + "96 05 05 a2 2f 61 01 00 06" + "96 02 06 02 02 00 01",
		"hold of nothing":        s5 + rootNode + "96 05 05 a2 2f 61 01 00 06" + "96 02 06 01 00 01 01",
		"hold twice":             s5 + rootNode + lockedA + "96 05 05 a2 2f 61 02 00 06" + "96 05 05 a2 2f 61 02 00 06" + "96 02 06 02 02 01 02",
		"lock never taken":       s5 + rootNode + fileA + "96 05 05 a2 2f 61 01 00 06" + "96 02 06 02 02 01 01",
		"delay without a mode":   rootNode + "9e 03 a2 2f 61 c2 04 04 c4 00 00 00 a0 00 04 01 00 05" + "96 02 06 02 02 00 00",
		"too few values":         rootNode + "95 01 a2 2f 61 c2 04 04" + "94 02 04 02 02",
		"no end":                 rootNode + fileA,
		"not MessagePack":        rootNode + "c1",
	} {
		_, _, err := ReadSnapshot(bytes.NewReader(sealed(wiretest.Unhex(t, records))))
		if !errors.Is(err, ErrBadSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, records := range map[string]string{
		"ephemeral file": s5 + rootNode + ephemeral + "96 05 05 a2 2f 61 00 00 06" + "96 02 06 02 02 01 01",
		"lock":           s5 + rootNode + lockedA + "96 05 05 a2 2f 61 01 00 06" + "96 02 06 02 02 01 01",
	} {
		if _, _, err := ReadSnapshot(bytes.NewReader(sealed(wiretest.Unhex(t, records)))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := wiretest.Unhex(t, rootNode+fileA+"94 02 04 02 02")
	if _, _, err := ReadSnapshot(bytes.NewReader(sealed(good[:9], good[9:19], nil, good[19:]))); err != nil {
		t.Errorf("records spread over frames: %v", err)
	}
}

func TestSnapshotNewerVersion(t *testing.T) {
	b := wiretest.Unhex(t, "53 54 45 4c 45 4e 53 50 00 00 00 05")
	sum := crc.Sum(b)
	b = append(b, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
	_, _, err := ReadSnapshot(bytes.NewReader(b))
	var newer *VersionError
	if !errors.As(err, &newer) || newer.Version != 5 {
		t.Errorf("got %v", err)
	}
}

// FuzzSnapshot checks that no stream makes the reader panic or allocate more than its bound, and
// that an accepted one is a valid namespace. The input is tried as it is and, because the fuzzer
// will not find checksums, as the payload of a frame.
func FuzzSnapshot(f *testing.F) {
	f.Add(wiretest.Unhex(f, goldenStream))
	f.Add(wiretest.Unhex(f, goldenStream)[24:])
	f.Add(wiretest.Unhex(f, goldenStream1))
	f.Add(wiretest.Unhex(f, goldenRemoval))
	ns := filled(20)
	f.Add(stream(f, ns, 20))
	f.Add(stream(f, ns, 20)[24:])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range [][]byte{b, sealed(b)} {
			ns, applied, err := ReadSnapshot(bytes.NewReader(in))
			if err != nil {
				var at *StreamError
				if !errors.As(err, &at) {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			checkNamespace(t, ns)
			again, _, err := ReadSnapshot(bytes.NewReader(stream(t, ns, applied)))
			if err != nil {
				t.Fatalf("read what was written: %v", err)
			}
			sameNamespace(t, ns, again)
		}
	})
}

// TestSnapshotReaderIsBounded declares a frame of the largest encodable size.
func TestSnapshotReaderIsBounded(t *testing.T) {
	b := append(sealed(), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	n := testing.AllocsPerRun(1, func() {
		if _, _, err := ReadSnapshot(io.MultiReader(bytes.NewReader(b), zeros{})); !errors.Is(err, ErrBadSnapshot) {
			t.Error(err)
		}
	})
	if n > 50 {
		t.Errorf("%v allocations", n)
	}
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
