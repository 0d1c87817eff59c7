package blobs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

func reviveCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "revive ID",
		Short: "Restore a blob from quarantine",
		Long: `Restore a blob or an SSTable from quarantine, on all nodes. The garbage collector moves
unreferenced blobs to quarantine and removes them after a day.

If the blob is still unreferenced, the next garbage collection finds it again. Copy it
if you want to keep it.`,
		Example: `  stele blob revive 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				n, err := c.BlockStore().Revive(ctx, args[0])
				if err != nil {
					return err
				}
				if a.JSON {
					return a.PrintJSON(struct {
						ID       string `json:"id"`
						Replicas int64  `json:"replicas"`
					}{args[0], n})
				}
				a.Notef("restored %s from quarantine", cli.Plural(n, "replica"))
				return nil
			})
		},
	}
}

const resumeSweepLong = `Resume garbage collection. It stops, and removes nothing more, when an extent in
quarantine is requested: the cluster may have taken live data for garbage.

First see by "stele blob status" which extent was requested. Restore it and related
blobs by "stele blob revive", and check with "stele blob fsck" that nothing is lost. An
alarm is a bug: please report it.`

const resumeSweepExample = `  stele blob status
  stele blob revive 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65
  stele blob fsck && stele blob resume-sweep`

func resumeSweepCommand(a *cli.App) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "resume-sweep",
		Short:   "Resume garbage collection after an alarm",
		Long:    resumeSweepLong,
		Example: resumeSweepExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.Confirm(yes, "Resume garbage collection, and remove what is in quarantine?"); err != nil {
				return err
			}
			return a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error {
				if err := c.BlockStore().ResumeSweep(ctx); err != nil {
					return err
				}
				a.Notef("garbage collection resumed")
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}
