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
				return setOwner(a, cmd, args[0], strings.Join(args[1:], ""))
			}
			return showOwner(a, cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&noOwner, "nobody", false, "remove the owner")
	return cmd
}

// setOwner changes the owner of a table; an empty user means none.
func setOwner(a *cli.App, cmd *cobra.Command, name, user string) error {
	if err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return c.Tables().SetOwner(ctx, name, user) }); err != nil {
		return err
	}
	a.Notef("owner of table %s: %s", cli.EscapeText(name), cli.OrElse(cli.EscapeText(user), "none"))
	return nil
}

// showOwner prints the owner of a table.
func showOwner(a *cli.App, cmd *cobra.Command, name string) error {
	u, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) (*client.Usage, error) { return c.Tables().Usage(ctx, name) })
	if err != nil {
		return err
	}
	owner := ""
	for i := range u.Tables {
		owner = u.Tables[i].Owner
	}
	if a.JSON {
		return a.PrintJSON(struct {
			Table string `json:"table"`
			Owner string `json:"owner"`
		}{name, owner})
	}
	_, err = fmt.Fprintln(a.Out, cli.OrElse(cli.EscapeText(owner), "-"))
	return err
}
