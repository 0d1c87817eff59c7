package tables

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

const (
	// mapLines and mapWidth are the size of a map in a terminal, in characters.
	mapLines, mapWidth = 24, 60
	labelWidth         = 18
	// pngWidth and pngHeight are the least size of an image, in pixels.
	pngWidth, pngHeight = 960, 480
)

// shades are blocks for more and more operations.
var shades = []string{" ", "░", "▒", "▓", "█"}

// level returns how much n is of most, from 0 to 1, on a logarithmic scale: so that quiet ranges differ beside a hot one.
func level(n, most int64) float64 {
	if n <= 0 || most <= 0 {
		return 0
	}
	return math.Log1p(float64(n)) / math.Log1p(float64(most))
}

// printMap prints a map of a quantity: ranges of rows down, time across.
func printMap(a *cli.App, k *client.KeyHeat, show *health.HeatMeasure) {
	if len(k.Ends) == 0 {
		return
	}
	width := min(k.Columns, mapWidth)
	cells, most := show.Cells(k, width)
	for r := range k.Ends {
		var line strings.Builder
		for _, n := range cells[r*width : (r+1)*width] {
			line.WriteString(shades[int(math.Ceil(level(n, most)*float64(len(shades)-1)))])
		}
		fmt.Fprintf(a.Out, "%-*.*s │%s│\n", labelWidth, labelWidth, cli.EscapeText(bound(k.Ends[r])), line.String())
	}
	start := time.UnixMilli(k.StartMS)
	end := start.Add(time.Duration(k.IntervalMS) * time.Millisecond * time.Duration(k.Columns))
	const layout = "01-02 15:04"
	fmt.Fprintf(a.Out, "%-*s  %-*s%s\n", labelWidth, "", max(width-len(layout), len(layout)+1), start.Format(layout), end.Format(layout))
	fmt.Fprintf(a.Out, "rows end at the key on the left; █ is up to %s\n\n", quantity(most, show))
}

// quantity returns a value of a map as text.
func quantity(n int64, show *health.HeatMeasure) string {
	v := fmt.Sprint(n)
	switch show.Unit {
	case "bytes":
		v = cli.FormatSize(n)
	case "micros":
		v = text.Millis(float64(n) / 1000)
	}
	return v + " " + show.What
}

// palette has the colours of an image from idle to hot, as in the console.
var palette = []color.RGBA{{13, 8, 35, 255}, {66, 15, 107, 255}, {147, 38, 103, 255}, {221, 81, 58, 255}, {252, 165, 10, 255}, {252, 255, 164, 255}}

// shade returns the colour of a level.
func shade(l float64) color.RGBA {
	at := l * float64(len(palette)-1)
	i := min(int(at), len(palette)-2)
	part := at - float64(i)
	mix := func(x, y uint8) uint8 { return uint8(float64(x) + part*(float64(y)-float64(x))) }
	from, to := palette[i], palette[i+1]
	return color.RGBA{mix(from.R, to.R), mix(from.G, to.G), mix(from.B, to.B), 255}
}

// drawHeat writes the map of a quantity as a PNG image: ranges of rows down, time across.
func drawHeat(w io.Writer, k *client.KeyHeat, show *health.HeatMeasure) error {
	rows := max(len(k.Ends), 1)
	sx, sy := (pngWidth+k.Columns-1)/max(k.Columns, 1), (pngHeight+rows-1)/rows
	img := image.NewRGBA(image.Rect(0, 0, max(k.Columns, 1)*sx, rows*sy))
	cells, most := show.Cells(k, k.Columns)
	for y := range rows * sy {
		for x := range k.Columns * sx {
			n := int64(0)
			if at := y/sy*k.Columns + x/sx; at < len(cells) {
				n = cells[at]
			}
			img.SetRGBA(x, y, shade(level(n, most)))
		}
	}
	return png.Encode(w, img)
}
