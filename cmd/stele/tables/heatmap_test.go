package tables

import (
	"bytes"
	"image/png"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/internal/health"
)

// hostileHeat returns the heat of rows with control characters, over three minutes.
func hostileHeat() *client.KeyHeat {
	return &client.KeyHeat{
		Table: "t", IntervalMS: 60_000, Columns: 3, Starts: [][]byte{nil, []byte("\x1b[31m")}, Ends: [][]byte{[]byte("\x1b[31m"), nil},
		Reads: []int64{0, 1, 1000, 0, 0, 0}, Writes: []int64{0, 0, 0, 0, 0, 5}, ReadBytes: make([]int64, 6), WriteBytes: make([]int64, 6),
		ReadMicros: []int64{0, 250, 40_000_000, 0, 0, 0}, WriteMicros: make([]int64, 6),
		Hot: []api.HotRow{{Row: []byte("\n\x1b]0;title\x07"), Reads: 900, Users: []api.HotUser{{Name: "ann\x1b[2J", Ops: 800}, {Name: "bob", Ops: 9}}}}, Large: []api.LargeRow{{Row: []byte("\xff"), Bytes: 1 << 21}},
	}
}

// TestMap: a map has a line for each range, with darker blocks for more operations, and no row key controls the terminal.
func TestMap(t *testing.T) {
	a, out, _ := clitest.New()
	printMap(a, hostileHeat(), &health.HeatMeasures[0])
	if err := printKeys(a, hostileHeat(), &health.HeatMeasures[0]); err != nil {
		t.Fatal(err)
	}
	if err := a.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if lines := strings.Split(text, "\n"); !strings.Contains(lines[0], "│ ░█│") || !strings.Contains(lines[1], "│  ▒│") {
		t.Errorf("%s", text)
	}
	if strings.ContainsAny(text, "\x1b\x07") || !strings.Contains(text, `\x1b[31m`) || !strings.Contains(text, `hot: about 900 reads, 0 writes; most by ann\x1b[2J (800), bob (9)`) || !strings.Contains(text, "40 ms      -") {
		t.Errorf("%q", text)
	}
}

// TestMapMeasures: a map has the quantity that is selected, with its unit, the mean of neighbours that share a cell, and ranges in its order.
func TestMapMeasures(t *testing.T) {
	k := &client.KeyHeat{
		Table: "t", IntervalMS: 60_000, Columns: 2 * mapWidth, Starts: [][]byte{nil, []byte("m")}, Ends: [][]byte{[]byte("m"), nil},
		Reads: make([]int64, 4*mapWidth), Writes: make([]int64, 4*mapWidth), ReadBytes: make([]int64, 4*mapWidth), WriteBytes: make([]int64, 4*mapWidth),
		ReadMicros: make([]int64, 4*mapWidth), WriteMicros: make([]int64, 4*mapWidth),
	}
	k.Reads[0], k.ReadMicros[0], k.Reads[1], k.ReadMicros[1] = 1, 9000, 3, 3000 // a mean of 3 ms
	k.Writes[2*mapWidth], k.WriteBytes[2*mapWidth] = 2, 4096
	for i, want := range []string{"4 reads and writes", "4 reads", "2 writes", "0 B read", "4 KiB written", "3 ms a read", "0 ms a write"} {
		a, out, _ := clitest.New()
		printMap(a, k, &health.HeatMeasures[i])
		if err := a.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "█ is up to "+want+"\n") {
			t.Errorf("%s: %s", want, out)
		}
	}
	for i, first := range map[int]string{1: "m", 4: ""} {
		if got := k.Ranges(namesMost, health.HeatMeasures[i].Of); string(got[0].End) != first {
			t.Errorf("%s: first the range up to %q", health.HeatMeasures[i].Name, got[0].End)
		}
	}
}

// TestKeysRequest: the flags select rows and a time as the fields of the console do.
func TestKeysRequest(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	f := keysFlags{from: `a\x00`, to: "b", since: 30 * time.Minute, until: "2h ago"}
	r, err := f.request("t", now)
	if err != nil || string(r.Start) != "a\x00" || string(r.End) != "b" {
		t.Fatalf("%+v, %v", r, err)
	}
	if end, start := time.UnixMilli(r.UntilMS), time.UnixMilli(r.UntilMS).Add(-r.Since); now.Sub(end) != 2*time.Hour+time.Millisecond || now.Sub(start) != 150*time.Minute {
		t.Errorf("from %v to %v", start, end)
	}
	for _, f := range []keysFlags{
		{since: time.Hour, from: "b", to: "a"}, {since: time.Hour, from: "a", to: "a"}, {since: time.Hour, to: `\x`}, {since: time.Hour, until: "15d"},
		{since: time.Hour, until: "2026-11-28T13:00:00Z"}, {since: time.Hour, until: "noon"}, {since: time.Second},
	} {
		if r, err := f.request("t", now); err == nil {
			t.Errorf("%+v: %+v", f, r)
		}
	}
}

func TestKeysJSON(t *testing.T) {
	clitest.Golden(t, "keys", func(a *cli.App) error { return a.PrintJSON(keysOf(hostileHeat())) })
}

// TestImage: an image has a brighter cell for more operations.
func TestImage(t *testing.T) {
	var b bytes.Buffer
	if err := drawHeat(&b, hostileHeat(), &health.HeatMeasures[0]); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	size := img.Bounds().Size()
	var got []uint32
	for _, at := range []int{0, 1, 2} {
		r, g, b, _ := img.At(size.X*(2*at+1)/6, size.Y/4).RGBA()
		got = append(got, r+g+b)
	}
	if size.X < pngWidth || size.Y < pngHeight || !slices.IsSorted(got) || got[0] == got[1] || got[1] == got[2] {
		t.Errorf("%v: %v", size, got)
	}
	if err := drawHeat(&b, &client.KeyHeat{}, &health.HeatMeasures[0]); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}
