package backups

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/backupdir"
)

const accessLong = `Give a cluster the rights, owners and quotas that a backup outside the cluster has: those
of its tables, and if it has all tables of its cluster, also those on the cluster and of
users. Restore the tables first, and create the users: the backup has their names, but no
credentials. What is about users and tables that the cluster lacks is left out; the
command can be repeated. Rights are added, and none is revoked.`

func accessCommand(a *cli.App) *cobra.Command {
	from, o := "", outside{}
	cmd := &cobra.Command{
		Use:     "restore-access ID --from DIR",
		Short:   "Restore rights, owners and quotas from a backup",
		Long:    accessLong,
		Example: `  stele backup restore-access 20261127-194512-3f9a01 --from /mnt/backups`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" {
				return cli.Usagef("only backups outside the cluster have rights, owners and quotas", "--from is missing")
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return restoreAccess(ctx, a, c, args[0], from, &o)
			})
		},
	}
	fromFlag(cmd, &from)
	o.storeFlags(cmd)
	return cmd
}

func restoreAccess(ctx context.Context, a *cli.App, c *client.Client, id, from string, o *outside) error {
	_, b, err := o.find(ctx, from, id)
	if err != nil {
		return err
	}
	if b.Access == nil {
		return cli.NotFoundf(`"stele backup copy" copies them with a backup`, "backup %s has no rights, owners and quotas", id)
	}
	skipped, err := b.Access.Apply(ctx, c)
	if err != nil {
		return err
	}
	return printAccess(a, b.Access, skipped)
}

func printAccess(a *cli.App, x *backupdir.Access, skipped backupdir.Skipped) error {
	if a.JSON {
		return a.PrintJSON(map[string]any{"grants": len(x.Grants), "owners": len(x.Owners), "quotas": len(x.Quotas),
			"skipped_users": append([]string{}, skipped.Users...), "skipped_tables": append([]string{}, skipped.Tables...)})
	}
	a.Notef("restored %s, %s and %s", cli.Plural(int64(len(x.Grants)), "grant"), cli.Plural(int64(len(x.Owners)), "owner"),
		cli.Plural(int64(len(x.Quotas)), "quota bound"))
	if len(skipped.Users) > 0 {
		a.Notef(`except those of missing users: create them by "stele user add", and repeat: %s`, cli.EscapeText(strings.Join(skipped.Users, ", ")))
	}
	if len(skipped.Tables) > 0 {
		a.Notef("except those of missing tables: restore them, and repeat: %s", cli.EscapeText(strings.Join(skipped.Tables, ", ")))
	}
	return nil
}
