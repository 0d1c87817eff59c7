package raftmeta

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/raftmeta/api"
)

// The commands of the worked example in doc.go come first.
var goldenCommands = []struct {
	c   command
	hex string
}{
	{
		command{op: opSet, term: 3, path: "/cluster", data: []byte{0xca, 0xfe}, generation: 0},
		"99 02 01 03 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00 00 c2 c0",
	},
	{
		command{op: opAcquire, term: 3, session: 9, path: "/master", mode: api.Exclusive, duration: time.Second},
		"97 02 06 03 09 a7 2f 6d 61 73 74 65 72 01 cd 03 e8",
	},
	{
		command{op: opSet, term: 3, path: "/a", data: []byte{}, generation: AnyGeneration, session: 9, ephemeral: true,
			guard: api.Sequencer{Path: "/m", Mode: api.Shared, Instance: 4, LockGeneration: 5}},
		"99 02 01 03 a2 2f 61 c4 00 c0 09 c3 94 a2 2f 6d 02 04 05",
	},
	{
		command{op: opDelete, term: 3, path: "/tables/web", generation: 300, session: 9},
		"97 02 02 03 ab 2f 74 61 62 6c 65 73 2f 77 65 62 cd 01 2c 09 c0",
	},
	{command{op: opOpenSession, term: 3, name: "n1", duration: 2 * time.Second}, "95 02 03 03 a2 6e 31 cd 07 d0"},
	{command{op: opCloseSession, term: 3, session: 9}, "94 02 04 03 09"},
	{command{op: opExpireSession, term: 3, sessions: []api.SessionID{9, 300}}, "94 02 05 03 92 09 cd 01 2c"},
	{command{op: opRelease, term: 3, session: 9, path: "/m", hold: 10}, "96 02 07 03 09 a2 2f 6d 0a"},
	{command{op: opEndLockDelay, term: 3, delays: []delayRef{{"/m", 12}}}, "94 02 08 03 91 92 a2 2f 6d 0c"},
	{command{op: opMarkCached, term: 3, path: "/m", generation: 7}, "95 02 09 03 a2 2f 6d 07"},
	{
		command{op: opSet, term: 3, path: "/a", data: []byte{}, generation: AnyGeneration, quota: &Quota{Owner: "ann", Bytes: 256, AllBytes: 300, Sessions: 7, AllSessions: 8}},
		"9a 03 01 03 a2 2f 61 c4 00 c0 00 c2 c0 95 a3 61 6e 6e cd 01 00 cd 01 2c 07 08",
	},
	{command{op: opOpenSession, term: 3, name: "n1", duration: 2 * time.Second, quota: &Quota{Owner: "a"}}, "96 03 03 03 a2 6e 31 cd 07 d0 95 a1 61 00 00 00 00"},
	{command{op: opSetACL, term: 3, path: "/m", name: "ops"}, "97 02 0a 03 a2 2f 6d a3 6f 70 73 00 c0"},
}

// Commands of version 1, which are only read.
var goldenVersion1 = []struct {
	c   command
	hex string
}{
	{
		command{op: opSet, path: "/cluster", data: []byte{0xca, 0xfe}, generation: 0},
		"95 01 01 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00",
	},
	{
		command{op: opDelete, path: "/tables/web", generation: AnyGeneration},
		"94 01 02 ab 2f 74 61 62 6c 65 73 2f 77 65 62 c0",
	},
}

var commandDiff = cmp.AllowUnexported(command{}, delayRef{})

func TestCommandGolden(t *testing.T) {
	for _, g := range goldenCommands {
		want := wiretest.Unhex(t, g.hex)
		if got := g.c.encode(); !bytes.Equal(got, want) {
			t.Errorf("encode %v:\ngot  % x\nwant % x", g.c, got, want)
		}
	}
	for _, g := range append(goldenVersion1, goldenCommands...) {
		want := wiretest.Unhex(t, g.hex)
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
	c := command{op: opSet, term: AnyGeneration, path: "/" + strings.Repeat("p", PathBytesMax-1), data: make([]byte, FileBytesMax),
		generation: AnyGeneration - 1, session: AnyGeneration, ephemeral: true,
		guard: api.Sequencer{Path: "/" + strings.Repeat("p", PathBytesMax-1), Mode: api.Shared, Instance: AnyGeneration, LockGeneration: AnyGeneration},
		quota: &Quota{Owner: strings.Repeat("o", OwnerBytesMax), Bytes: math.MaxInt64, AllBytes: math.MaxInt64, Sessions: math.MaxInt64, AllSessions: math.MaxInt64}}
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
		"empty":                  {nil, false},
		"not an array":           {wiretest.Unhex(t, "01"), false},
		"no operation":           {wiretest.Unhex(t, "91 01"), false},
		"version 0":              {wiretest.Unhex(t, "94 00 02 a2 2f 61 c0"), false},
		"operation 0":            {wiretest.Unhex(t, "94 01 00 a2 2f 61 c0"), false},
		"too few values":         {wiretest.Unhex(t, "93 01 02 a2 2f 61"), false},
		"too many":               {wiretest.Unhex(t, "95 01 02 a2 2f 61 c0 c0"), false},
		"trailing":               {wiretest.Unhex(t, "94 01 02 a2 2f 61 c0 00"), false},
		"cut":                    {wiretest.Unhex(t, "95 01 01 a2 2f 61 c4 05 00"), false},
		"negative":               {wiretest.Unhex(t, "94 01 02 a2 2f 61 ff"), false},
		"too long":               {make([]byte, commandBytesMax+1), false},
		"newer op in 1":          {wiretest.Unhex(t, "93 01 03 a2 6e 31"), false},
		"no mode":                {wiretest.Unhex(t, "97 02 06 03 09 a2 2f 6d 03 00"), false},
		"delay too long":         {wiretest.Unhex(t, "97 02 06 03 09 a2 2f 6d 01 ce 00 00 ea 61"), false},
		"quota without an owner": {wiretest.Unhex(t, "95 03 04 03 09 95 a0 01 01 01 01"), false},
		"quota cut":              {wiretest.Unhex(t, "95 03 04 03 09 94 a1 61 01 01 01"), false},
		"quota too large":        {wiretest.Unhex(t, "95 03 04 03 09 95 a1 61 cf ff ff ff ff ff ff ff ff 01 01 01"), false},
		"no quota in 3":          {wiretest.Unhex(t, "94 03 04 03 09"), false},
		"quota in 2":             {wiretest.Unhex(t, "95 02 04 03 09 95 a1 61 01 01 01 01"), false},
		"guard of none":          {wiretest.Unhex(t, "97 02 02 03 a2 2f 61 c0 00 94 a0 01 04 05"), false},
		"newer version":          {newer(func(e *wire.Encoder) { e.Array(3); e.Uint(4); e.Uint(1); e.Nil() }), true},
		"newer op":               {newer(func(e *wire.Encoder) { e.Array(2); e.Uint(1); e.Uint(99) }), true},
	} {
		_, err := decodeCommand(tc.in)
		var ve *VersionError
		if isNewer := errors.As(err, &ve); err == nil || isNewer != tc.newer || errors.Is(err, errBadCommand) == tc.newer {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzCommand checks that no input makes the decoder or the state machine panic, and that a decoded
// command is equal after encoding and decoding it again.
func FuzzCommand(f *testing.F) {
	for _, g := range goldenCommands {
		f.Add(wiretest.Unhex(f, g.hex))
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
		put(ns, 1, "/a/b", []byte("x"), 0)
		ns.apply(2, 1, &command{op: opOpenSession, duration: api.LeaseMin})
		ns.apply(3, 1, &command{op: opAcquire, session: 2, path: "/a/b", mode: api.Shared, duration: api.LockDelayMax})
		before := ns.nodes.Len()
		ns.apply(4, c.term, &c)
		if grown := ns.nodes.Len() - before; grown > PathDepthMax || grown < -1 {
			t.Fatalf("one command made %d nodes", grown)
		}
		checkNamespace(t, ns)
	})
}
