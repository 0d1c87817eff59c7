package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
)

func (a *app) blobReviveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revive ID",
		Short: "Take a blob out of the quarantine for garbage",
		Long: `Take a blob, one that people stored or an SSTable, out of the quarantine into which the
sweep for garbage has put it, on all nodes. What is in quarantine is removed after a day.

If nothing names the blob, the next sweeps find it again: copy it, if you want to keep
it.`,
		Example: `  stele blob revive 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, quick, func(ctx context.Context, c *client.Client) error {
				n, err := c.ReviveBlob(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(struct {
						ID       string `json:"id"`
						Replicas int64  `json:"replicas"`
					}{args[0], n})
				}
				a.talk("%s taken out of quarantine", plural(n, "replica"))
				return nil
			})
		},
	}
}

func (a *app) blobResumeSweepCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "resume-sweep",
		Short: "Let the sweep for garbage go on after an alarm",
		Long: `Let the sweep for garbage go on. It halts, and nothing is removed any more, when somebody
needs an extent that is in quarantine: what the cluster takes for garbage may be none.

First find out what was needed: "stele blob status" tells it. Have the rest back with
"stele blob revive", and see with "stele blob fsck" that nothing is lost. Please report
what happened: it should not.`,
		Example: `  stele blob status
  stele blob revive 3f9c0a5e8d7b41f2a6c4e1d09b8a7c65
  stele blob fsck && stele blob resume-sweep`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(yes, "Let the sweep go on, and remove what it takes for garbage?"); err != nil {
				return err
			}
			return a.call(cmd, quick, func(ctx context.Context, c *client.Client) error {
				if err := c.ResumeSweep(ctx); err != nil {
					return err
				}
				a.talk("the sweep for garbage goes on")
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
