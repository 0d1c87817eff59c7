package tables

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// createSlow is the duration of a table's creation above which the command checks whether the whole
// table is served.
const createSlow = 5 * time.Second

// reportUnserved prints a message if a new table is not served completely. The table exists in any case.
func reportUnserved(ctx context.Context, a *cli.App, c *client.Client, name string) {
	u, err := c.Tablets().Unserved(ctx)
	if err != nil {
		a.Notef("table %s exists; whether all of it is served is unknown: %v", name, err)
		return
	}
	if text := unservedMessage(u, name); text != "" {
		a.Notef("table %s exists, and %s: \"stele status\" shows why", name, text)
	}
}

// unservedMessage returns a message if a table is not served completely, or if that is unknown: the
// master lists only the first unserved tablets.
func unservedMessage(u *client.UnservedTablets, name string) string {
	cluster := cli.Plural(u.Total, "tablet") + " of the cluster not served"
	if slices.ContainsFunc(u.Tablets, func(t client.UnservedTablet) bool { return t.Table == name }) {
		return "not all of it is served yet (" + cluster + ")"
	}
	if u.Total > int64(len(u.Tablets)) {
		return "whether all of it is served is unknown (" + cluster + ")"
	}
	return ""
}
