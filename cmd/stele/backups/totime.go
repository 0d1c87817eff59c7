package backups

import (
	"context"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

// madeAtKeep is how long the backup that a restore to a time makes is kept, if the command dies before it deletes it.
const madeAtKeep = 24 * time.Hour

// restoreTo restores tables of a backup inside the cluster as they were at a time. Each appears under its name when it is complete.
func restoreTo(ctx context.Context, a *cli.App, c *client.Client, r *restoring, at time.Time) error {
	names, err := r.names(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := checkFree(ctx, c, cli.OrElse(r.as, name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		id, err := c.Backups().CreateAt(ctx, madeAtKeep, r.id, name, at)
		if err != nil {
			return err
		}
		if _, err = wait(ctx, a, c, id); err != nil {
			return err
		}
		if err = restore(ctx, a, c, id, name, cli.OrElse(r.as, name)); err != nil {
			return cli.WithHint(err, `the backup `+id+` has the table as it was then: "stele backup restore `+id+`" restores it, also under another name`)
		}
		if err = c.Backups().Delete(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
