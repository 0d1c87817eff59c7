package local

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
)

// The tests read the package comment's examples from doc.go and compare them with what the code
// writes, byte for byte. Bytes that an example leaves out are zero.

var exampleID = ID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}

// example returns the bytes of the hex dump after the line "Example: name" in doc.go. Its lines
// have an offset and bytes.
func example(t *testing.T, name string, size int) []byte {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(doc), "// Example: "+name+"\n//\n")
	if !found {
		t.Fatalf("doc.go has no example %q", name)
	}
	out := make([]byte, size)
	for line := range strings.Lines(after) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "//")
		if line == "" {
			break
		}
		var at int
		fields := strings.Fields(line)
		if _, err := fmt.Sscanf(fields[0], "%x", &at); err != nil {
			t.Fatalf("example %q: line %q", name, line)
		}
		b, err := hex.DecodeString(strings.Join(fields[1:], ""))
		if err != nil {
			t.Fatalf("example %q: line %q: %v", name, line, err)
		}
		copy(out[at:], b)
	}
	return out
}

// dump formats bytes like the examples, without lines of zeros.
func dump(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 16 {
		line := b[at:min(at+16, len(b))]
		if len(bytes.Trim(line, "\x00")) > 0 {
			fmt.Fprintf(&out, "//\t%04x  % x\n", at, line)
		}
	}
	return out.String()
}

func compare(t *testing.T, name string, got []byte) {
	t.Helper()
	if want := example(t, name, len(got)); !bytes.Equal(got, want) {
		t.Errorf("example %q is now\n%s", name, dump(got))
	}
}

func memStore(t *testing.T) (*vfs.Mem, *Store) {
	t.Helper()
	fs := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(Config{Folders: []string{"/d"}, FS: fs, ExtentBytes: ChunkBytes, LogExtentsReady: -1, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return fs, s
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.OpenRead(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, _ := f.Size()
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

func TestGoldenExtent(t *testing.T) {
	fs, s := memStore(t)
	w, err := s.newWriter(exampleID, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("hello, extent")); err != nil {
		t.Fatal(err)
	}
	h, err := w.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "an extent", readFile(t, fs, "/d/blobs/"+exampleID.String()+".0of1"))

	var e wire.Encoder
	AppendHandle(&e, h)
	compare(t, "a handle", e.Bytes())
	d := wire.NewDecoder(e.Bytes())
	if back := DecodeHandle(&d); d.Err() != nil || fmt.Sprint(back) != fmt.Sprint(h) {
		t.Errorf("handle decodes to %+v, %v", back, d.Err())
	}
}

func TestGoldenLog(t *testing.T) {
	fs, s := memStore(t)
	w, err := s.CreateLog(context.Background(), exampleID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(context.Background(), []byte("hello, log")); err != nil {
		t.Fatal(err)
	}
	if err := w.Seal(context.Background()); err != nil {
		t.Fatal(err)
	}
	f := s.localLogs.mu.logs[exampleID].extents[0]
	got := readFile(t, fs, f.path())

	// The salt is random: use the file's own, then the example's.
	page := make([]byte, pageBytes)
	h := f.header
	image := func() []byte {
		h.encode(page)
		full, seal := make([]byte, pageBytes), make([]byte, pageBytes)
		encodeFrame(full, frameFull, []byte("hello, log"), 10, h.salt, 0)
		encodeFrame(seal, frameSeal, nil, 0, h.salt, pageBytes)
		return append(bytes.Join([][]byte{page, full, seal}, nil), make([]byte, len(got)-3*pageBytes)...)
	}
	if !bytes.Equal(got, image()) {
		t.Error("the writer writes something else than the encoders")
	}
	h.salt = 0x0123456789abcdef
	compare(t, "a log extent", image())
}

func TestGoldenReplica(t *testing.T) {
	fs, s := memStore(t)
	ctx := context.Background()
	o := LogOpen{Log: exampleID, Server: "n1", Seq: 2, Epoch: 3, Salt: 0x0123456789abcdef}
	if _, err := s.OpenLogReplica(ctx, o); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2*pageBytes)
	EncodeLogFrame(b[:pageBytes], []byte("hello"), 0, 1, 10, o.Salt, pageBytes, 0)
	EncodeLogFrame(b[pageBytes:], []byte("again"), 0, 1, 10, o.Salt, 2*pageBytes, pageBytes)
	a := LogAppend{Log: exampleID, Seq: 2, Epoch: 3, Start: pageBytes, Pos: pageBytes, Frames: b}
	if s.QueueLog(a, func(_ int64, err error) {
		if err != nil {
			t.Error(err)
		}
	}) {
		s.FlushLog(exampleID, 2)
	}
	if _, err := s.FenceLog(ctx, exampleID, 4); err != nil {
		t.Fatal(err)
	}
	c := LogCut{Log: exampleID, CutRequest: logproto.CutRequest{Seq: 2, Epoch: 4, Start: pageBytes, Length: pageBytes}}
	if err := s.CutLog(ctx, c); err != nil {
		t.Fatal(err)
	}
	compare(t, "a replica of a log extent", readFile(t, fs, s.logReplicas.logs[exampleID].extents[2].f.path()))
}
