package raftmeta

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/steledb/stele/internal/wire"
)

// The commands of the worked example in doc.go.
var goldenCommands = []struct {
	c   command
	hex string
}{
	{
		command{op: opSet, path: "/cluster", data: []byte{0xca, 0xfe}, generation: 0},
		"95 01 01 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00",
	},
	{
		command{op: opSet, path: "/a", data: []byte{}, generation: AnyGeneration},
		"95 01 01 a2 2f 61 c4 00 c0",
	},
	{
		command{op: opDelete, path: "/tables/web", generation: 300},
		"94 01 02 ab 2f 74 61 62 6c 65 73 2f 77 65 62 cd 01 2c",
	},
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

var commandDiff = cmp.AllowUnexported(command{})

func TestCommandGolden(t *testing.T) {
	for _, g := range goldenCommands {
		want := unhex(t, g.hex)
		if got := g.c.encode(); !bytes.Equal(got, want) {
			t.Errorf("encode %v:\ngot  % x\nwant % x", g.c, got, want)
		}
		got, err := decodeCommand(want)
		if err != nil {
			t.Errorf("decode % x: %v", want, err)
		}
		if d := cmp.Diff(g.c, got, commandDiff); d != "" {
			t.Errorf("decode % x: %s", want, d)
		}
	}
}

func TestCommandLargestFits(t *testing.T) {
	c := command{op: opSet, path: "/" + strings.Repeat("p", PathBytesMax-1), data: make([]byte, FileBytesMax), generation: AnyGeneration - 1}
	b := c.encode()
	if len(b) > commandBytesMax {
		t.Errorf("%d bytes, at most %d", len(b), commandBytesMax)
	}
	if _, err := decodeCommand(b); err != nil {
		t.Error(err)
	}
}

func TestCommandDecodeErrors(t *testing.T) {
	newer := func(f func(e *wire.Encoder)) []byte {
		var e wire.Encoder
		f(&e)
		return e.Bytes()
	}
	for name, tc := range map[string]struct {
		in    []byte
		newer bool
	}{
		"empty":          {nil, false},
		"not an array":   {unhex(t, "01"), false},
		"no operation":   {unhex(t, "91 01"), false},
		"version 0":      {unhex(t, "94 00 02 a2 2f 61 c0"), false},
		"operation 0":    {unhex(t, "94 01 00 a2 2f 61 c0"), false},
		"too few values": {unhex(t, "93 01 02 a2 2f 61"), false},
		"too many":       {unhex(t, "95 01 02 a2 2f 61 c0 c0"), false},
		"trailing":       {unhex(t, "94 01 02 a2 2f 61 c0 00"), false},
		"cut":            {unhex(t, "95 01 01 a2 2f 61 c4 05 00"), false},
		"negative":       {unhex(t, "94 01 02 a2 2f 61 ff"), false},
		"too long":       {make([]byte, commandBytesMax+1), false},
		"newer version":  {newer(func(e *wire.Encoder) { e.Array(3); e.Uint(2); e.Uint(1); e.Nil() }), true},
		"newer op":       {newer(func(e *wire.Encoder) { e.Array(2); e.Uint(1); e.Uint(99) }), true},
	} {
		_, err := decodeCommand(tc.in)
		var ve *VersionError
		if isNewer := errors.As(err, &ve); err == nil || isNewer != tc.newer || errors.Is(err, errBadCommand) == tc.newer {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCommand checks that no bytes make the decoder or the state machine panic,
// and that what decodes is what its encoding decodes to.
func FuzzCommand(f *testing.F) {
	for _, g := range goldenCommands {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCommand(b)
		if err != nil {
			return
		}
		again, err := decodeCommand(c.encode())
		if err != nil {
			t.Fatalf("decode what encode wrote: %v", err)
		}
		if d := cmp.Diff(c, again, commandDiff); d != "" {
			t.Fatal(d)
		}
		ns := newNamespace()
		ns.set(1, "/a/b", []byte("x"), 0)
		before := ns.nodes.Len()
		if c.op == opSet {
			ns.set(2, c.path, c.data, c.generation)
		} else {
			ns.remove(2, c.path, c.generation)
		}
		if grown := ns.nodes.Len() - before; grown > PathDepthMax || grown < -1 {
			t.Fatalf("one command made %d nodes", grown)
		}
		checkNamespace(t, ns)
	})
}
