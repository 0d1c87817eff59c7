package tables

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
)

const tableOwnerLong = `Show or change the owner of a table. The table counts towards the owner's quota of
bytes. The first owner is the user who created the table. Ownership grants no rights:
see "stele acl".`

const tableOwnerExample = `  stele table owner webtable
  stele table owner webtable ann
  stele table owner webtable --nobody`

func tableOwnerCommand(a *cli.App) *cobra.Command {
	noOwner := false
	cmd := &cobra.Command{
		Use:               "owner TABLE [USER]",
		Short:             "Show or change the owner of a table",
		Long:              tableOwnerLong,
		Example:           tableOwnerExample,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if noOwner && len(args) > 1 {
				return cli.Usagef("use one of them", "a user and --nobody are both given")
			}
			if noOwner || len(args) > 1 {
				user := strings.Join(args[1:], "")
				if err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return c.SetOwner(ctx, args[0], user) }); err != nil {
					return err
				}
				a.Notef("owner of table %s: %s", cli.EscapeText(args[0]), cli.OrElse(cli.EscapeText(user), "none"))
				return nil
			}
			var u *client.Usage
			err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) (err error) {
				u, err = c.Usage(ctx, args[0])
				return err
			})
			if err != nil {
				return err
			}
			owner := ""
			for i := range u.Tables {
				owner = u.Tables[i].Owner
			}
			if a.JSON {
				return a.PrintJSON(ownerJSON{args[0], owner})
			}
			_, err = fmt.Fprintln(a.Out, cli.OrElse(cli.EscapeText(owner), "-"))
			return err
		},
	}
	cmd.Flags().BoolVar(&noOwner, "nobody", false, "remove the owner")
	return cmd
}

// ownerJSON is the --json form of a table's owner.
type ownerJSON struct {
	Table string `json:"table"`
	Owner string `json:"owner"`
}
