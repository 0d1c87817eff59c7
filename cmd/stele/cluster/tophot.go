package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// hotJSON is the --json form of a hot tablet's line.
type hotJSON struct {
	*client.HotTablet
	cli.BoundsJSON
	Share float64 `json:"share"`
}

// printHot prints the hottest tablets.
func printHot(a *cli.App, l *client.HotTabletList) error {
	g := cli.NewGrid("TABLE", "ABOVE", "UP TO", "NODE", "READS/S", "WRITES/S", "SHARE")
	seconds := max(1, time.Duration(l.EndMS-l.StartMS)*time.Millisecond/time.Second)
	rate := func(n int64) cli.Number { return cli.Count((n + int64(seconds)/2) / int64(seconds)) }
	for i := range l.Tablets {
		t := &l.Tablets[i]
		if a.JSON {
			if err := a.PrintJSON(hotJSON{t, cli.BoundsOf(t.Start, t.End), l.Share(t)}); err != nil {
				return err
			}
			continue
		}
		g.Add(t.Table, cli.OrElse(string(t.Start), "-"), cli.OrElse(string(t.End), "-"), cli.OrElse(t.Node, "-"), rate(t.Reads), rate(t.Writes), cli.Number(fmt.Sprintf("%.0f%%", 100*l.Share(t))))
	}
	if !a.JSON {
		fmt.Fprintln(a.Out)
		if err := a.Print(g); err != nil {
			return err
		}
	}
	if len(l.Silent) > 0 {
		a.Notef("hot tablets: no answer from %s", cli.EscapeText(strings.Join(l.Silent, ", ")))
	}
	return nil
}
