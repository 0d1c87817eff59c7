package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/timing"
)

// watchIntervalMin is the shortest time between two views: each asks all nodes.
const watchIntervalMin = 500 * time.Millisecond

// watch shows a view again and again until ctx ends or views have been shown; 0 views means no end. On a terminal, each replaces the one before. The
// end of ctx, by Ctrl-C, is not an error.
func watch(ctx context.Context, a *cli.App, every time.Duration, views int, show func() error) error {
	if every < watchIntervalMin {
		return cli.Usagef("", "the interval is %v, the shortest is %v", every, watchIntervalMin)
	}
	for shown := 0; ; {
		if a.OutTTY && !a.JSON {
			fmt.Fprint(a.Out, "\x1b[H\x1b[2J") // home, and clear the screen
		}
		err := show()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.Out.Flush(); err != nil {
			return err
		}
		if shown++; shown == views || timing.Sleep(ctx, every) != nil {
			return nil
		}
		if !a.OutTTY && !a.JSON {
			fmt.Fprintln(a.Out)
		}
	}
}
