package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/security/acl"
)

func (a *app) aclCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acl",
		Short: "Give and take rights on tables and families",
		Long: `Give and take rights: read, write and admin, which implies the other two. A right is on
the cluster and so on all tables, on a table with all its families, or on a family. The
right monitor is on the cluster alone: status, metrics and profiles, and no table. Users
who have none on a table or family do not see it: to them it is not there.`,
		Example: `  stele acl grant ann read,write webtable
  stele acl grant ann read webtable:anchor
  stele acl list webtable`,
		Args: unknownVerb,
		RunE: needVerb,
	}
	cmd.AddCommand(a.aclChangeCommand(true), a.aclChangeCommand(false), a.aclListCommand())
	return cmd
}

// grantOf reads what a grant is about: TABLE, TABLE:FAMILY, or nothing for the cluster.
func grantOf(args []string, cluster bool) (g client.Grant, err error) {
	g = client.Grant{Principal: args[0], Rights: args[1]}
	rights, err := acl.ParseRights(g.Rights)
	if err != nil {
		return g, usagef("write them with commas between, as in "+quoted("stele acl grant ann read,write webtable"), "%w", err)
	}
	if len(args) > 2 {
		var named bool
		if g.Table, g.Family, named = strings.Cut(args[2], ":"); named && g.Family == "" {
			return g, usagef("leave out the colon for the whole table", "%q names no family after its colon", args[2])
		}
	}
	switch {
	case rights&acl.Monitor != 0 && g.Table != "":
		return g, usagef("give --cluster instead of the table", "%w", acl.ErrClusterRight)
	case cluster && g.Table != "":
		return g, usagef("", "a table and --cluster: give one")
	case !cluster && g.Table == "":
		return g, usagef("name a table, or give --cluster for the cluster with all its tables", "it is not said on what")
	}
	return g, nil
}

// grantPlace says on what a grant is.
func grantPlace(g *client.Grant) string {
	switch {
	case g.Table == "":
		return "the cluster"
	case g.Family == "":
		return "table " + escapeText(g.Table)
	}
	return "family " + escapeText(g.Family) + " of table " + escapeText(g.Table)
}

func (a *app) aclChangeCommand(grant bool) *cobra.Command {
	cluster := false
	cmd := &cobra.Command{
		Use:   "grant USER RIGHTS [TABLE[:FAMILY]]",
		Short: "Give a user rights",
		Long: `Give a user rights: read, write and admin, with commas between, or monitor with
--cluster. The user * is every user that the cluster knows. When the command returns,
all nodes know of it.`,
		Example: `  stele acl grant ann read,write webtable
  stele acl grant '*' read webtable:anchor
  stele acl grant ops admin --cluster
  stele acl grant prometheus monitor --cluster`,
		Args: cobra.RangeArgs(2, 3),
	}
	do, done := (*client.Client).Grant, "%[1]s has %[2]s on %[3]s"
	if !grant {
		cmd.Use, cmd.Short = "revoke USER RIGHTS [TABLE[:FAMILY]]", "Take rights from a user"
		cmd.Long = `Take rights from a user which this very grant gives: on the family, on the table or on
the cluster. When the command returns, no node answers anything by them. If it says that
the outcome is unknown, make it again.`
		cmd.Example = `  stele acl revoke ann write webtable
  stele acl revoke ops admin --cluster`
		do, done = (*client.Client).Revoke, "taken from %[1]s: %[2]s on %[3]s"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		g, err := grantOf(args, cluster)
		if err != nil {
			return err
		}
		if err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) error { return do(c, ctx, g) }); err != nil {
			return err
		}
		a.talk(done, escapeText(g.Principal), escapeText(g.Rights), grantPlace(&g))
		return nil
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "on the cluster, and so on all tables")
	return cmd
}

func (a *app) aclListCommand() *cobra.Command {
	user := ""
	cmd := &cobra.Command{
		Use:     "list [TABLE]",
		Aliases: []string{"ls"},
		Short:   "List who has which rights",
		Long: `List who has which rights, on a table or everywhere. It takes the right to administer
the table, or the cluster.`,
		Example: `  stele acl list
  stele acl list webtable
  stele acl list --user ann --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []client.Grant
			err := a.call(cmd, quick, func(ctx context.Context, c *client.Client) (err error) {
				all, err = c.Grants(ctx, strings.Join(args, ""), user)
				return err
			})
			if err != nil {
				return err
			}
			g := newGrid("USER", "RIGHTS", "TABLE", "FAMILY")
			for _, x := range all {
				if a.json {
					if err := a.printJSON(grantJSON{x.Principal, strings.Split(x.Rights, ","), x.Table, x.Family}); err != nil {
						return err
					}
					continue
				}
				g.add(x.Principal, x.Rights, orElse(x.Table, "(cluster)"), orElse(x.Family, "-"))
			}
			return a.print(g)
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "only those of this `name`")
	return cmd
}

// grantJSON is a grant as --json prints it.
type grantJSON struct {
	User   string   `json:"user"`
	Rights []string `json:"rights"`
	Table  string   `json:"table,omitempty"`
	Family string   `json:"family,omitempty"`
}
