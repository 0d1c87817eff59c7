package tables

import (
	"bytes"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
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
	printMap(a, hostileHeat())
	if err := printKeys(a, hostileHeat()); err != nil {
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

func TestKeysJSON(t *testing.T) {
	clitest.Golden(t, "keys", func(a *cli.App) error { return a.PrintJSON(keysOf(hostileHeat())) })
}

// TestImage: an image has a brighter cell for more operations.
func TestImage(t *testing.T) {
	var b bytes.Buffer
	if err := drawHeat(&b, hostileHeat()); err != nil {
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
	if err := drawHeat(&b, &client.KeyHeat{}); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}
