package access

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/security/acl"
)

func aclCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acl",
		Short: "Grant, revoke and list rights on tables and families",
		Long: `Grant, revoke and list rights. The rights are read, write and admin; admin implies the
other two. A right applies to the cluster and so to all tables, to a table with all its
families, to one family, or to a view of a table (TABLE/VIEW). The right monitor applies
to the cluster only: it gives access to status, metrics and profiles, and to no table.

A user without a right on a table or family cannot see that it exists.`,
		Example: `  stele acl grant ann read,write webtable
  stele acl grant ann read webtable:anchor
  stele acl grant ann read webtable/cnn
  stele acl list webtable`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(aclChangeCommand(a, true), aclChangeCommand(a, false), aclListCommand(a))
	return cmd
}

// grantOf parses USER, RIGHTS and the scope of a grant: TABLE, TABLE:FAMILY, TABLE/VIEW, or none for the cluster.
func grantOf(args []string, cluster bool) (g client.Grant, err error) {
	g = client.Grant{Principal: args[0], Rights: args[1]}
	rights, err := acl.ParseRights(g.Rights)
	if err != nil {
		return g, cli.Usagef("separate them by commas, as in "+cli.Quoted("stele acl grant ann read,write webtable"), "%w", err)
	}
	if len(args) > 2 {
		var named bool
		if g.Table, g.Family, named = strings.Cut(args[2], ":"); named && g.Family == "" {
			return g, cli.Usagef("omit the colon for the whole table", "%q has no family after the colon", args[2])
		}
		if g.Table, g.View, named = strings.Cut(g.Table, "/"); named && g.View == "" {
			return g, cli.Usagef("omit the slash for the whole table", "%q has no view after the slash", args[2])
		}
	}
	switch {
	case rights&acl.Monitor != 0 && g.Table != "":
		return g, cli.Usagef("use --cluster instead of a table", "%w", acl.ErrClusterRight)
	case cluster && g.Table != "":
		return g, cli.Usagef("use one of them", "a table and --cluster are both given")
	case !cluster && g.Table == "":
		return g, cli.Usagef("name a table, or use --cluster for the cluster with all its tables", "the grant has no scope")
	}
	return g, nil
}

// grantPlace returns the scope of a grant, for messages.
func grantPlace(g *client.Grant) string {
	switch {
	case g.Table == "":
		return "the cluster"
	case g.View != "":
		return "view " + cli.EscapeText(g.View) + " of table " + cli.EscapeText(g.Table)
	case g.Family == "":
		return "table " + cli.EscapeText(g.Table)
	}
	return "family " + cli.EscapeText(g.Family) + " of table " + cli.EscapeText(g.Table)
}

const aclRevokeLong = `Revoke rights from a user. Only the grant with exactly this scope changes: the family,
the view, the table or the cluster. When the command returns, no node serves a request
by the revoked rights. If the outcome is unknown, retry.`

const aclRevokeExample = `  stele acl revoke ann write webtable
  stele acl revoke ops admin --cluster`

const aclGrantLong = `Grant rights to a user: read, write and admin, separated by commas, or monitor with
--cluster. The user * stands for all users of the cluster. When the command returns,
the grant is in effect on all nodes.`

const aclGrantExample = `  stele acl grant ann read,write webtable
  stele acl grant '*' read webtable:anchor
  stele acl grant ops admin --cluster
  stele acl grant prometheus monitor --cluster`

func aclChangeCommand(a *cli.App, grant bool) *cobra.Command {
	cluster := false
	cmd := &cobra.Command{
		Use:     "grant USER RIGHTS [TABLE[:FAMILY|/VIEW]]",
		Short:   "Grant rights to a user",
		Long:    aclGrantLong,
		Example: aclGrantExample,
		Args:    cobra.RangeArgs(2, 3),
	}
	do, done := client.Grants.Add, "%[1]s has %[2]s on %[3]s"
	if !grant {
		cmd.Use, cmd.Short = "revoke USER RIGHTS [TABLE[:FAMILY|/VIEW]]", "Revoke rights from a user"
		cmd.Long, cmd.Example = aclRevokeLong, aclRevokeExample
		do, done = client.Grants.Revoke, "revoked from %[1]s: %[2]s on %[3]s"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		g, err := grantOf(args, cluster)
		if err != nil {
			return err
		}
		if err := a.Call(cmd, cli.DefaultTimeout, func(ctx context.Context, c *client.Client) error { return do(c.Grants(), ctx, g) }); err != nil {
			return err
		}
		a.Notef(done, cli.EscapeText(g.Principal), cli.EscapeText(g.Rights), grantPlace(&g))
		return nil
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "apply to the cluster, and so to all tables")
	return cmd
}

const aclListLong = `List the grants on a table, or all grants. The caller needs the right admin on the table
or on the cluster.`

const aclListExample = `  stele acl list
  stele acl list webtable
  stele acl list --user ann --json`

func aclListCommand(a *cli.App) *cobra.Command {
	user := ""
	cmd := &cobra.Command{
		Use:               "list [TABLE]",
		Aliases:           []string{"ls"},
		Short:             "List grants",
		Long:              aclListLong,
		Example:           aclListExample,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := cli.Fetch(a, cmd, func(ctx context.Context, c *client.Client) ([]client.Grant, error) {
				return c.Grants().List(ctx, strings.Join(args, ""), user)
			})
			if err != nil {
				return err
			}
			return printGrants(a, all)
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "list only grants to the user of this `name`")
	return cmd
}

// grantJSON is the --json form of a grant. Unlike in client.Grant, the rights are a list.
type grantJSON struct {
	User   string   `json:"user"`
	Rights []string `json:"rights"`
	Table  string   `json:"table,omitempty"`
	Family string   `json:"family,omitempty"`
	View   string   `json:"view,omitempty"`
}

// tableOf returns the table of a grant, or the view of one, for a grid.
func tableOf(g *client.Grant) string {
	if g.View != "" {
		return g.Table + "/" + g.View
	}
	return cli.OrElse(g.Table, "(cluster)")
}

// printGrants prints a row for each grant.
func printGrants(a *cli.App, all []client.Grant) error {
	g := cli.NewGrid("USER", "RIGHTS", "TABLE", "FAMILY")
	for _, x := range all {
		if a.JSON {
			if err := a.PrintJSON(grantJSON{x.Principal, strings.Split(x.Rights, ","), x.Table, x.Family, x.View}); err != nil {
				return err
			}
			continue
		}
		g.Add(x.Principal, x.Rights, tableOf(&x), cli.OrElse(x.Family, "-"))
	}
	return a.Print(g)
}
