package gossip

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var example = Meta{
	ID: "n1", Start: 5, Name: "a", RPC: "h:1", HTTP: "h:3", Zone: "z", Version: "v1",
	CapacityBytes: 1 << 20, FreeBytes: 1000, Voter: true, RaftEpoch: 2, GrowthBytes: -7, GrowthOver: 3600,
}

const exampleHex = "9f 01 a2 6e 31 05 a1 61 a3 68 3a 31 a3 68 3a 33 a1 7a a2 76 31 ce 00 10 00 00 cd 03 e8 cb 00 00 00 00 00 00 00 00 c3 02 f9 cd 0e 10"

func TestMetaGolden(t *testing.T) {
	b, err := example.encode()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := hex.DecodeString(strings.ReplaceAll(exampleHex, " ", ""))
	if d := cmp.Diff(want, b); d != "" {
		t.Errorf("got %x: %s", b, d)
	}
	m, err := decodeMeta(b)
	if err != nil || m != example {
		t.Errorf("got %+v, %v", m, err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if !strings.Contains(squeeze(strings.ReplaceAll(string(doc), "//", "")), exampleHex) {
		t.Error("doc.go does not show the example")
	}
}

func TestMetaOfOthers(t *testing.T) {
	b, err := example.encode()
	if err != nil {
		t.Fatal(err)
	}
	newer := append([]byte{0xdc, 0, 16, 2}, b[2:]...) // version 2 has one more field
	newer = append(newer, 0xa3, 'n', 'e', 'w')
	if m, err := decodeMeta(newer); err != nil || m != example {
		t.Errorf("of version 2: %+v, %v", m, err)
	}
	grown := example
	grown.GrowthBytes, grown.GrowthOver = 0, 0
	older := append([]byte{0x9d}, b[1:len(b)-4]...) // before the growth of disks was announced
	if m, err := decodeMeta(older); err != nil || m != grown {
		t.Errorf("of a node of before: %+v, %v", m, err)
	}
	for i := range b {
		if _, err := decodeMeta(b[:i]); err == nil {
			t.Errorf("the first %d bytes were taken", i)
		}
	}
	for _, text := range []string{"", "\x90", "\x9d\x00", "\xdd\xff\xff\xff\xff\x01", "\xc0"} {
		if _, err := decodeMeta([]byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	b, _ := example.encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			return // larger than a meta may be
		}
		if n, err := decodeMeta(again); err != nil || n != m {
			t.Errorf("%+v became %+v, %v", m, n, err)
		}
	})
}

func TestNotes(t *testing.T) {
	all := []note{{noteLeft, "n1", 7, ""}, {noteForget, "n2", 1 << 40, ""}, {noteLeft, "n3", 8, "sync /data1/x: input/output error"}}
	if d := cmp.Diff(all, decodeNotes(encodeNotes(all)), cmp.AllowUnexported(note{})); d != "" {
		t.Error(d)
	}
	long := "open " + strings.Repeat("ü", reasonMax) + ": input/output error"
	if s := reasonOf(long); len(s) > reasonMax || !utf8.ValidString(s) || !strings.HasPrefix(s, "open ü") || !strings.HasSuffix(s, ": input/output error") {
		t.Errorf("the reason of a note is %d bytes, %q", len(s), s)
	}
	for _, b := range []string{"", "\x91", "\x91\x92\x01\x01", "\xc0", "\xdd\xff\xff\xff\xff"} {
		if got := decodeNotes([]byte(b)); len(got) != 0 {
			t.Errorf("%q: got %+v", b, got)
		}
	}
}
