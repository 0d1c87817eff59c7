package vfs

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestGoldenCrypt encodes and decodes the example of the package comment.
func TestGoldenCrypt(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	stored := make([]byte, slotStart(0)+3+cryptExtraBytes)
	_, example, _ := strings.Cut(string(doc), "a nonce of bytes 0x03\n//\n")
	for line := range strings.Lines(example) {
		fields := strings.Fields(strings.TrimPrefix(line, "//"))
		if len(fields) == 0 {
			break
		}
		at, err := strconv.ParseInt(fields[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		b, err := hex.DecodeString(strings.Join(fields[1:], ""))
		if err != nil {
			t.Fatal(err)
		}
		copy(stored[at:], b)
	}

	key := DataKey{Number: 1, Secret: [DataKeyBytes]byte(bytes.Repeat([]byte{1}, DataKeyBytes))}
	h := cryptHeader{key: 1, salt: [cryptSaltBytes]byte(bytes.Repeat([]byte{2}, cryptSaltBytes))}
	aead, err := h.aead(&key.Secret)
	if err != nil {
		t.Fatal(err)
	}
	file := &cryptFile{aead: aead}
	want := make([]byte, slotStart(0))
	h.encode(want[:cryptHeaderBytes])
	want = file.seal(want, new(cryptScratch), 0, bytes.Repeat([]byte{3}, cryptNonceBytes), []byte("abc"))
	if !bytes.Equal(stored, want) {
		t.Errorf("the example is not what is written:\n%s", dumpExample(want))
	}

	mem := NewMem(MemOptions{})
	raw := create(t, mem, "f")
	_, err = raw.WriteAt(stored, 0)
	must(t, err)
	f, err := NewCrypt(mem, []DataKey{key}, allFiles).OpenRead("f")
	must(t, err)
	got := make([]byte, 3)
	if _, err := f.ReadAt(got, cryptClearBytes); err != nil || string(got) != "abc" {
		t.Errorf("the example reads as %q, %v", got, err)
	}
}

// dumpExample prints the 16-byte lines that are not all zeros.
func dumpExample(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 16 {
		line := b[at:min(at+16, len(b))]
		if !bytes.Equal(line, cryptZeros[:len(line)]) {
			fmt.Fprintf(&out, "//\t%04x  % x\n", at, line)
		}
	}
	return out.String()
}
