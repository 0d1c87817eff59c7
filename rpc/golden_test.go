package rpc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// goldenFrame reads the worked example in doc.go, so that the spec and the code agree.
func goldenFrame(t *testing.T) []byte {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(doc), "// Worked example")
	if !ok {
		t.Fatal("doc.go has no worked example")
	}
	var b []byte
	for line := range strings.Lines(text) {
		digits, ok := strings.CutPrefix(line, "//\t")
		if !ok && len(b) > 0 {
			break
		}
		if ok {
			row, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, row...)
		}
	}
	return b
}

func TestGoldenFrame(t *testing.T) {
	want := goldenFrame(t)
	var enc wire.Encoder
	beginRequest(&enc, 1, "get")
	enc.Array(1)
	enc.Str("k")
	sealFrame(enc.Bytes(), 1000)
	if !bytes.Equal(enc.Bytes(), want) {
		t.Errorf("frame % x\nwant  % x", enc.Bytes(), want)
	}
	m, err := finishFrame(parseHeader(want), want[:headerBytes], want[headerBytes:])
	if err != nil || m.timeoutMS != 1000 {
		t.Fatalf("parse: %v, timeout %d", err, m.timeoutMS)
	}
	q, err := parseRequest(m.body)
	if err != nil || q.id != 1 || string(q.method) != "get" || q.n != 1 || string(q.params) != "\xa1k" {
		t.Errorf("request %+v, %v", q, err)
	}
}

// P2: every bit flip in a frame is detected.
func TestEveryBitFlipOfAFrameIsSeen(t *testing.T) {
	good := goldenFrame(t)
	for i := range len(good) * 8 {
		b := bytes.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		h := parseHeader(b)
		n := headerBytes + int(h.length)
		if n > len(b) {
			continue // waits for more bytes; the checksum detects it then
		}
		if _, err := finishFrame(h, b[:headerBytes], b[headerBytes:n]); err == nil {
			t.Errorf("bit %d: accepted", i)
		}
	}
}

func TestGoldenPreamble(t *testing.T) {
	if got := preamble(1); string(got[:]) != "STELE\x01\x00\n" {
		t.Errorf("preamble %q", got)
	}
	for in, want := range map[string]byte{
		"STELE\x01\x00\n": 1, "STELE\x07\xff\n": 1, "STELE\x00\x00\n": 0, "STELE\x01\x00\r": 0, "SSH-2.0-": 0,
	} {
		got, err := parsePreamble([preambleBytes]byte([]byte(in)))
		if got != want || (err == nil) != (want > 0) || err != nil && !errors.Is(err, ErrPreamble) {
			t.Errorf("%q: version %d, %v", in, got, err)
		}
	}
}
