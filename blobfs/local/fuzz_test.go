package local

import (
	"bytes"
	"errors"
	"testing"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
)

// extentImage returns the file of an extent.
func extentImage(m extentMeta, payload []byte) []byte {
	x := make([]byte, pageBytes)
	m.encodeHeader(x)
	x = append(x, payload...)
	m.length = int64(len(payload))
	var chunks []uint32
	for at := 0; at < len(payload); at += ChunkBytes {
		chunks = append(chunks, crc.Sum(payload[at:min(at+ChunkBytes, len(payload))]))
	}
	return m.appendTail(x, chunks)
}

func writeImage(t *testing.T, fs vfs.FS, name string, image []byte) {
	t.Helper()
	f, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(image, 0); err != nil {
		t.Fatal(err)
	}
}

// FuzzExtent checks that no malformed file makes a reader crash or return bytes without a valid
// checksum. Re-encoding an accepted file must give the same file.
func FuzzExtent(f *testing.F) {
	m := extentMeta{blob: exampleID, index: 1, offset: 7, last: true}
	f.Add(extentImage(m, nil))
	f.Add(extentImage(m, []byte("hello, extent")))
	f.Add(extentImage(m, bytes.Repeat([]byte("x"), ChunkBytes+1)))
	f.Fuzz(func(t *testing.T, image []byte) {
		fs := vfs.NewMem(vfs.MemOptions{})
		writeImage(t, fs, "/x", image)
		x, err := openExtentFile(fs, "/x")
		if err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("error of an unexpected kind: %v", err)
			}
			return
		}
		defer x.file.Close()
		payload := make([]byte, x.length)
		err = x.ReadVerified(payload, 0)
		head, headErr := decodeHeader(image[:pageBytes], "/x")
		if err != nil || headErr != nil {
			return
		}
		x.meta.length = 0
		same := head.blob == x.meta.blob && head.index == x.meta.index && head.offset == x.meta.offset
		if again := extentImage(x.meta, payload); same && !bytes.Equal(again, image) {
			t.Fatalf("an extent of %d bytes is encoded otherwise", x.length)
		}
	})
}

// FuzzLogExtent checks that no file makes the scanner crash or return a frame that the encoder
// would not have written there.
func FuzzLogExtent(f *testing.F) {
	h := logHeader{state: logFileUsed, generation: 2, bytes: 6 * pageBytes, log: exampleID, seq: 3, prevSeq: 2, prevLen: pageBytes, start: pageBytes, salt: 99, live: 1}
	image := make([]byte, h.bytes)
	h.encode(image)
	encodeFrame(image[pageBytes:2*pageBytes], frameFull, []byte("one"), 3, h.salt, h.start)
	encodeFrame(image[2*pageBytes:4*pageBytes], frameFirst, make([]byte, 5000), 6000, h.salt, h.start+pageBytes)
	encodeFrame(image[4*pageBytes:5*pageBytes], frameSeal, nil, 0, h.salt, h.start+3*pageBytes)
	f.Add(image)
	f.Add(image[:4*pageBytes])
	f.Add(make([]byte, 2*pageBytes))
	f.Fuzz(func(t *testing.T, image []byte) {
		fs := vfs.NewMem(vfs.MemOptions{})
		if err := fs.MkdirAll("/d/logs"); err != nil {
			t.Fatal(err)
		}
		writeImage(t, fs, "/d/logs/x.log", image)
		file := &logFile{folder: &folder{path: "/d", fs: fs}, name: "x.log"}
		if err := file.readHeader(); err != nil {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("error of an unexpected kind: %v", err)
			}
			return
		}
		in, err := fs.OpenRead(file.path())
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		scan := newFrameScanner(in, file, file.header.bytes, newScanBuffer(file.header.bytes))
		for {
			off, pos := scan.off, scan.position()
			fr, err := scan.next()
			if err != nil {
				break
			}
			again := make([]byte, fr.bytes)
			encodeFrame(again, fr.kind, fr.payload, fr.total, file.header.salt, pos)
			// Bytes 5 to 7 and 12 to 15 of a frame are zero, and covered by the checksum.
			if image[off+5]|image[off+6]|image[off+7]|image[off+12]|image[off+13]|image[off+14]|image[off+15] == 0 &&
				bytes.Equal(bytes.TrimRight(again, "\x00"), bytes.TrimRight(image[off:off+fr.bytes], "\x00")) != true {
				t.Fatalf("the frame at %d is encoded otherwise", off)
			}
		}
		if _, err := readTail(file); err != nil {
			t.Fatalf("tail: %v", err)
		}
	})
}

// FuzzHandle checks that no input makes the decoder crash, allocate much, or accept inconsistent
// lengths.
func FuzzHandle(f *testing.F) {
	var e wire.Encoder
	AppendHandle(&e, Handle{ID: exampleID, Length: 5, Extents: []ExtentRef{
		{Index: 0, Length: 3, CRC: 1, Replicas: []string{"a", "b"}}, {Index: 1, Length: 2, CRC: 2}}})
	f.Add(bytes.Clone(e.Bytes()))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := wire.NewDecoder(b)
		h := DecodeHandle(&d)
		if d.Err() != nil {
			if h.Extents != nil || h.Length != 0 {
				t.Fatalf("half a handle: %+v", h)
			}
			return
		}
		var sum int64
		for i, x := range h.Extents {
			if x.Index != i || x.Length < 0 {
				t.Fatalf("extent %d: %+v", i, x)
			}
			sum += x.Length
		}
		if sum != h.Length || len(h.Extents) == 0 {
			t.Fatalf("%+v does not add up", h)
		}
		var again wire.Encoder
		AppendHandle(&again, h)
		d = wire.NewDecoder(again.Bytes())
		if back := DecodeHandle(&d); d.Err() != nil || back.ID != h.ID || len(back.Extents) != len(h.Extents) {
			t.Fatalf("round trip: %+v, %v", back, d.Err())
		}
	})
}
