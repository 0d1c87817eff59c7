package fsm

import (
	"bytes"
	"errors"
	"math"
	"os"
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
	c   Command
	hex string
}{
	{
		Command{Op: OpSet, Term: 3, Path: "/cluster", Data: []byte{0xca, 0xfe}, Generation: 0},
		"99 02 01 03 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00 00 c2 c0",
	},
	{
		Command{Op: OpAcquire, Term: 3, Session: 9, Path: "/master", Mode: api.Exclusive, Duration: time.Second},
		"97 02 06 03 09 a7 2f 6d 61 73 74 65 72 01 cd 03 e8",
	},
	{
		Command{Op: OpSet, Term: 3, Path: "/a", Data: []byte{}, Generation: api.AnyGeneration, Session: 9, Ephemeral: true,
			Guard: api.Sequencer{Path: "/m", Mode: api.Shared, Instance: 4, LockGeneration: 5}},
		"99 02 01 03 a2 2f 61 c4 00 c0 09 c3 94 a2 2f 6d 02 04 05",
	},
	{
		Command{Op: OpDelete, Term: 3, Path: "/tables/web", Generation: 300, Session: 9},
		"97 02 02 03 ab 2f 74 61 62 6c 65 73 2f 77 65 62 cd 01 2c 09 c0",
	},
	{Command{Op: OpOpenSession, Term: 3, Name: "n1", Duration: 2 * time.Second}, "95 02 03 03 a2 6e 31 cd 07 d0"},
	{Command{Op: OpCloseSession, Term: 3, Session: 9}, "94 02 04 03 09"},
	{Command{Op: OpExpireSession, Term: 3, Sessions: []api.SessionID{9, 300}}, "94 02 05 03 92 09 cd 01 2c"},
	{Command{Op: OpRelease, Term: 3, Session: 9, Path: "/m", Hold: 10}, "96 02 07 03 09 a2 2f 6d 0a"},
	{Command{Op: OpEndLockDelay, Term: 3, Delays: []DelayRef{{"/m", 12}}}, "94 02 08 03 91 92 a2 2f 6d 0c"},
	{Command{Op: OpMarkCached, Term: 3, Path: "/m", Generation: 7}, "95 02 09 03 a2 2f 6d 07"},
	{
		Command{Op: OpSet, Term: 3, Path: "/a", Data: []byte{}, Generation: api.AnyGeneration, Quota: &Quota{Owner: "ann", Bytes: 256, AllBytes: 300, Sessions: 7, AllSessions: 8}},
		"9a 03 01 03 a2 2f 61 c4 00 c0 00 c2 c0 95 a3 61 6e 6e cd 01 00 cd 01 2c 07 08",
	},
	{Command{Op: OpOpenSession, Term: 3, Name: "n1", Duration: 2 * time.Second, Quota: &Quota{Owner: "a"}}, "96 03 03 03 a2 6e 31 cd 07 d0 95 a1 61 00 00 00 00"},
	{
		Command{Op: OpSet, Term: 3, Path: "/a", Data: []byte{}, AbsentSince: 300, Quota: &Quota{Owner: "a"}},
		"9b 04 01 03 a2 2f 61 c4 00 00 00 c2 c0 95 a1 61 00 00 00 00 cd 01 2c",
	},
	{Command{Op: OpSet, Term: 3, Path: "/a", Data: []byte{}, AbsentSince: 1}, "9b 04 01 03 a2 2f 61 c4 00 00 00 c2 c0 c0 01"},
	{
		Command{Op: OpSet, Term: 3, Path: "/a", Data: []byte{}, From: "/b", FromGeneration: 300},
		"9d 05 01 03 a2 2f 61 c4 00 00 00 c2 c0 c0 00 a2 2f 62 cd 01 2c",
	},
	{Command{Op: OpSetACL, Term: 3, Path: "/m", Name: "ops"}, "97 02 0a 03 a2 2f 6d a3 6f 70 73 00 c0"},
}

// Commands of version 1, which are only read.
var goldenVersion1 = []struct {
	c   Command
	hex string
}{
	{
		Command{Op: OpSet, Path: "/cluster", Data: []byte{0xca, 0xfe}, Generation: 0},
		"95 01 01 a8 2f 63 6c 75 73 74 65 72 c4 02 ca fe 00",
	},
	{
		Command{Op: OpDelete, Path: "/tables/web", Generation: api.AnyGeneration},
		"94 01 02 ab 2f 74 61 62 6c 65 73 2f 77 65 62 c0",
	},
}

var commandDiff = cmp.AllowUnexported(Command{})

func TestCommandGolden(t *testing.T) {
	for _, g := range goldenCommands {
		want := wiretest.Unhex(t, g.hex)
		if got := g.c.Encode(); !bytes.Equal(got, want) {
			t.Errorf("encode %v:\ngot  % x\nwant % x", g.c, got, want)
		}
	}
	for _, g := range append(goldenVersion1, goldenCommands...) {
		want := wiretest.Unhex(t, g.hex)
		got, err := DecodeCommand(want)
		if err != nil {
			t.Errorf("decode % x: %v", want, err)
		}
		if d := cmp.Diff(g.c, got, commandDiff); d != "" {
			t.Errorf("decode % x: %s", want, d)
		}
	}
}

func TestCommandLargestFits(t *testing.T) {
	c := Command{Op: OpSet, Term: api.AnyGeneration, Path: "/" + strings.Repeat("p", PathBytesMax-1), Data: make([]byte, api.FileBytesMax),
		Generation: api.AnyGeneration - 1, Session: api.AnyGeneration, Ephemeral: true, AbsentSince: api.AnyGeneration,
		From: "/" + strings.Repeat("f", PathBytesMax-1), FromGeneration: api.AnyGeneration,
		Guard: api.Sequencer{Path: "/" + strings.Repeat("p", PathBytesMax-1), Mode: api.Shared, Instance: api.AnyGeneration, LockGeneration: api.AnyGeneration},
		Quota: &Quota{Owner: strings.Repeat("o", api.OwnerBytesMax), Bytes: math.MaxInt64, AllBytes: math.MaxInt64, Sessions: math.MaxInt64, AllSessions: math.MaxInt64}}
	b := c.Encode()
	if len(b) > CommandBytesMax {
		t.Errorf("%d bytes, at most %d", len(b), CommandBytesMax)
	}
	if _, err := DecodeCommand(b); err != nil {
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
		"too long":               {make([]byte, CommandBytesMax+1), false},
		"newer op in 1":          {wiretest.Unhex(t, "93 01 03 a2 6e 31"), false},
		"no mode":                {wiretest.Unhex(t, "97 02 06 03 09 a2 2f 6d 03 00"), false},
		"delay too long":         {wiretest.Unhex(t, "97 02 06 03 09 a2 2f 6d 01 ce 00 00 ea 61"), false},
		"quota without an owner": {wiretest.Unhex(t, "95 03 04 03 09 95 a0 01 01 01 01"), false},
		"quota cut":              {wiretest.Unhex(t, "95 03 04 03 09 94 a1 61 01 01 01"), false},
		"quota too large":        {wiretest.Unhex(t, "95 03 04 03 09 95 a1 61 cf ff ff ff ff ff ff ff ff 01 01 01"), false},
		"no quota in 3":          {wiretest.Unhex(t, "94 03 04 03 09"), false},
		"quota in 2":             {wiretest.Unhex(t, "95 02 04 03 09 95 a1 61 01 01 01 01"), false},
		"no since in 4":          {wiretest.Unhex(t, "9a 04 01 03 a2 2f 61 c4 00 00 00 c2 c0 c0"), false},
		"since in 3":             {wiretest.Unhex(t, "9b 03 01 03 a2 2f 61 c4 00 00 00 c2 c0 95 a1 61 00 00 00 00 01"), false},
		"no from in 5":           {wiretest.Unhex(t, "9b 05 01 03 a2 2f 61 c4 00 00 00 c2 c0 c0 00"), false},
		"from of none in 5":      {wiretest.Unhex(t, "9d 05 01 03 a2 2f 61 c4 00 00 00 c2 c0 c0 00 a0 05"), false},
		"guard of none":          {wiretest.Unhex(t, "97 02 02 03 a2 2f 61 c0 00 94 a0 01 04 05"), false},
		"newer version":          {newer(func(e *wire.Encoder) { e.Array(3); e.Uint(6); e.Uint(1); e.Nil() }), true},
		"newer op":               {newer(func(e *wire.Encoder) { e.Array(2); e.Uint(1); e.Uint(99) }), true},
	} {
		_, err := DecodeCommand(tc.in)
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
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		again, err := DecodeCommand(c.Encode())
		if err != nil {
			t.Fatalf("decode what encode wrote: %v", err)
		}
		if d := cmp.Diff(c, again, commandDiff); d != "" {
			t.Fatal(d)
		}
		ns := NewNamespace()
		put(ns, 1, "/a/b", []byte("x"), 0)
		ns.Apply(2, 1, &Command{Op: OpOpenSession, Duration: api.LeaseMin})
		ns.Apply(3, 1, &Command{Op: OpAcquire, Session: 2, Path: "/a/b", Mode: api.Shared, Duration: api.LockDelayMax})
		before := ns.nodes.Len()
		ns.Apply(4, c.Term, &c)
		if grown := ns.nodes.Len() - before; grown > PathDepthMax || grown < -1 {
			t.Fatalf("one command made %d nodes", grown)
		}
		checkNamespace(t, ns)
	})
}

// TestDocShowsTheGoldenBytes checks that the examples in doc.go are those of the golden tests.
func TestDocShowsTheGoldenBytes(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	doc := squeeze(strings.ReplaceAll(string(b), "//", ""))
	for _, example := range []string{goldenCommands[0].hex, goldenStream} {
		if !strings.Contains(doc, squeeze(example)) {
			t.Errorf("doc.go does not have %s", example)
		}
	}
}
